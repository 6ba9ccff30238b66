"""The commands `rocketrio dead-letters ...`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, aclosing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

import click

from rocketrio.cli.call import Call, changes, reads, saves
from rocketrio.cli.columns import Column, hidden
from rocketrio.cli.commands import Group
from rocketrio.cli.json_values import json_text
from rocketrio.cli.message_output import body_problem, body_size, warn_of_unreadable
from rocketrio.cli.numbers import Rate, Whole
from rocketrio.cli.output import Output
from rocketrio.cli.progress import showing_progress
from rocketrio.cli.say import say
from rocketrio.cli.types import GROUP, TIME_HELP, Time
from rocketrio.counts import counted
from rocketrio.limits import VIEW_MAX_MESSAGES
from rocketrio_protocol.errors import ConfigError, Error
from rocketrio_protocol.names import DEAD_LETTER_PREFIX

if TYPE_CHECKING:
    from rocketrio.admin.admin import Admin
    from rocketrio.admin.dead_letters import DeadLetters, ResendTo, Resent
    from rocketrio.admin.resend_journal import Journal
    from rocketrio_protocol.message import MessageExt

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
_SINCE = click.option(
    "--since", type=Time(), help=f"Only those stored from this time on, {TIME_HELP}."
)
_WHERE = click.option(
    "--where", metavar="SQL92", help="Only those whose properties meet it, as \"TAGS = 'red'\"."
)


@click.group(
    "dead-letters",
    cls=Group,
    most_used=("count --all-groups", "list billing", "resend billing --all --dry-run"),
)
def dead_letters() -> None:
    """List the messages that a group could not handle, and send them again."""


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


# --------------------------------------------------------------------------------------------- count


@dead_letters.command()
@click.argument("groups", type=GROUP, nargs=-1, metavar="[GROUP]...")
@click.option("--all-groups", is_flag=True, help="All groups that have dead letters.")
@reads
async def count(call: Call, groups: tuple[str, ...], all_groups: bool) -> None:
    """Show how many dead letters groups have, since when, and how many came in the last hour.

    \b
    Examples:
      rocketrio dead-letters count billing
      rocketrio dead-letters count --all-groups --sort -last_hour
    """
    from rocketrio.admin.cluster_questions import in_parallel

    if bool(groups) == all_groups:
        raise click.UsageError("name groups, or give --all-groups")
    async with call.asking("counting dead letters"):
        names = groups or await _groups_with_dead_letters(call.admin)
        found = await in_parallel(names, lambda name: call.admin.dead_letters(name).counted())
        for one in found:
            if one.messages == 0 and not all_groups:
                await call.admin.group(one.group)  # Fails if no broker knows the group.
    call.output.show(
        found,
        (
            "group",
            "messages",
            Column("oldest", cell=lambda row: _time(row["oldest"], row["messages"], call.output)),
            Column("newest", cell=lambda row: _time(row["newest"], row["messages"], call.output)),
            "last_hour",
            hidden("problem"),
        ),
        people=None if found else "no group has dead letters",
    )
    call.silent.update({one.group: one.problem for one in found if one.problem is not None})


async def _groups_with_dead_letters(admin: Admin) -> list[str]:
    topics = await admin.topics(include_system=True)
    return [
        topic.removeprefix(DEAD_LETTER_PREFIX)
        for topic in topics
        if topic.startswith(DEAD_LETTER_PREFIX)
    ]


def _time(time: datetime | None, messages: int | None, output: Output) -> str:
    return "-" if time is None and messages == 0 else output.time(time)


# -------------------------------------------------------------------------------------------- export


@dead_letters.command()
@click.argument("group", type=GROUP)
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path), metavar="DIR")
@_SINCE
@_WHERE
@saves
async def export(
    call: Call, group: str, directory: Path, since: datetime | None, where: str | None
) -> None:
    """Write the dead letters of GROUP to files in DIR, which must be empty or new; none is removed.

    `messages.ndjson` has one object per line with all fields and properties, and names the file of the body:
    `bodies/000001.bin` and so on, byte for byte. A body that cannot be read is written as it is stored, and
    `body_error` says why.

    \b
    Example:
      rocketrio dead-letters export billing ./billing-dead --where "TAGS = 'red'"
    """
    from rocketrio.admin.dead_letters import chooses

    chosen = None if where is None else chooses(where)
    written = 0
    letters = call.admin.dead_letters(group)
    if not await letters.count():
        await call.admin.group(group)  # Fails if no broker knows the group.
    bodies = _prepared(directory)
    with (directory / "messages.ndjson").open("x", encoding="utf-8") as index:
        async with (
            showing_progress(f"dead letters of {group}", lambda: written),
            aclosing(letters.pages(since=since)) as pages,
        ):
            async for page in pages:
                for message in page:
                    if chosen is None or chosen(message):
                        written += 1
                        _write(message, bodies / f"{written:06}.bin", index)
    click.echo(f"wrote {counted(written, 'message')} to {directory}")


def _prepared(directory: Path) -> Path:
    """Create the folders, readable by their owner alone. Raises ConfigError if there is something already."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise ConfigError(f"{directory} is not empty", remedy="Name a new directory")
        bodies = directory / "bodies"
        bodies.mkdir(mode=0o700)
    except OSError as error:
        raise ConfigError(f"{directory} cannot be used: {error.strerror}") from error
    return bodies


