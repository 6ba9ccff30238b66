"""The command `rocketrio dead-letters`."""

from datetime import datetime
from typing import Any, Final

import click

from rocketrio.admin.dead_letters import VIEW_MAX_MESSAGES
from rocketrio.cli.asking import asking
from rocketrio.cli.commands import Group
from rocketrio.cli.common import GROUP, TIME_HELP, Time, client_options, reads, run
from rocketrio.cli.dead_letters_tools import count, export, resend
from rocketrio.cli.message_output import body_problem, body_size
from rocketrio.cli.numbers import Whole
from rocketrio.cli.output import Column, Output
from rocketrio.connect import ClientOptions
from rocketrio_protocol.message import MessageExt

_COLUMNS: Final = (
    "message_id",
    "topic",
    Column("keys", cell=lambda row: row["keys"] or ""),
    Column("tags", cell=lambda row: row["tags"] or ""),
    "reconsume_times",
    "store_time",
    Column("body_size", cell=lambda row: row["body_error"] or str(row["body_size"]), right=True),
)


@click.group(
    "dead-letters",
    cls=Group,
    most_used=("count --all-groups", "list billing", "resend billing --all --dry-run"),
)
def dead_letters() -> None:
    """List the messages that a group could not handle, and send them again."""


dead_letters.add_command(count)
dead_letters.add_command(export)
dead_letters.add_command(resend)


@dead_letters.command("list")
@click.argument("group", type=GROUP, metavar="GROUP")
@click.option("--since", type=Time(), help=f"Only those stored from this time on, {TIME_HELP}.")
@click.option(
    "-n", "--count", type=Whole(1), default=VIEW_MAX_MESSAGES, show_default=True,
    help="Maximum number, oldest first.",
)  # fmt: skip
@reads
@client_options
def list_command(
    group: str,
    since: datetime | None,
    count: int,
    output: Output,
    client: ClientOptions,
    verbose: int,
) -> None:
    """Show the dead letters of GROUP; none is removed.

    `reconsume_times` is how often the message was sent back, including the last time. With --json the output has one
    object per line, with the same names; `body_error` says why a body cannot be read, which is then of unknown size.

    \b
    Example:
      rocketrio dead-letters list billing --since 2026-11-21T08:00
    """

    async def work() -> None:
        async with asking(f"reading dead letters of {group}", client) as admin:
            found = await admin.dead_letters(group).messages(since=since, max_messages=count)
            if not found:
                await admin.group(group)  # Fails if no broker knows the group.
        output.show(map(_row, found), _COLUMNS, lines=True)

    run(work, verbose=verbose)


def _row(message: MessageExt) -> dict[str, Any]:
    return {
        "message_id": message.message_id,
        "topic": message.topic,
        "keys": message.keys or None,
        "tags": message.tags,
        "reconsume_times": message.reconsume_times,
        "store_time": message.store_time,
        "body_size": body_size(message),
        "body_error": body_problem(message),
    }
