"""Records the changes of a table since its file was last written whole, one per line, so that a change costs one line.

    topics.json.journal     8 hex digits, a space, one change as JSON

The digits are the CRC-32 of the change, which begins with the checksum of the file: a line is valid only after exactly
the content that it continues. A journal that remains after the file was written again is not valid any more.

Invariant: an appended line survives kill -9; after `sync` it survives a power cut.
Invariant: a damaged line loses only its own change.
Answers to: nothing; Apache's broker writes the whole file at each change, and so does a clean stop here.
"""

import logging
import zlib
from pathlib import Path
from typing import Final

from rocketrio_broker.store.disk import Disk, DiskFile

logger = logging.getLogger("rocketrio_broker.config_file")

_CHECKED: Final = 9
"""Characters before a change: its checksum and a space."""


class TableJournal:
    """The file; `base` is always the checksum of the content that its lines continue."""

    def __init__(self, path: Path, *, disk: Disk) -> None:
        self._path = path
        self._disk = disk
        self._file: DiskFile | None = None
        self._base: int | None = None
        """The checksum of the content that the open file continues."""
        self._size = 0
        self._synced: tuple[int | None, int] | None = None
        """The base and the size that the disk itself has; unknown after a start."""
        self.sync_failed = False
        """True if the disk may lack lines even if a later sync succeeds."""

    @property
    def exists(self) -> bool:
        """Whether the file exists, with any content."""
        return self._disk.exists(self._path)

    def size(self, base: int) -> int:
        """Return the size in bytes of the lines that this run wrote and that continue this content."""
        return self._size if base == self._base else 0

    def load(self, base: int) -> list[bytes]:
        """Return the changes that continue this content; damaged lines are skipped with a warning.

        An incomplete last line, which a kill leaves, was never acknowledged, and is skipped without a warning.
        """
        if not self.exists:
            return []
        file = self._disk.open(self._path)
        try:
            lines = file.pread(file.size, 0).split(b"\n")[:-1]
        finally:
            file.close()
        changes = [line[_CHECKED:] for line in lines if line == _line(line[_CHECKED:], base)]
        if len(changes) < len(lines):
            logger.warning(
                "journal lines skipped, damaged or of another content file=%s lines=%d of=%d",
                self._path, len(lines) - len(changes), len(lines),
            )  # fmt: skip
        return changes

    def append(self, change: bytes, base: int) -> None:
        """Append a change. Raises OSError, and then the lines are as before."""
        if self._file is None or base != self._base:
            self._begin(base)
        assert self._file is not None
        line = _line(change, base) + b"\n"
        # The size moves after the write: a line that was cut short by a full disk is overwritten by the next one.
        self._file.pwrite(line, self._size)
        self._size += len(line)

    def _begin(self, base: int) -> None:
        self.close()
        self._file = self._disk.open(self._path, create=True)
        self._file.truncate(0)
        self._base, self._size = base, 0

    def sync(self) -> None:
        """Block until the lines are on the disk; may run in a worker thread. Raises OSError."""
        state = self._base, self._size
        if state == self._synced:
            return
        try:
            self._sync(is_new=self._synced is None or state[0] != self._synced[0])
        except FileNotFoundError:
            pass  # No file, or it was removed: the table's file has it all.
        except OSError:
            self.sync_failed = True
            raise
        self._synced = state

    def _sync(self, *, is_new: bool) -> None:
        file = self._disk.open(self._path)
        try:
            file.fdatasync()
        finally:
            file.close()
        if is_new:
            self._disk.sync_directory(self._path.parent)

    def close(self) -> None:
        """Stop writing lines, because the file of the table has their changes."""
        if self._file is not None:
            self._file.close()
        self._file, self._base, self._size, self.sync_failed = None, None, 0, False

    def remove(self) -> None:
        """Remove the file, once that of the table is on the disk. Raises OSError."""
        self.close()
        self._disk.unlink(self._path)


def _line(change: bytes, base: int) -> bytes:
    # With the checksum of the content before it: after another write of the file these lines are not valid any more.
    return b"%08x " % zlib.crc32(change, base) + change
