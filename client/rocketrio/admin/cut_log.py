"""Reads ends of logs that brokers cut off and kept, in the folder `cut` of a data directory.

    cut/<address, 20 digits>-<time in ms>.log     raw bytes of the log from that address on

Invariant: everything readable is found, whatever is damaged; damaged records are skipped one by one, and reported.
Invariant: nothing here changes a file.
Answers to: nothing; Apache's brokers do not keep what they truncate.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

import attrs

from rocketrio.admin.dead_letters import OF_THE_LAST_TIME
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.message import Message, MessageAgain, MessageExt
from rocketrio_protocol.names import (
    is_system_topic,
)
from rocketrio_protocol.record.decode import RecordStatus, possible_records, scan_record
from rocketrio_protocol.times import nearest_time

CUT_FOLDER: Final = "cut"
PROPERTY_CUT_FROM: Final = "rocketrioCutFrom"
"""A property of a message that was sent again: the file that it was read from, and its address in the former log."""

_NAME: Final = re.compile(r"([0-9]{20})-([0-9]{1,14})\.log")


@attrs.frozen
class CutFile:
    """One end of a log that was cut off and kept."""

    path: Path
    physical_offset: int
    """The address of its first byte in the log."""
    cut_at: datetime

    @property
    def size(self) -> int:
        return self.path.stat().st_size


@attrs.frozen
class CutRecord:
    """One readable record."""

    physical_offset: int
    message: MessageExt

    @property
    def is_internal(self) -> bool:
        """Whether brokers wrote it for themselves or for a group's retries; such a record is not sent again."""
        return is_system_topic(self.message.topic)


@attrs.frozen
class CutDamage:
    """Bytes that are not a record."""

    physical_offset: int
    size: int
    problem: str


def cut_files(directory: Path) -> list[CutFile]:
    """Return the files in a data directory, oldest first. Raises ConfigError if it is not a data directory."""
    folder = directory / CUT_FOLDER
    if not (directory / "commitlog").is_dir() and not folder.is_dir():
        raise ConfigError(f"{directory} has no commitlog: name a broker's data directory")
    found = [
        _cut_file(path, match)
        for path in (folder.iterdir() if folder.is_dir() else ())
        if (match := _NAME.fullmatch(path.name))
    ]
    return sorted(found, key=lambda file: (file.cut_at, file.physical_offset))


def cut_file(directory: Path, name: str) -> CutFile:
    """Return the file of that name. Raises ConfigError that lists the existing files."""
    files = cut_files(directory)
    for file in files:
        if file.path.name == name:
            return file
    names = ", ".join(file.path.name for file in files) or "none"
    raise ConfigError(f"{directory / CUT_FOLDER} has no file {name}; there are: {names}")


def _cut_file(path: Path, match: re.Match[str]) -> CutFile:
    return CutFile(path, int(match[1]), nearest_time(int(match[2])))


def read_records(file: CutFile) -> Iterator[CutRecord | CutDamage]:
    """Yield all records in order, and the damaged stretches between them. Raises OSError."""
    data = file.path.read_bytes()
    at, end = 0, len(data)
    while at < end:
        found = scan_record(data, at, end)
        if (
            found.status is RecordStatus.RECORD
            and found.physical_offset == file.physical_offset + at
        ):
            yield CutRecord(file.physical_offset + at, MessageExt(data, at, found.size))
            at += found.size
        elif found.status is RecordStatus.PADDING:
            at += found.size
        else:
            after = _next_record(data, at + 1, file.physical_offset)
            if data[at:after].strip(b"\0"):
                problem = found.problem or "it is not whole, or of another place of the log"
                yield CutDamage(file.physical_offset + at, after - at, problem)
            at = after


def _next_record(data: bytes, at: int, start: int) -> int:
    """Return where the next whole record with the right address begins, or the end of the file."""
    for place in possible_records(data, at, len(data)):
        found = scan_record(data, place, len(data))
        if found.status is RecordStatus.RECORD and found.physical_offset == start + place:
            return place
    return len(data)


def message_again(file: CutFile, record: CutRecord) -> Message:
    """Return the message to send again: with its properties, and one more that names its file and address."""
    message = record.message
    properties = {
        name: value for name, value in message.properties.items() if name not in OF_THE_LAST_TIME
    }
    properties[PROPERTY_CUT_FROM] = f"{file.path.name}@{record.physical_offset}"
    return MessageAgain(
        message.topic,
        message.body,
        keys=message.keys,
        tags=message.tags,
        properties=properties,
        flag=message.flag,
    )
