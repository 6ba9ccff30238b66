"""A disk in memory: for the embedded cluster, and the base of the tests' faulty disk.

Files exist as long as the `MemoryDisk` object, longer than the store that wrote them, so a restart can be simulated.
A mapped file is one anonymous mapping, of which only used pages take memory; other files are byte arrays.

Invariant: `run` works at once, without worker threads, so a virtual clock stays right.
"""

import errno
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import trio

from rocketrio_broker.store.disk import Arguments, Buffer, DiskFile, Lock, Result

_CAPACITY: Final = 1 << 40  # only for computing ratios; memory is full long before
_UNUSED: Final = bytes(64 << 10)
_PHYSICAL_MEMORY: Final = 16 << 30  # fixed, so that results are the same on every machine


def _used(mapping: mmap.mmap, size: int) -> int:
    """Return the size without the zeros at the end, in whole pieces: nearly all of a new file, and costly to copy."""
    for start in reversed(range(0, size, len(_UNUSED))):
        piece = mapping[start : min(start + len(_UNUSED), size)]
        if not _UNUSED.startswith(piece):
            return start + len(piece)
    return 0


class MemoryFile:
    """The content of one file; all open files with its path share this object."""

    __slots__ = ("data", "mapping", "size")

    def __init__(self) -> None:
        self.data = bytearray()
        """The content while there is no mapping, perhaps without zeros at its end."""
        self.mapping: mmap.mmap | None = None
        self.size = 0

    def pread(self, size: int, offset: int) -> bytes:
        end = min(offset + size, self.size)
        if end <= offset:
            return b""
        source = self.data if self.mapping is None else self.mapping
        return bytes(source[offset:end]).ljust(end - offset, b"\0")

    def pwrite(self, data: Buffer, offset: int) -> None:
        end = offset + len(data)
        if self.mapping is not None and end <= len(self.mapping):
            self.mapping[offset:end] = data
        else:
            self.unmap()
            if len(self.data) < offset:
                self.data.extend(bytes(offset - len(self.data)))
            self.data[offset:end] = data
        self.size = max(self.size, end)

    def truncate(self, size: int) -> None:
        if self.mapping is not None:
            if size < self.size:
                self.mapping[size : self.size] = bytes(self.size - size)
            elif size > len(self.mapping):
                self.unmap()
        del self.data[size:]
        self.size = size

    def clear_from(self, offset: int) -> None:
        if self.mapping is not None:
            used = max(offset, _used(self.mapping, self.size))
            self.mapping[offset:used] = bytes(used - offset)
        del self.data[offset:]

    def map(self) -> mmap.mmap:
        if self.mapping is None or len(self.mapping) != self.size:
            self.unmap()
            self.mapping = mmap.mmap(-1, self.size, flags=mmap.MAP_PRIVATE)
            self.mapping[: len(self.data)] = bytes(self.data)
            self.data = bytearray()
        return self.mapping

    def unmap(self) -> None:
        """Take the content out of the mapping, if there is one: what is written there later is lost."""
        if self.mapping is not None:
            used = _used(self.mapping, self.size)
            self.data, self.mapping = bytearray(self.mapping[:used]), None


class MemoryOpenFile:
    """One open file, whose content is a `MemoryFile`."""

    __slots__ = ("_disk", "file")

    def __init__(self, file: MemoryFile, disk: "MemoryDisk") -> None:
        self.file = file
        self._disk = disk

    @property
    def size(self) -> int:
        return self.file.size

    def pread(self, size: int, offset: int) -> bytes:
        return self.file.pread(size, offset)

    def pwrite(self, data: Buffer, offset: int) -> None:
        self._disk.check_space()
        self.file.pwrite(data, offset)

    def truncate(self, size: int) -> None:
        self.file.truncate(size)

    def clear_from(self, offset: int) -> None:
        self.file.clear_from(offset)

    def reserve(self, offset: int, size: int) -> None:
        self._disk.check_space()
        if offset + size > self.file.size:
            self.file.truncate(offset + size)

    def fdatasync(self) -> None:
        """Do nothing: memory is as durable as this disk gets."""

    def map(self) -> mmap.mmap:
        return self.file.map()

    def forget_pages(self, start: int, end: int) -> None:
        """Do nothing: the pages are the only copy."""

    def close(self) -> None:
        """Do nothing: nothing was opened."""


class _MemoryLock:
    """A held lock of a `MemoryDisk`."""

    def __init__(self, held: set[Path], path: Path) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        self._held.discard(self._path)


class MemoryDisk:
    """Files and folders by path, in memory."""

    def __init__(self) -> None:
        self.files: dict[Path, MemoryFile] = {}
        self.directories: set[Path] = set()
        self.used = 0.0
        """The result of `used_ratio`; tests of a nearly full disk set it."""
        self.boot = "1"
        """The result of `boot_id`; tests change it after a power cut."""
        self.is_full = False
        """While this is True no file can be created, written or grown; mapped files take what they have reserved."""
        self._locked: set[Path] = set()

    def __repr__(self) -> str:
        return f"<MemoryDisk of {len(self.files)} files>"

    def check_space(self) -> None:
        """Raise OSError if the disk is full."""
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def run(self, work: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        # As with a worker thread, a cancel comes before the work or not at all, so its result is never lost.
        await trio.lowlevel.checkpoint()
        return work(*arguments)

    def open(self, path: Path, *, create: bool = False) -> DiskFile:
        file = self.files.get(path)
        if file is None:
            if not create:
                raise FileNotFoundError(path)
            if path.parent not in self.directories:
                raise FileNotFoundError(path.parent)
            self.check_space()
            file = self.files[path] = MemoryFile()
        return MemoryOpenFile(file, self)

    def exists(self, path: Path) -> bool:
        return path in self.files or path in self.directories

    def list_directory(self, path: Path) -> list[str]:
        names = {entry.name for entry in self.files if entry.parent == path}
        return sorted(names | {entry.name for entry in self.directories if entry.parent == path})

    def links_in(self, path: Path) -> list[str]:
        return []

    def is_open_to_others(self, path: Path) -> bool:
        return False

    def is_directory(self, path: Path) -> bool:
        return path in self.directories

    def make_directory(self, path: Path) -> None:
        self.directories.update((path, *path.parents))

    def sync_directory(self, path: Path) -> None:
        """Do nothing: names in memory need no syncing."""

    def sync_tree(self, path: Path) -> None:
        """Do nothing: files in memory need no syncing."""

    def unlink(self, path: Path) -> None:
        self.files.pop(path, None)

    def remove_directory(self, path: Path) -> None:
        if not self.list_directory(path):
            self.directories.discard(path)

    def rename(self, old: Path, new: Path) -> None:
        self.files[new] = self.files.pop(old)

    def used_ratio(self, path: Path) -> float:
        return self.used

    def capacity(self, path: Path) -> tuple[int, int]:
        return _CAPACITY, int(_CAPACITY * (1 - self.used))

    def physical_memory(self) -> int:
        return _PHYSICAL_MEMORY

    def boot_id(self) -> str:
        return self.boot

    def lock(self, path: Path) -> Lock:
        if path in self._locked:
            raise BlockingIOError(f"{path} is locked")
        self.open(path, create=True).pwrite(b"lock", 0)
        self._locked.add(path)
        return _MemoryLock(self._locked, path)
