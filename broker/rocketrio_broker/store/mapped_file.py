"""One file of the commit log: of full length from the start, written through a memory mapping.

Invariant: whenever a synced name for the file exists it has its configured length; Apache refuses shorter files.
Invariant: bytes below `reserved` have their disk blocks, so that storing there cannot find the disk full (SIGBUS).
Answers to: DefaultMappedFile.
Unlike Java: references are not counted; a view that was handed out keeps the mapping after the file is deleted.
"""

import mmap
from pathlib import Path
from typing import Final

from rocketrio_broker.store.disk import Disk
from rocketrio_broker.store.errors import StoreDamagedError

FILE_NAME_DIGITS: Final = 20

RESERVE_SIZE: Final = 16 << 20
"""Bytes of disk blocks allocated ahead at a time: a second of 16 MB/s, and little waste for small brokers."""


def file_name(start_offset: int) -> str:
    """Return the name of the file whose first byte has this address."""
    return f"{start_offset:0{FILE_NAME_DIGITS}d}"


def is_number(name: str) -> bool:
    """Return whether a name has only the digits 0 to 9; int() accepts the digits of other scripts too."""
    return name.isascii() and name.isdecimal()


class MappedFile:
    """A mapped file and its place in the address space."""

    __slots__ = (
        "_file",
        "end_offset",
        "mapping",
        "path",
        "reserved",
        "size",
        "start_offset",
        "view",
    )

    def __init__(
        self, disk: Disk, path: Path, size: int, start_offset: int, *, create: bool = False
    ) -> None:
        self.path = path
        self.size = size
        self.start_offset = start_offset
        self.end_offset = start_offset + size
        self.reserved = 0
        self._file = disk.open(path, create=create)
        try:
            if create:
                self._file.truncate(0)
                # The file is named later (`MappedFileQueue`): after a power cut no file of that name is shorter.
                self._file.truncate(size)
                self._file.fdatasync()
            elif self._file.size != size:
                raise StoreDamagedError(
                    f"{path} has {self._file.size} bytes instead of {size}",
                    remedy="Set mapped_file_size_commit_log as it was when the directory was written",
                )
            self.mapping: mmap.mmap = self._file.map()
        except BaseException:
            self._file.close()
            raise
        self.view = memoryview(self.mapping)

    def __repr__(self) -> str:
        return f"<MappedFile {self.path.name}>"

    def reserve(self, to: int) -> None:
        """Allocate the disk blocks up to this position in the file; blocks, and raises `OSError` on a full disk."""
        to = min(to, self.size)
        if to > self.reserved:
            # A store to the mapping where the disk has no block kills the process
            # (SIGBUS); here a full disk is an error.
            self._file.reserve(self.reserved, to - self.reserved)
            self.reserved = to

    def pread(self, position: int, size: int) -> bytes:
        """Read without the mapping, which would allocate a page of memory for each hole."""
        return self._file.pread(size, position)

    def flush(self) -> None:
        """Block until everything stored here is on the disk."""
        self._file.fdatasync()

    def clear_from(self, position: int) -> None:
        """Fill the file with zeros from `position` on, so that old bytes there are not taken for data later."""
        self._file.clear_from(position)

    def forget_pages(self, start: int, end: int) -> None:
        """Free the memory of the whole pages between two positions; the bytes stay in the page cache."""
        first = -(-max(start, 0) // mmap.PAGESIZE) * mmap.PAGESIZE
        self._file.forget_pages(first, min(end, self.size) // mmap.PAGESIZE * mmap.PAGESIZE)

    def close(self) -> None:
        """Close the file; views that are still in use stay valid."""
        self._file.close()
