"""The commands `rocketrio broker cut list|show|resend`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from rocketrio.cli.call import Call, changes, reads_files
from rocketrio.cli.columns import Column
from rocketrio.cli.commands import Group
from rocketrio.cli.message_output import body_problem, body_size
from rocketrio.cli.numbers import Whole
from rocketrio.cli.progress import showing_progress
from rocketrio.cli.say import warn
from rocketrio.cli.shell import fail
from rocketrio.counts import counted
from rocketrio_protocol.errors import ConfigError, Error

if TYPE_CHECKING:
    from rocketrio.admin.cut_log import CutDamage, CutFile, CutRecord

_DIRECTORY: Final = click.Path(path_type=Path)


@click.group(
    cls=Group,
    most_used=(
        "list /var/lib/rocketrio",
        "show /var/lib/rocketrio FILE",
        "resend /var/lib/rocketrio FILE --dry-run",
    ),
)
def cut() -> None:
    """Show what brokers cut off their logs, and send it again.

    A broker that follows a master again first saves the data that only it has in the folder `cut` of its data
    directory. Run these commands on its machine: DIRECTORY is that data directory. The broker may run meanwhile;
    nothing there is changed.

    \b
    Examples:
      rocketrio broker cut list /var/lib/rocketrio
      rocketrio broker cut show /var/lib/rocketrio 00000000000000012500-1795392000000.log
      rocketrio broker cut resend /var/lib/rocketrio 00000000000000012500-1795392000000.log --dry-run
    """


@cut.command("list")
@click.argument("directory", type=_DIRECTORY)
@reads_files
def list_command(call: Call, directory: Path) -> None:
    """List the saved ends of the log in DIRECTORY."""
    rows: list[dict[str, Any]] = []
    for file in _files(directory):
        records, damage = _read(file)
        topics = Counter(record.message.topic for record in records)
        rows.append(
            {
                "file": file.path.name,
                "physical_offset": file.physical_offset,
                "cut_at": file.cut_at,
                "size": file.size,
                "messages": len(records),
                "damaged": len(damage),
                "topics": dict(topics.most_common()),
            }
        )
    topics_column = Column(
        "topics",
        cell=lambda row: ", ".join(f"{name} {count}" for name, count in row["topics"].items()),
    )
    call.output.show(rows, ("file", "cut_at", "size", "messages", "damaged", topics_column))


@cut.command("show")
@click.argument("directory", type=_DIRECTORY)
@click.argument("file")
@reads_files
def show_command(call: Call, directory: Path, file: str) -> None:
    """Show the messages in FILE, a name that `list` shows; exit code 1 if part of it is damaged."""
    records, damage = _read(_file(directory, file))
    stored = Column(
        "store_time", cell=lambda row: call.output.time(row["store_time"], timespec="milliseconds")
    )
    keys = Column("keys", cell=lambda row: row["keys"] or "")
    columns = (
        *("physical_offset", "topic", "queue_id", "queue_offset"),
        *(keys, stored, "body_size"),
    )
    call.output.show(map(_record_row, records), columns, lines=True)
    _report_damage(damage)


@cut.command("resend")
@click.argument("directory", type=_DIRECTORY)
@click.argument("file")
@click.option(
    "--from", "first", type=Whole(0), default=0,
    help="Begin at this physical offset, where an earlier resend ended.",
)  # fmt: skip
@changes
async def resend_command(call: Call, directory: Path, file: str, first: int) -> None:
    """Send the messages in FILE again, one after the other, in the order of the log.

    Each keeps its id, keys, tags and properties, and gets `rocketrioCutFrom`: FILE and its address. Messages that
    brokers wrote for themselves (retries, delays, transactions) are skipped and counted. A message that is sent twice
    is stored twice: if this command ends early, it prints the --from with which to continue.
    """
    from rocketrio.admin.cut_log import message_again
    from rocketrio.producing.produce import open_producer

    cut_off = _file(directory, file)
    records, damage = _read(cut_off)
    chosen = [record for record in records if record.physical_offset >= first]
    ours = [record for record in chosen if not record.is_internal]
    wanted = [record for record in ours if record.message.body_error is None]
    passed_over = len(chosen) - len(ours)

    sent, problem = 0, None
    if not call.dry_run:
        async with (
            open_producer(client=call.admin.client) as producer,
            showing_progress(f"sending {file}", lambda: sent, total=len(wanted)),
        ):
            for record in wanted:
                try:
                    await producer.send(message_again(cut_off, record))
                except Error as error:
                    problem = f"the message at {record.physical_offset} was not sent again: {error}"
                    break
                sent += 1
    if problem is not None:
        left = wanted[sent].physical_offset
        fail(f"sent again: {sent}; {problem}. Go on with --from {left}")
    verb = f"would be sent: {len(wanted)}" if call.dry_run else f"sent again: {sent}"
    call.output.show(
        map(_record_row, wanted),
        lines=True,
        people=f"{verb}; passed over, as they are brokers' own: {passed_over}",
    )
    for record in ours:
        if record.message.body_error is not None:
            where = f"the message at {record.physical_offset} is not sent again"
            warn(f"{where}: {record.message.body_error}")
    _report_damage(damage)


def _files(directory: Path) -> list[CutFile]:
    from rocketrio.admin.cut_log import cut_files

    try:
        return cut_files(directory)
    except ConfigError as error:
        fail(str(error))


def _file(directory: Path, name: str) -> CutFile:
    from rocketrio.admin.cut_log import cut_file

    try:
        return cut_file(directory, name)
    except ConfigError as error:
        fail(str(error))


def _read(file: CutFile) -> tuple[list[CutRecord], list[CutDamage]]:
    from rocketrio.admin.cut_log import CutRecord, read_records

    records: list[CutRecord] = []
    damage: list[CutDamage] = []
    try:
        for found in read_records(file):
            if isinstance(found, CutRecord):
                records.append(found)
            else:
                damage.append(found)
    except OSError as error:
        fail(f"{file.path} cannot be read: {error.strerror}")
    return records, damage


def _report_damage(damage: list[CutDamage]) -> None:
    for one in damage:
        click.echo(
            f"damaged: {counted(one.size, 'byte')} at {one.physical_offset}: {one.problem}",
            err=True,
        )
    if damage:
        fail(
            f"{counted(sum(one.size for one in damage), 'byte')} in it can be no message; all others were read"
        )


def _record_row(record: CutRecord) -> dict[str, Any]:

    message = record.message
    return {
        "physical_offset": record.physical_offset,
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "message_id": message.message_id,
        "keys": message.keys or None,
        "tags": message.tags,
        "store_time": message.store_time,
        "properties": message.properties,
        "body_size": body_size(message),
        "body_error": body_problem(message),
        "internal": record.is_internal,
    }
