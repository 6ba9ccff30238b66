"""The command `rocketrio dead-letters`."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

import click

from rocketrio.cli.call import Call, reads
from rocketrio.cli.columns import Column, hidden
from rocketrio.cli.commands import Group
from rocketrio.cli.dead_letters_tools import count, export, resend
from rocketrio.cli.message_output import body_problem, body_size
from rocketrio.cli.numbers import Whole
from rocketrio.cli.types import GROUP, TIME_HELP, Time
from rocketrio.limits import VIEW_MAX_MESSAGES

if TYPE_CHECKING:
    pass

_COLUMNS: Final = (
    "message_id",
    "topic",
    Column("keys", cell=lambda row: row["keys"] or "", value=lambda one: one.keys or None),
    Column("tags", cell=lambda row: row["tags"] or ""),
    "reconsume_times",
    "store_time",
    Column(
        "body_size",
        cell=lambda row: row["body_error"] or str(row["body_size"]),
        right=True,
        value=body_size,
    ),
    hidden("body_error", body_problem),
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
async def list_command(call: Call, group: str, since: datetime | None, count: int) -> None:
    """Show the dead letters of GROUP; none is removed.

    `reconsume_times` is how often the message was sent back, including the last time. With --json the output has one
    object per line, with the same names; `body_error` says why a body cannot be read, which is then of unknown size.

    \b
    Example:
      rocketrio dead-letters list billing --since 2026-11-21T08:00
    """
    async with call.asking(f"reading dead letters of {group}"):
        found = await call.admin.dead_letters(group).messages(since=since, max_messages=count)
        if not found:
            await call.admin.group(group)  # Fails if no broker knows the group.
    call.output.show(found, _COLUMNS, lines=True)
