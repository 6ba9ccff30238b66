"""The commands `rocketrio cluster list|status|health`; `cluster_events.py` has `events`."""

import sys
from typing import Final

import attrs
import click
import trio
from rich.live import Live

from rocketrio.admin.admin import Admin
from rocketrio.admin.diagnosis import Health
from rocketrio.cli.asking import asking
from rocketrio.cli.cluster_events import events
from rocketrio.cli.cluster_rtt import rtt
from rocketrio.cli.cluster_table import STATUS_KEYS, status_rows, status_table
from rocketrio.cli.commands import Group
from rocketrio.cli.common import (
    ADDRESS,
    client_options,
    end_in_part,
    reads,
    run,
)
from rocketrio.cli.numbers import Duration
from rocketrio.cli.output import UNKNOWN, Column, Output, Row, console
from rocketrio.connect import ClientOptions
from rocketrio.counts import counted
from rocketrio_protocol.lag import duration

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

_HEADINGS = ("cluster", "broker", "id", "role", "address", "ha address", "log begin", "log end")
"""Shorter than the keys in JSON, so that a line fits a terminal of 110 columns."""

_SINCE = Column(
    "seconds",
    "since",
    lambda row: "-" if row["seconds"] is None else duration(row["seconds"]),
)
_GROUPS_NOTE: Final = "groups were not looked at: see `rocketrio doctor`"
WATCH_INTERVAL: Final = 2.0
"""Seconds between two updates."""


@click.group(cls=Group, most_used=("status", "health", "list"))
def cluster() -> None:
    """Show the state of brokers.

    \b
    Examples:
      rocketrio cluster list
      rocketrio cluster status --watch
      rocketrio cluster health
      rocketrio cluster events --since -1h
    """


cluster.add_command(events)
cluster.add_command(rtt)


@cluster.command(name="list")
@reads
@client_options
def list_brokers(output: Output, client: ClientOptions, verbose: int) -> None:
    """List the registered brokers, one per line.

    A slave has caught up when its log ends where its master's ends (in JSON max_physical_offset). `:10912` as ha
    address is a port of the broker's host. A value that a broker does not report is `unknown`, in JSON null.

    \b
    Examples:
      rocketrio cluster list
      rocketrio cluster list --json --namesrv 10.0.0.1:9876
    """

    async def work() -> None:
        async with asking("asking brokers", client) as admin:
            brokers = await admin.brokers()
        output.show(
            [{name: getattr(broker, name) for name in _COLUMNS} for broker in brokers],
            [
                Column(name, heading, _short_address if name == "ha_address" else None)
                for name, heading in zip(_COLUMNS, _HEADINGS, strict=True)
            ],
        )

    run(work, verbose=verbose)


def _short_address(row: Row) -> str:
    host = row["address"].rpartition(":")[0]
    return UNKNOWN if row["ha_address"] is None else row["ha_address"].removeprefix(host)


@cluster.command()
@click.option("--watch", is_flag=True, help="Repeat until Ctrl-C.")
@click.option(
    "--every",
    type=Duration(0.1),
    help=f"Time between reports (with --watch).  [default: {WATCH_INTERVAL:g}s]",
)
@click.option(
    "--broker",
    "also",
    type=ADDRESS,
    multiple=True,
    help="Ask this broker too, though it may not be registered. May be repeated.",
)
@reads
@client_options
def status(
    watch: bool,
    every: float | None,
    also: tuple[str, ...],
    output: Output,
    client: ClientOptions,
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
        async with asking("asking brokers", client, when=not watch) as admin:
            if watch:
                await _watch(admin, also, WATCH_INTERVAL if every is None else every, output)
                return
            statuses = await admin.status(also=also)
        output.show(status_rows(statuses), STATUS_KEYS, people=status_table(statuses))

    run(work, verbose=verbose, interrupted_is_done=watch)


@cluster.command()
@click.option("--watch", is_flag=True, help="Repeat until Ctrl-C.")
@click.option("-e", "--exit-code", is_flag=True, help="Exit with 1 if anything is wrong.")
@reads
@client_options
def health(
    watch: bool, exit_code: bool, output: Output, client: ClientOptions, verbose: int
) -> None:
    """Show what is wrong with name servers, brokers and replication, one finding per line, the worst first.

    A number that a broker does not report leads to no finding; a broker that does not answer is one, and the exit code
    is then 3. Groups are not looked at: `rocketrio doctor` and `rocketrio lag` do that. With --watch and --json each
    update is one line.

    \b
    Examples:
      rocketrio cluster health
      rocketrio cluster health -e && echo well
      rocketrio cluster health --watch
    """
    if watch and exit_code:
        raise click.UsageError("--watch has no end, and so no --exit-code")
    found: list[Health] = []

    async def work() -> None:
        async with asking("asking servers", client, when=not watch) as admin:
            while watch:
                _show_health(await admin.health(), output)
                await trio.sleep(WATCH_INTERVAL)
            found.append(await admin.health())
        _show_health(found[0], output)

    run(work, verbose=verbose, interrupted_is_done=watch)
    if found and exit_code and not found[0].is_well:
        sys.exit(1)
    if found:
        end_in_part(found[0].silent)


def _show_health(found: Health, output: Output) -> None:
    well = f"nothing is wrong; {counted(found.brokers, 'broker')} answered"
    if found.silent:
        well = f"nothing is wrong as far as is known; {counted(len(found.silent), 'server')} did not tell"
    output.show(
        [attrs.asdict(one) for one in found.findings],
        ("severity", "code", "where", "what", _SINCE, "advice"),
        document=lambda rows: {
            "is_well": found.is_well,
            "findings": rows,
            "brokers": found.brokers,
            "silent": dict(found.silent),
        },
        people=None if found.findings else well,
        notes=[_GROUPS_NOTE],
    )


async def _watch(admin: Admin, also: tuple[str, ...], interval: float, output: Output) -> None:
    if not (output.is_plain and sys.stdout.isatty()):
        while True:
            statuses = await admin.status(also=also)
            output.show(status_rows(statuses), STATUS_KEYS, people=status_table(statuses))
            await trio.sleep(interval)
    # No refresh thread: each status is shown when it arrives.
    with Live(console=console(), auto_refresh=False) as live:
        while True:
            live.update(status_table(await admin.status(also=also)), refresh=True)
            await trio.sleep(interval)
