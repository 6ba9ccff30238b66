"""The command `rocketrio cluster events`."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from rocketrio.cli.call import Call, streams
from rocketrio.cli.commands import Command
from rocketrio.cli.output import Output
from rocketrio.cli.say import say
from rocketrio.cli.types import TIME_HELP, Time
from rocketrio_protocol.log_lines import quoted

if TYPE_CHECKING:
    from rocketrio.admin.events import BrokerEvent, EventFeed

FOLLOW_INTERVAL: Final = 2.0
"""Seconds between two polls."""


@click.command(cls=Command)
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
            call.output.line(_row(event), _line(event, call.output))
        _name(feed, without)
        if not follow:
            call.silent.update(feed.silent)
            return
        await trio.sleep(FOLLOW_INTERVAL)


def _name(feed: EventFeed, without: set[str]) -> None:
    """Name each broker that keeps no events once."""
    for addr in sorted(set(feed.without) - without):
        say(
            f"note: {addr} keeps no events: it is not a rocketrio broker, or an older one", err=True
        )
    without.update(feed.without)


def _row(event: BrokerEvent) -> dict[str, Any]:
    return {
        "time": event.time,
        "level": event.level,
        "kind": event.kind,
        "event": event.event,
        "values": event.values,
        "cluster": event.cluster,
        "broker_name": event.broker_name,
        "broker_id": event.broker_id,
        "address": event.address,
    }


def _line(event: BrokerEvent, output: Output) -> str:
    values = " ".join(f"{key}={_text(value)}" for key, value in event.values.items())
    place = f"{event.broker_name}:{event.broker_id}"
    text = f"{output.time(event.time)} {event.level:7} {place} {event.kind}: {event.event} {values}"
    return text.rstrip()


def _text(value: object) -> str:
    return "unknown" if value is None else quoted(str(value))
