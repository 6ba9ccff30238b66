"""The commands `rocketrio cluster list|status`."""

import sys
from typing import Final

import click
import trio
from rich.console import Console
from rich.live import Live

from rocketrio.admin.admin import Admin, open_admin
from rocketrio.cli.cluster_table import status_json, status_table
from rocketrio.cli.common import (
    ADDRESS,
    PIPED_WIDTH,
    json_option,
    namesrv_option,
    print_json,
    print_table,
    run,
)

_COLUMNS = (
    "cluster",
    "broker_name",
    "broker_id",
    "role",
    "address",
    "ha_address",
    "min_physical_offset",
    "max_physical_offset",
)

WATCH_INTERVAL: Final = 2.0
"""Seconds between two updates."""


@click.group()
def cluster() -> None:
    """Show the state of brokers.

    \b
    Examples:
      rocketrio cluster list
      rocketrio cluster status --watch
    """


@cluster.command(name="list")
@json_option
@namesrv_option
def list_brokers(as_json: bool, namesrv: tuple[str, ...], verbose: int) -> None:
    """List the registered brokers, one per line.

    A slave has caught up when its max_physical_offset is its master's. A value that a broker does not report is
    `unknown`, in JSON null.

    \b
    Examples:
      rocketrio cluster list
      rocketrio cluster list --json --namesrv 10.0.0.1:9876
    """

    async def work() -> None:
        async with open_admin(name_servers=namesrv) as admin:
            brokers = await admin.brokers()
        rows = [[getattr(broker, column) for column in _COLUMNS] for broker in brokers]
        if as_json:
            print_json([dict(zip(_COLUMNS, row, strict=True)) for row in rows])
        else:
            print_table(_COLUMNS, rows)

    run(work, verbose=verbose)


@cluster.command()
@click.option("--watch", is_flag=True, help="Repeat until Ctrl-C.")
@click.option(
    "--every",
    type=click.FloatRange(0.1),
    help=f"Seconds between reports (with --watch).  [default: {WATCH_INTERVAL:g}]",
)
@click.option(
    "--broker",
    "also",
    type=ADDRESS,
    multiple=True,
    help="Ask this broker too, though it may not be registered. May be repeated.",
)
@json_option
@namesrv_option
def status(
    watch: bool,
    every: float | None,
    also: tuple[str, ...],
    as_json: bool,
    namesrv: tuple[str, ...],
    verbose: int,
) -> None:
    """Show the replication of the brokers: roles, who follows whom and how far behind, what is wrong.

    `behind` is what a slave has not acknowledged, in bytes, and `seconds` how long the master has stored the first of
    those bytes. Below the table are problems, and what the last send that had to wait for the disk or for slaves waited
    for. A value that a broker does not report is `unknown`, in JSON null: Apache's brokers before 5.0 report the end of
    their log, later ones also the state of their slaves. With --watch and --json each update is one line.

    \b
    Examples:
      rocketrio cluster status
      rocketrio cluster status --watch --every 0.5
      rocketrio cluster status --json --namesrv 10.0.0.1:9876
      rocketrio cluster status --broker 10.0.0.7:10911
    """
    if every is not None and not watch:
        raise click.UsageError("--every needs --watch")

    async def work() -> None:
        async with open_admin(name_servers=namesrv) as admin:
            if watch:
                await _watch(admin, also, WATCH_INTERVAL if every is None else every, as_json)
                return
            statuses = await admin.status(also=also)
        if as_json:
            print_json(status_json(statuses))
        else:
            _console().print(status_table(statuses))

    run(work, verbose=verbose, interrupted_is_done=watch)


async def _watch(admin: Admin, also: tuple[str, ...], interval: float, as_json: bool) -> None:
    if as_json:
        while True:
            print_json(status_json(await admin.status(also=also)))
            await trio.sleep(interval)
    # No refresh thread: each status is shown when it arrives.
    with Live(console=_console(), auto_refresh=False) as live:
        while True:
            live.update(status_table(await admin.status(also=also)), refresh=True)
            await trio.sleep(interval)


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else PIPED_WIDTH, highlight=False)
