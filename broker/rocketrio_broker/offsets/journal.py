"""Records commits since the last snapshot of the offsets, one per line, so that kill -9 loses no acknowledged commit.

    config/rocketrioOffsets.0.log, .1.log    ["topic","group",queue,"generation",offset,lowered_from]
                                             ["topic","group",queue,"generation",offset,lowered_from,"epoch"]

A line names the epoch whose messages its offset counts, unless it is the one that the snapshot names.

Lines go to one of the two files. A snapshot switches to the other one, and the lines that it covers are cleared once it
is on the disk itself. Lines are joined, so reading one twice, or an old one, changes nothing.

Invariant: a line is in the page cache before its commit is answered.
Invariant: a damaged line loses only its own commit: lines are joined, so none needs the line before it.
Unlike Java: Apache's broker loses the commits of up to five seconds with its process.
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from rocketrio_broker.offsets.table import TopicAndGroup
from rocketrio_broker.offsets.version import Generation, Version
from rocketrio_broker.store.disk import Disk, DiskFile
from rocketrio_protocol.bodies.fastjson import Int32, Int64
from rocketrio_protocol.errors import RemoteProtocolError

logger = logging.getLogger("rocketrio_broker.offsets")


class JournalLine(msgspec.Struct, array_like=True):
    """One line as it is written; without an epoch it has six elements."""

    topic: str
    group: str
    queue_id: Int32
    generation: str
    offset: Int64
    lowered_from: Int64
    epoch: str = ""


Entry = tuple[TopicAndGroup, int, Version, str]
"""A commit, and the epoch whose messages it counts; empty if it is the snapshot's."""

_decode: Final = msgspec.json.Decoder(JournalLine).decode
_encode: Final = msgspec.json.Encoder().encode


class OffsetJournal:
    """The two files; written only between `open` and `close`."""

    def __init__(self, directory: Path, *, disk: Disk) -> None:
        self._paths = [directory / f"rocketrioOffsets.{number}.log" for number in range(2)]
        self._disk = disk
        self._files: list[DiskFile] = []
        self._sizes = [0, 0]
        self._current = 0
        self._is_failing = False

    def load(self) -> Iterator[Entry]:
        """Yield the whole undamaged lines of both files; an incomplete last line was never acknowledged."""
        for path in self._paths:
            if not self._disk.exists(path):
                continue
            file = self._disk.open(path)
            try:
                lines = file.pread(file.size, 0).split(b"\n")
            finally:
                file.close()
            damaged: list[Exception] = []
            for line in lines[:-1]:
                try:
                    one = _decode(line)
                    generation = Generation.parse(one.generation)
                except (msgspec.DecodeError, UnicodeDecodeError, RemoteProtocolError) as error:
                    damaged.append(error)
                else:
                    version = Version(one.offset, generation, one.lowered_from)
                    yield (one.topic, one.group), one.queue_id, version, one.epoch
            if damaged:
                logger.warning(
                    "offset journal damaged file=%s lines=%d of=%d first_error=%s",
                    path, len(damaged), len(lines) - 1, damaged[0],
                )  # fmt: skip

    def open(self) -> None:
        """Begin to write after the existing lines."""
        try:
            self._disk.make_directory(self._paths[0].parent)
            files = [self._disk.open(path, create=True) for path in self._paths]
        except OSError as error:
            logger.warning("no offset journal, kill -9 loses the last commits error=%s", error)
            return
        self._files = files
        self._sizes = [file.size for file in files]

    def append(self, key: TopicAndGroup, queue_id: int, version: Version, epoch: str = "") -> None:
        """Record one commit."""
        if not self._files:
            return
        line = (*key, queue_id, str(version.generation), version.offset, version.lowered_from)
        data = _encode((*line, epoch) if epoch else line) + b"\n"
        current = self._current
        try:
            # In the page cache before the commit is answered: kill -9 does not take it from there.
            self._files[current].pwrite(data, self._sizes[current])
        except OSError as error:
            # Answered nevertheless: it is in memory, and in the next snapshot if that can be written.
            if not self._is_failing:
                logger.warning("commits not in the offset journal error=%s", error)
            self._is_failing = True
        else:
            self._sizes[current] += len(data)
            self._is_failing = False

    def rotate(self) -> None:
        """Switch files because a snapshot is made now: later lines belong to the next snapshot."""
        other = 1 - self._current
        # Not to a file whose lines no synced snapshot covers yet: `clear_old` would clear the new ones with them.
        if self._files and not self._sizes[other]:
            self._current = other

    def clear_old(self) -> None:
        """Clear the lines that the last snapshot covers, because it is on the disk now."""
        other = 1 - self._current
        if self._files and self._sizes[other]:
            self._files[other].truncate(0)
            self._sizes[other] = 0

    def close(self, *, is_covered: bool) -> None:
        """Stop writing; clear the files if the last snapshot on the disk covers everything."""
        for number, file in enumerate(self._files):
            if is_covered and self._sizes[number]:
                file.truncate(0)
            file.close()
        self._files.clear()
