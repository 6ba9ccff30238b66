"""The commands `rocketrio cluster ...`; `cluster_table.py` has the table of `status`."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import TYPE_CHECKING, Final

import attrs
import click

from rocketrio.cli.call import Call, changes, reads, streams
from rocketrio.cli.cluster_table import STATUS, status_table
from rocketrio.cli.columns import UNKNOWN, Column, Row, columns_of, dashed, row_of
from rocketrio.cli.commands import Group
from rocketrio.cli.numbers import Duration, Whole
from rocketrio.cli.output import Output
from rocketrio.cli.say import say
from rocketrio.cli.types import ADDRESS, TIME_HELP, Time
from rocketrio.counts import counted
from rocketrio_protocol.lag import duration
from rocketrio_protocol.log_lines import quoted

if TYPE_CHECKING:
    from rocketrio.admin.diagnosis import Health
    from rocketrio.admin.events import BrokerEvent, EventFeed

_EVENT: Final = columns_of(
    (
        *("time", "level", "kind", "event", "values"),
        *("cluster", "broker_name", "broker_id", "address"),
    )
)
"""What programs see of an event."""
_BROKERS: Final = (
    "cluster",
    Column("broker_name", "broker"),
    Column("broker_id", "id"),
    "role",
    "address",
    Column("ha_address", "ha address", lambda row: _short_address(row)),
    Column("min_physical_offset", "log begin"),
    Column("max_physical_offset", "log end"),
)
"""The columns of `cluster list`: with these headings a line fits a terminal of 110 columns."""
_SINCE = Column(
    "seconds",
    "since",
    lambda row: "-" if row["seconds"] is None else duration(row["seconds"]),
)
_GROUPS_NOTE: Final = "groups were not looked at: see `rocketrio doctor`"
WATCH_INTERVAL: Final = 2.0
"""Seconds between two updates."""
FOLLOW_INTERVAL: Final = 2.0
"""Seconds between two polls."""


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


@cluster.command(name="list")
@reads
async def list_brokers(call: Call) -> None:
    """List the registered brokers, one per line.

    A slave has caught up when its log ends where its master's ends (in JSON max_physical_offset). `:10912` as ha
    address is a port of the broker's host. A value that a broker does not report is `unknown`, in JSON null.

    \b
    Examples:
      rocketrio cluster list
      rocketrio cluster list --json --namesrv 10.0.0.1:9876
    """
    async with call.asking("asking brokers"):
        brokers = await call.admin.brokers()
    call.output.show(brokers, _BROKERS)


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
async def status(call: Call, watch: bool, every: float | None, also: tuple[str, ...]) -> None:
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
    call.is_endless = watch
    async with call.asking("asking brokers", when=not watch):
        if watch:
            await _watch(call, also, WATCH_INTERVAL if every is None else every)
        statuses = await call.admin.status(also=also)
    call.output.show(statuses, STATUS, people=status_table(statuses))


@cluster.command()
@click.option("--watch", is_flag=True, help="Repeat until Ctrl-C.")
@click.option("-e", "--exit-code", is_flag=True, help="Exit with 1 if anything is wrong.")
@reads
async def health(call: Call, watch: bool, exit_code: bool) -> None:
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
    import trio

    if watch and exit_code:
        raise click.UsageError("--watch has no end, and so no --exit-code")
    call.is_endless = watch
    async with call.asking("asking servers", when=not watch):
        while watch:
            _show_health(await call.admin.health(), call.output)
            await trio.sleep(WATCH_INTERVAL)
        found = await call.admin.health()
    _show_health(found, call.output)
    if exit_code and not found.is_well:
        sys.exit(1)
    call.silent.update(found.silent)


def _show_health(found: Health, output: Output) -> None:
    well = f"nothing is wrong; {counted(found.brokers, 'broker')} answered"
    if found.silent:
        well = f"nothing is wrong as far as is known; {counted(len(found.silent), 'server')} did not tell"
    output.show(
        map(attrs.asdict, found.findings),
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


async def _watch(call: Call, also: tuple[str, ...], interval: float) -> None:
    import trio
    from rich.live import Live

    from rocketrio.cli.console import console

    if not (call.output.is_plain and sys.stdout.isatty()):
        while True:
            statuses = await call.admin.status(also=also)
            call.output.show(statuses, STATUS, people=status_table(statuses))
            await trio.sleep(interval)
    # No refresh thread: each status is shown when it arrives.
    with Live(console=console(), auto_refresh=False) as live:
        while True:
            live.update(status_table(await call.admin.status(also=also)), refresh=True)
            await trio.sleep(interval)


@cluster.command()
@click.option("--since", type=Time(), help=f"Only from then on, {TIME_HELP}.")
@click.option("--follow", is_flag=True, help="Then show each new event, until Ctrl-C.")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    metavar="KIND",
    help="Only events of this kind: role, replication, log, disk, clock, offsets, groups, topics, messages, "
    "registration, access, process. May be repeated.",
)
@streams
async def events(call: Call, since: datetime | None, follow: bool, kinds: tuple[str, ...]) -> None:
    """Show what happened lately in rocketrio brokers, the oldest first; each keeps its last 1,000 events.

    Apache's brokers keep no events and are named on standard error. With --json each event is one line.

    \b
    Examples:
      rocketrio cluster events --since -1h
      rocketrio cluster events --kind role --kind replication --follow
      rocketrio cluster events --since 2026-11-21T08:00 --json
    """
    import trio

    call.is_endless = follow

    feed = call.admin.events(since=since, kinds=kinds)
    without: set[str] = set()
    while True:
        for event in await feed.poll():
            call.output.line(row_of(event, _EVENT), _event_line(event, call.output))
        _name_without(feed, without)
        if not follow:
            call.silent.update(feed.silent)
            return
        await trio.sleep(FOLLOW_INTERVAL)


def _name_without(feed: EventFeed, without: set[str]) -> None:
    """Name each broker that keeps no events once."""
    for addr in sorted(set(feed.without) - without):
        say(
            f"note: {addr} keeps no events: it is not a rocketrio broker, or an older one", err=True
        )
    without.update(feed.without)


def _event_line(event: BrokerEvent, output: Output) -> str:
    values = " ".join(f"{key}={_event_text(value)}" for key, value in event.values.items())
    place = f"{event.broker_name}:{event.broker_id}"
    text = f"{output.time(event.time)} {event.level:7} {place} {event.kind}: {event.event} {values}"
    return text.rstrip()


def _event_text(value: object) -> str:
    return "unknown" if value is None else quoted(str(value))


@cluster.command()
@click.option(
    "-n", "--count", type=Whole(1), default=50, show_default=True, help="Sends to each broker."
)
@click.option(
    "--size",
    type=Whole(0, 4 << 20),
    default=128,
    show_default=True,
    help="Bytes of a message.",
)
@click.option("--broker", help="Only to the master of this name.")
@changes
async def rtt(call: Call, count: int, size: int, broker: str | None) -> None:
    """Measure how long each master takes to store a message: it sends some, one after the other.

    The messages go to the topic that each broker has under its own name, which no group reads; retention deletes them.
    The exit code is 1 if a send failed.

    \b
    Examples:
      rocketrio cluster rtt
      rocketrio cluster rtt --broker broker-a --count 200 --size 1024
    """

    if call.dry_run:
        names = sorted(await call.admin.masters())
        call.output.show(
            [
                {"broker_name": name, "sends": count, "bytes": size}
                for name in names
                if broker in (None, name)
            ],
            notes=["nothing was sent"],
        )
        return
    found = await call.admin.round_trips(broker_name=broker, count=count, size=size)
    call.output.show(
        found,
        (
            "broker_name",
            "sends",
            Column("median_ms", "p50 ms", value=lambda one: _milliseconds(one.median)),
            Column("p99_ms", "p99 ms", value=lambda one: _milliseconds(one.p99)),
            "failures",
            "unsafe",
            dashed("problem"),
        ),
    )
    if any(one.failures for one in found):
        sys.exit(1)


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 2)
