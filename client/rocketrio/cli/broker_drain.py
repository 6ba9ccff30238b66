"""The commands `rocketrio broker drain|undrain`."""

from math import inf
from typing import Final

import click
import trio

from rocketrio.admin.admin import Admin, open_admin
from rocketrio.admin.drain import QUIET_SECONDS, Held, Unread, WritePermission, unread_at
from rocketrio.cli.commands import Command
from rocketrio.cli.common import BROKER, changes, client_options, run_in_part, whole_timeout
from rocketrio.cli.output import Column, Output
from rocketrio.cli.progress import showing_progress
from rocketrio.cli.say import say
from rocketrio.cli.shell import fail
from rocketrio.connect import ClientOptions
from rocketrio.counts import counted

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
@client_options
def drain(
    name: str,
    wait: bool,
    until_consumed: bool,
    dry_run: bool,
    output: Output,
    client: ClientOptions,
    verbose: int,
) -> None:
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
    timeout = WAIT_TIMEOUT if whole_timeout() == inf else whole_timeout()

    async def work(silent: dict[str, str]) -> None:
        async with open_admin(**client) as admin:
            if not dry_run:
                done = await admin.drain(name)
                silent.update(done.silent)
                if output.for_people:
                    _show(done)
                with trio.move_on_after(timeout) as limit:
                    async with showing_progress(f"waiting until {name} is not used"):
                        if until_consumed:
                            await admin.wait_drained(name)
                        elif wait:
                            await admin.wait_quiet(name)
            else:
                await admin.broker_addresses(name)  # Raises an error if it is not registered.
            unread, held = await _unread(admin, name, silent), await admin.held(name)
        output.show(
            [{"group": one.group, "topic": one.topic, "messages": one.messages} for one in unread],
            ("group", "topic", Column("messages", "unread")),
            document=lambda rows: {
                "broker_name": name,
                "topics": {} if dry_run else dict(done.topics),
                "unread": rows,
                "delayed": held.delayed,
                "open_transactions": held.transactions,
                "dead_letters": held.dead_letters,
                "silent": silent,
            },
            people=None if unread else f"every group has read everything that {name} stores",
            notes=_notes(name, held),
        )
        if not dry_run and limit.cancelled_caught:
            fail(f"{name} is still in use after {timeout:g} s")

    run_in_part(work, verbose=verbose, is_timed=False)


@click.command(cls=Command)
@click.argument("name", type=BROKER, metavar="NAME")
@changes
@client_options
def undrain(name: str, dry_run: bool, output: Output, client: ClientOptions, verbose: int) -> None:
    """Put the broker NAME back into service for producers, after `drain`.

    \b
    Example:
      rocketrio broker undrain broker-a
    """

    async def work(silent: dict[str, str]) -> None:
        async with open_admin(**client) as admin:
            if dry_run:
                addresses = await admin.broker_addresses(name)
                output.show(
                    [{"broker_name": name, "address": address} for address in addresses],
                    people=f"would give {name} ({', '.join(addresses)}) its write permission back",
                )
                return
            done = await admin.undrain(name)
        silent.update(done.silent)
        if output.for_people:
            _show(done)
        else:
            output.show(
                [{"name_server": addr, "topics": count} for addr, count in done.topics.items()],
                document=lambda rows: {
                    "broker_name": name,
                    "topics": {row["name_server"]: row["topics"] for row in rows},
                    "silent": dict(done.silent),
                },
            )

    run_in_part(work, verbose=verbose)


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
    report = await admin.lag(seconds=0)
    silent.update(report.silent)
    return unread_at(report, name)
