"""The command `rocketrio dead-letters`."""

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Final

import click

from rocketrio.admin.admin import open_admin
from rocketrio.admin.dead_letters import VIEW_MAX_MESSAGES, ResendTo
from rocketrio.cli.common import (
    GROUP,
    TIME_HELP,
    Time,
    json_option,
    local_text,
    namesrv_option,
    print_json,
    print_table,
    run,
    utc_text,
)
from rocketrio_protocol.errors import Error
from rocketrio_protocol.message import MessageExt

COLUMNS: Final = (
    "message_id",
    "topic",
    "keys",
    "tags",
    "reconsume_times",
    "store_time",
    "body_size",
)


@click.group("dead-letters")
def dead_letters() -> None:
    """List the messages that a group could not handle, and send them again."""


@dead_letters.command("list")
@click.argument("group", type=GROUP, metavar="GROUP")
@click.option("--since", type=Time(), help=f"Only those stored from this time on, {TIME_HELP}.")
@click.option(
    "--count", type=click.IntRange(1), default=VIEW_MAX_MESSAGES, show_default=True,
    help="Maximum number, oldest first.",
)  # fmt: skip
@json_option
@namesrv_option
def list_command(
    group: str,
    since: datetime | None,
    count: int,
    as_json: bool,
    namesrv: tuple[str, ...],
    verbose: int,
) -> None:
    """Show the dead letters of GROUP; none is removed.

    `reconsume_times` is how often the message was sent back, including the last time. With --json the output has one
    object per line, with the same names.

    \b
    Example:
      rocketrio dead-letters list billing --since 2026-11-21T08:00
    """

    async def work() -> None:
        async with open_admin(name_servers=namesrv) as admin:
            found = await admin.dead_letters(group).messages(since=since, max_messages=count)
            if not found:
                await admin.group(group)  # Fails if no broker knows the group.
        if not as_json:
            print_table(COLUMNS, map(_row, found))
            return
        for message in found:
            print_json(
                {
                    "message_id": message.message_id,
                    "topic": message.topic,
                    "keys": message.keys or None,
                    "tags": message.tags,
                    "reconsume_times": message.reconsume_times,
                    "store_time": utc_text(message.store_time),
                    "body_size": len(message.body),
                }
            )

    run(work, verbose=verbose)


@dead_letters.command("resend")
@click.argument("group", type=GROUP, metavar="GROUP")
@click.argument("message_ids", nargs=-1, metavar="[MESSAGE_ID]...")
@click.option("--all", "is_all", is_flag=True, help="Resend all instead of some by id.")
@click.option(
    "--since", type=Time(), help=f"Only among those stored from this time on, {TIME_HELP}."
)
@click.option(
    "--to", type=click.Choice(["group", "topic"]), default="group", show_default=True,
    help="Recipient: the group alone, or every group that reads the topic.",
)  # fmt: skip
@namesrv_option
def resend_command(
    group: str,
    message_ids: tuple[str, ...],
    is_all: bool,
    since: datetime | None,
    to: ResendTo,
    namesrv: tuple[str, ...],
    verbose: int,
) -> None:
    """Send dead letters of GROUP again; they stay among the dead letters too.

    \b
    Examples:
      rocketrio dead-letters resend billing 0A0000010007...
      rocketrio dead-letters resend billing --all --since 2026-11-21T08:00
    """
    if bool(message_ids) == is_all:
        raise click.UsageError("name message ids, or give --all")

    async def work() -> None:
        async with open_admin(name_servers=namesrv) as admin:
            letters = admin.dead_letters(group)
            sent = 0
            async with aclosing(letters.pages(since=since)) as pages:
                if not is_all:
                    sent = len(await letters.resend(await _chosen(pages, message_ids), to=to))
                else:
                    async for page in pages:
                        sent += len(await letters.resend(page, to=to))
        click.echo(f"sent again: {sent}")

    run(work, verbose=verbose)


async def _chosen(
    pages: AsyncIterator[list[MessageExt]], message_ids: Sequence[str]
) -> list[MessageExt]:
    found: dict[str, MessageExt] = {}
    async for page in pages:
        found |= {each.message_id: each for each in page if each.message_id in message_ids}
        if len(found) == len(set(message_ids)):
            break
    if missing := [message_id for message_id in message_ids if message_id not in found]:
        raise Error(f"no such dead letter: {', '.join(missing)}")
    return [found[message_id] for message_id in message_ids]


def _row(message: MessageExt) -> tuple[object, ...]:
    return (
        message.message_id,
        message.topic,
        message.keys,
        message.tags or "",
        message.reconsume_times,
        local_text(message.store_time),
        len(message.body),
    )