def _write(message: MessageExt, path: Path, index: TextIO) -> None:

    problem = body_problem(message)
    path.write_bytes(message.body if problem is None else message.stored_body)
    index.write(
        json_text(
            {
                "message_id": message.message_id,
                "topic": message.topic,
                "keys": message.keys or None,
                "tags": message.tags,
                "reconsume_times": message.reconsume_times,
                "born_time": message.born_time,
                "store_time": message.store_time,
                "broker_name": message.broker_name,
                "queue_id": message.queue_id,
                "queue_offset": message.queue_offset,
                "properties": dict(message.properties),
                "body_size": body_size(message),
                "body_error": problem,
                "body_file": f"bodies/{path.name}",
            }
        )
        + "\n"
    )


# -------------------------------------------------------------------------------------------- resend


@dead_letters.command()
@click.argument("group", type=GROUP)
@click.argument("message_ids", nargs=-1, metavar="[MESSAGE_ID]...")
@click.option("--all", "is_all", is_flag=True, help="Resend all instead of some by id.")
@_SINCE
@_WHERE
@click.option(
    "--to", type=click.Choice(["group", "topic"]), default="group", show_default=True,
    help="Recipient: the group alone, or every group that reads the topic.",
)  # fmt: skip
@click.option("--rate", type=Rate(), help="The most messages a second, as 5/s, or 300/m.")
@click.option(
    "--state",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Remember in this file what was sent, and continue from it: nothing is sent twice.",
)
@changes
def resend(
    call: Call,
    group: str,
    message_ids: tuple[str, ...],
    is_all: bool,
    since: datetime | None,
    where: str | None,
    to: ResendTo,
    rate: float | None,
    state: Path | None,
) -> None:
    """Send dead letters of GROUP again; they stay among the dead letters too.

    With --state an interrupted run is continued by the same command. If it ended while a broker had not answered, it is
    unknown whether that one message was stored: it is not sent again, and is listed as doubtful. Send it by its id, if
    the group did not get it.

    \b
    Examples:
      rocketrio dead-letters resend billing 0A0000010007...
      rocketrio dead-letters resend billing --all --since 2026-11-21T08:00 --dry-run
      rocketrio dead-letters resend billing --all --rate 50/s --state billing.state
    """
    from rocketrio.admin.dead_letters import chooses
    from rocketrio.admin.resend_journal import open_journal

    if bool(message_ids) == is_all:
        raise click.UsageError("name message ids, or give --all")
    if message_ids and state is not None:
        raise click.UsageError("--state is for --all: ids say themselves what is sent")
    is_there = state is not None and state.exists()
    outcomes: Counter[str] = Counter()
    doubtful: list[str] = []
    unreadable: list[MessageExt] = []
    rows: list[dict[str, object]] = []

    def report(one: Resent) -> None:
        outcomes[one.outcome] += 1
        if one.outcome == "doubtful":
            doubtful.append(one.message.message_id)
        if one.outcome == "unreadable":
            unreadable.append(one.message)
        if call.dry_run or not call.output.for_people:
            rows.append(_resent_row(one))

    async def work() -> None:
        chosen = None if where is None else chooses(where)
        with ExitStack() as stack:
            journal: Journal | None = None
            if state is not None and (is_there or not call.dry_run):
                journal = stack.enter_context(open_journal(state))
            async with showing_progress(f"dead letters of {group}", outcomes.total):
                letters = call.admin.dead_letters(group)
                named = None
                if not is_all:
                    named = await _named(letters, message_ids, since)
                await letters.resend_all(
                    named, report=report, to=to, since=since, where=chosen,
                    rate=rate, journal=journal, dry_run=call.dry_run,
                )  # fmt: skip

    try:
        call.run(work)
    except BaseException:
        # After a failure, or Ctrl-C, what was done until then; nothing was known before.
        if outcomes:
            _summary(outcomes, doubtful, rows, call.output, dry_run=call.dry_run)
            warn_of_unreadable(unreadable)
        raise
    _summary(outcomes, doubtful, rows, call.output, dry_run=call.dry_run)
    warn_of_unreadable(unreadable)


def _resent_row(one: Resent) -> dict[str, object]:

    return {
        "message_id": one.message.message_id,
        "topic": one.message.topic,
        "store_time": one.message.store_time,
        "outcome": one.outcome,
        "body_error": body_problem(one.message),
    }


def _summary(
    outcomes: Counter[str],
    doubtful: Sequence[str],
    rows: list[dict[str, object]],
    output: Output,
    *,
    dry_run: bool,
) -> None:
    if not output.for_people:
        output.show(rows)
    elif dry_run:
        columns = ("message_id", "topic", "store_time", "outcome")
        output.show(rows, columns, people=None if rows else "no dead letter is meant")
    else:
        words = f"sent again: {outcomes['sent']}"
        if outcomes["sent before"]:
            words += f"; sent before, by the state file: {outcomes['sent before']}"
        if outcomes["unreadable"]:
            words += f"; not sent, as their bodies cannot be read: {outcomes['unreadable']}"
        click.echo(words)
    if doubtful:
        text = f"doubtful, not sent again: {', '.join(doubtful)}"
        say(f"{text}; the broker may have them from an interrupted run", err=True)


async def _named(
    letters: DeadLetters, message_ids: Sequence[str], since: datetime | None
) -> list[MessageExt]:
    found: dict[str, MessageExt] = {}
    async with aclosing(letters.pages(since=since)) as pages:
        async for page in pages:
            found |= {each.message_id: each for each in page if each.message_id in message_ids}
            if len(found) == len(set(message_ids)):
                break
    if missing := [message_id for message_id in message_ids if message_id not in found]:
        raise Error(f"no such dead letter: {', '.join(missing)}")
    return [found[message_id] for message_id in message_ids]
