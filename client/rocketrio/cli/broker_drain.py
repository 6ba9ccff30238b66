"""The commands `rocketrio broker drain|undrain`."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

import click

from rocketrio.cli.call import Call, changes, whole_timeout
from rocketrio.cli.columns import Column
from rocketrio.cli.commands import Command
from rocketrio.cli.progress import showing_progress
from rocketrio.cli.say import say
from rocketrio.cli.shell import fail
from rocketrio.cli.types import BROKER
from rocketrio.counts import counted
from rocketrio.limits import QUIET_SECONDS

if TYPE_CHECKING:
    from rocketrio.admin.admin import Admin
    from rocketrio.admin.drain import Held, Unread, WritePermission

WAIT_TIMEOUT: Final = 600.0
"""Seconds that --wait and --until-consumed wait without --timeout."""


@click.command(cls=Command)
@click.argument("name", type=BROKER, metavar="NAME")
@click.option(
    "--wait", is_flag=True, help=f"Wait until nothing was stored for {QUIET_SECONDS:g} seconds."
)
@click.option(
    "--until-consumed",
    is_flag=True,
    help="Wait, and then until every group has read everything, no delayed message waits and no transaction is open.",
)
@changes
async def drain(call: Call, name: str, wait: bool, until_consumed: bool) -> None:
    """Take the broker NAME out of service for producers: they choose other brokers within 30 seconds.

    Name servers remove the write permission of its topics. Consumers read on. A topic whose queues are on this broker
    alone cannot be written until `undrain`. It lasts until a name server restarts, or the broker registers changed
    topics; --until-consumed does it again then. It waits for ten minutes, or for --timeout.

    \b
    Examples:
      rocketrio broker drain broker-a --dry-run
      rocketrio broker drain broker-a --wait && systemctl stop rocketrio-broker
      rocketrio broker drain broker-a --until-consumed --timeout 3h
    """
    import trio

    timeout = WAIT_TIMEOUT if whole_timeout() == inf else whole_timeout()
    call.limit.deadline = inf  # What is left is shown when the time is over.
    if not call.dry_run:
        done = await call.admin.drain(name)
        call.silent.update(done.silent)
        if call.output.for_people:
            _show(done)
        with trio.move_on_after(timeout) as limit:
            async with showing_progress(f"waiting until {name} is not used"):
                if until_consumed:
                    await call.admin.wait_drained(name)
                elif wait:
                    await call.admin.wait_quiet(name)
    else:
        await call.admin.broker_addresses(name)  # Raises an error if it is not registered.
    unread, held = await _unread(call.admin, name, call.silent), await call.admin.held(name)
    call.output.show(
        [{"group": one.group, "topic": one.topic, "messages": one.messages} for one in unread],
        ("group", "topic", Column("messages", "unread")),
        document=lambda rows: {
            "broker_name": name,
            "topics": {} if call.dry_run else dict(done.topics),
            "unread": rows,
            "delayed": held.delayed,
            "open_transactions": held.transactions,
            "dead_letters": held.dead_letters,
            "silent": call.silent,
        },
        people=None if unread else f"every group has read everything that {name} stores",
        notes=_notes(name, held),
    )
    if not call.dry_run and limit.cancelled_caught:
        fail(f"{name} is still in use after {timeout:g} s")


@click.command(cls=Command)
@click.argument("name", type=BROKER, metavar="NAME")
@changes
async def undrain(call: Call, name: str) -> None:
    """Put the broker NAME back into service for producers, after `drain`.

    \b
    Example:
      rocketrio broker undrain broker-a
    """
    if call.dry_run:
        addresses = await call.admin.broker_addresses(name)
        call.output.show(
            [{"broker_name": name, "address": address} for address in addresses],
            people=f"would give {name} ({', '.join(addresses)}) its write permission back",
        )
        return
    done = await call.admin.undrain(name)
    call.silent.update(done.silent)
    if call.output.for_people:
        _show(done)
    else:
        call.output.show(
            [{"name_server": addr, "topics": count} for addr, count in done.topics.items()],
            document=lambda rows: {
                "broker_name": name,
                "topics": {row["name_server"]: row["topics"] for row in rows},
                "silent": dict(done.silent),
            },
        )


def _show(done: WritePermission) -> None:
    what = "may be written again" if done.writable else "take no more messages"
    for server, topics in done.topics.items():
        say(f"{server}: {counted(topics, 'topic')} of {done.broker_name} {what}")
    if not done.writable:  # Also if the command is interrupted, or its time ends.
        say(f"until you give them back: rocketrio broker undrain {done.broker_name}")


def _notes(name: str, held: Held) -> list[str]:
    """Name what the broker holds beside what groups have not read, and what to do about it."""
    notes = []
    if held.delayed != 0:
        notes.append(f"not due yet on {name}: {counted(held.delayed, 'message')}")
    if held.transactions != 0:
        notes.append(f"may be open on {name}: {counted(held.transactions, 'transaction')}")
    if held.dead_letters != 0:
        letters = counted(held.dead_letters, "dead letter")
        notes.append(f"gone with {name}, unless you export or resend them: {letters}")
    return notes


async def _unread(admin: Admin, name: str, silent: dict[str, str]) -> list[Unread]:
    from rocketrio.admin.drain import unread_at

    report = await admin.lag(seconds=0)
    silent.update(report.silent)
    return unread_at(report, name)
