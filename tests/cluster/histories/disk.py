"""A broker's disk in a fault schedule: it may lose power, be slow, or be full."""

import errno
import math
from collections.abc import Callable
from pathlib import Path

import trio
from tests.support.faulty_disk import FaultyDisk, FaultyFile, FaultyOpenFile

from rocketrio_broker.store.disk import Arguments, Buffer, DiskFile, Result

_FULL_RATIO = 0.96
"""Used share of a full disk: above the level from which a broker takes no messages (0.9)."""


class ScheduledDisk(FaultyDisk):
    """A disk whose faults are switched while a broker runs on it."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        """What one blocking call takes, fdatasync above all."""
        self.is_full = False
        self.trouble_at = -math.inf
        """When it last refused to write, or took its time."""

    def fill(self, is_full: bool) -> None:
        """From now on no file grows, or they may again."""
        self.is_full = is_full
        self.used = _FULL_RATIO if is_full else 0.0

    def tear(self, log: Path, file_size: int, end: int, size: int) -> None:
        """Zeros over the last bytes of a log that ends at `end`, as far as they are in its last file."""
        start = (end - 1) // file_size * file_size
        begin = max(start, end - size)
        self.files[log / f"{start:020d}"].pwrite(bytes(end - begin), begin - start)

    def lose(self, lost: Path) -> None:
        """Remove a file, with what belongs to it by its name, or a folder with all that is in it, for good."""
        for path in [path for path in self.files if _belongs_to(path, lost)]:
            self.unlink(path)
            self.sync_directory(path.parent)
        self.directories = {path for path in self.directories if lost not in (path, *path.parents)}

    async def run(self, work: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        if self.seconds:
            self.trouble_at = trio.current_time() + self.seconds
            await trio.sleep(self.seconds)
        return await super().run(work, *arguments)

    def open(self, path: Path, *, create: bool = False) -> DiskFile:
        opened = super().open(path, create=create)
        assert isinstance(opened, FaultyOpenFile)
        assert isinstance(opened.file, FaultyFile)
        return _ScheduledFile(self, opened.file)

    def check_room(self, size: int, wanted: int) -> None:
        """Raise what the system raises when a file of `size` bytes cannot have the `wanted` ones."""
        if self.is_full and wanted > size:
            self.trouble_at = trio.current_time()
            raise OSError(errno.ENOSPC, "No space left on device")


def _belongs_to(path: Path, lost: Path) -> bool:
    return lost in path.parents or (path.parent == lost.parent and path.name.startswith(lost.name))


class _ScheduledFile(FaultyOpenFile):
    """A file that cannot grow while its disk is full."""

    __slots__ = ("_room",)

    def __init__(self, disk: ScheduledDisk, file: FaultyFile) -> None:
        super().__init__(disk, file)
        self._room = disk.check_room

    def pwrite(self, data: Buffer, offset: int) -> None:
        self._room(self.size, offset + len(data))
        super().pwrite(data, offset)

    def reserve(self, offset: int, size: int) -> None:
        self._room(self.size, offset + size)
        super().reserve(offset, size)
