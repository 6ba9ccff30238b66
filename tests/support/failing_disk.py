"""A disk that fails at one kind of step, which a test names; `MemoryDisk.is_full` is one without any room."""

import errno
import os
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path

from rocketrio_broker.store.disk import Buffer, DiskFile
from rocketrio_broker.testing.memory_disk import MemoryDisk, MemoryFile, MemoryOpenFile


class FailingDisk(MemoryDisk):
    """Fails at the step `fails_at` (the name of a method, or "create"), for paths that match `where`."""

    def __init__(self, fails_at: str = "", where: str = "*", error: int = errno.ENOSPC) -> None:
        super().__init__()
        self.fails_at, self.where, self.error = fails_at, where, error
        self.steps = Counter[tuple[str, Path]]()
        """How often each step was tried at each path."""
        self.open_count = 0
        """Files that are open now."""

    def may(self, step: str, path: Path) -> None:
        """Raise OSError if this step fails."""
        self.steps[step, path] += 1
        if step == self.fails_at and fnmatch(str(path), self.where):
            raise OSError(self.error, os.strerror(self.error))

    def open(self, path: Path, *, create: bool = False) -> DiskFile:
        if create:
            self.may("create", path)
        super().open(path, create=create)
        return FailingFile(self.files[path], self, path)

    def rename(self, old: Path, new: Path) -> None:
        self.may("rename", new)
        super().rename(old, new)

    def make_directory(self, path: Path) -> None:
        self.may("make_directory", path)
        super().make_directory(path)

    def sync_directory(self, path: Path) -> None:
        self.may("sync_directory", path)
        super().sync_directory(path)


class FailingFile(MemoryOpenFile):
    """One opening of a file."""

    __slots__ = ("_failing", "_path", "is_open")

    def __init__(self, file: MemoryFile, disk: FailingDisk, path: Path) -> None:
        super().__init__(file, disk)
        self._failing, self._path = disk, path
        disk.open_count += 1
        self.is_open = True

    def pwrite(self, data: Buffer, offset: int) -> None:
        self._failing.may("pwrite", self._path)
        super().pwrite(data, offset)

    def truncate(self, size: int) -> None:
        if size:
            self._failing.may("truncate", self._path)
        super().truncate(size)

    def reserve(self, offset: int, size: int) -> None:
        super().pwrite(
            bytes(1), offset
        )  # As posix_fallocate on a full disk: what there is, is taken.
        self._failing.may("reserve", self._path)
        super().reserve(offset, size)

    def fdatasync(self) -> None:
        self._failing.may("fdatasync", self._path)

    def close(self) -> None:
        self._failing.open_count -= self.is_open
        self.is_open = False
