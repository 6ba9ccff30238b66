"""The commands `rocketrio broker cut list|show|resend`."""

from collections import Counter
from pathlib import Path
from typing import Any, Final

import click

from rocketrio.admin.cut_log import (
    CutDamage,
    CutFile,
    CutRecord,
    cut_file,
    cut_files,
    message_again,
    read_records,
)
from rocketrio.cli.common import (
    fail,
    json_option,
    local_text,
    namesrv_option,
    print_json,
    print_table,
    run,
    utc_text,
)
from rocketrio.producing.produce import open_producer
from rocketrio_protocol.errors import ConfigError, Error

_DIRECTORY: Final = click.Path(path_type=Path)
_SHOWN: Final = (
    "physical_offset",
    "topic",
    "queue_id",
    "queue_offset",
    "keys",
    "store_time",
    "body_size",
)


@click.group()
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
@json_option
def list_command(directory: Path, as_json: bool) -> None:
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
    if as_json:
        print_json([{**row, "cut_at": utc_text(row["cut_at"])} for row in rows])
        return
    print_table(
        ("file", "cut_at", "size", "messages", "damaged", "topics"),
        (
            (
                row["file"],
                local_text(row["cut_at"]),
                row["size"],
                row["messages"],
                row["damaged"],
                ", ".join(f"{name} {count}" for name, count in _topics(row)),
            )
            for row in rows
        ),
    )


@cut.command("show")
@click.argument("directory", type=_DIRECTORY)
@click.argument("file")
@json_option
def show_command(directory: Path, file: str, as_json: bool) -> None:
    """Show the messages in FILE, a name that `list` shows; exit code 1 if part of it is damaged."""
    records, damage = _read(_file(directory, file))
    if as_json:
        for record in records:
            print_json(_record_json(record))
    else:
        print_table(_SHOWN, map(_row, records))
    _tell_damage(damage)


@cut.command("resend")
@click.argument("directory", type=_DIRECTORY)
@click.argument("file")
@click.option(
    "--from", "first", type=click.IntRange(0), default=0,
    help="Begin at this physical offset, where an earlier resend ended.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only say what would be sent.")
@namesrv_option
def resend_command(
    directory: Path,
    file: str,
    first: int,
    dry_run: bool,
    namesrv: tuple[str, ...],
    verbose: int,
) -> None:
    """Send the messages in FILE again, one after the other, in the order of the log.

    Each keeps its id, keys, tags and properties, and gets `rocketrioCutFrom`: FILE and its address. Messages that
    brokers wrote for themselves (retries, delays, transactions) are skipped and counted. A message that is sent twice
    is stored twice: if this command ends early, it prints the --from with which to continue.
    """
    cut_off = _file(directory, file)
    records, damage = _read(cut_off)
    chosen = [record for record in records if record.physical_offset >= first]
    wanted = [record for record in chosen if not record.is_internal]
    passed_over = len(chosen) - len(wanted)

    async def work() -> None:
        sent, problem = 0, None
        if not dry_run:
            async with open_producer(name_servers=namesrv) as producer:
                for record in wanted:
                    try:
                        await producer.send(message_again(cut_off, record))
                    except Error as error:
                        problem = (
                            f"the message at {record.physical_offset} was not sent again: {error}"
                        )
                        break
                    sent += 1
        if problem is not None:
            left = wanted[sent].physical_offset
            fail(f"sent again: {sent}; {problem}. Go on with --from {left}")
        verb = f"would be sent: {len(wanted)}" if dry_run else f"sent again: {sent}"
        click.echo(f"{verb}; passed over, as they are brokers' own: {passed_over}")
        _tell_damage(damage)

    run(work, verbose=verbose)


def _files(directory: Path) -> list[CutFile]:
    try:
        return cut_files(directory)
    except ConfigError as error:
        fail(str(error))


def _file(directory: Path, name: str) -> CutFile:
    try:
        return cut_file(directory, name)
    except ConfigError as error:
        fail(str(error))


def _read(file: CutFile) -> tuple[list[CutRecord], list[CutDamage]]:
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


def _tell_damage(damage: list[CutDamage]) -> None:
    for one in damage:
        click.echo(f"damaged: {one.size} bytes at {one.physical_offset}: {one.problem}", err=True)
    if damage:
        fail(f"{sum(one.size for one in damage)} bytes are no messages; all others were read")


def _topics(row: dict[str, Any]) -> list[tuple[str, int]]:
    return list(row["topics"].items())


def _row(record: CutRecord) -> tuple[object, ...]:
    message = record.message
    return (
        record.physical_offset,
        message.topic,
        message.queue_id,
        message.queue_offset,
        message.keys,
        local_text(message.store_time, timespec="milliseconds"),
        len(message.body),
    )


def _record_json(record: CutRecord) -> dict[str, Any]:
    message = record.message
    return {
        "physical_offset": record.physical_offset,
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "message_id": message.message_id,
        "keys": message.keys or None,
        "tags": message.tags,
        "store_time": utc_text(message.store_time),
        "properties": message.properties,
        "body_size": len(message.body),
        "internal": record.is_internal,
    }
