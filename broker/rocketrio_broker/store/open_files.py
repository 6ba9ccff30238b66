"""The few files that stay open for reading and writing by position; consume queues share them.

Invariant: at most `limit` descriptors, however many queues there are.
Unlike Java: files are not mapped; a mapping and descriptor per queue file cost 4 KiB of tables and 2 ms at first use.
"""

from collections import OrderedDict
from pathlib import Path
from typing import Final

from rocketrio_broker.store.disk import Disk, DiskFile
from rocketrio_broker.store.errors import StoreDamagedError

OPEN_FILES_LIMIT: Final = 256
"""A quarter of the usual soft limit of 1,024 descriptors; the rest is for connections."""


class OpenFiles:
    """Open files by path; the least recently used one is closed first."""

    def __init__(self, disk: Disk, limit: int = OPEN_FILES_LIMIT) -> None:
        self.disk = disk
        self._limit = limit
        self._files: OrderedDict[Path, DiskFile] = OrderedDict()

    def __len__(self) -> int:
        return len(self._files)

    def existing(self, path: Path) -> DiskFile | None:
        """Return the file, or None if it does not exist."""
        file = self._files.get(path)
        if file is not None:
            self._files.move_to_end(path)
            return file
        try:
            return self._keep(path, self.disk.open(path))
        except FileNotFoundError:
            return None

    def make(self, path: Path, size: int) -> DiskFile:
        """Make a new file of this length."""
        self.disk.make_directory(path.parent)
        file = self._keep(path, self.disk.open(path, create=True))
        file.truncate(size)
        return file

    def extend(self, path: Path, size: int) -> None:
        """Extend a file that a crash left too short to its full length; raise StoreDamagedError if it is too long."""
        file = self.existing(path)
        if file is None:
            return
        if file.size > size:
            raise StoreDamagedError(
                f"{path} has {file.size} bytes instead of {size}",
                remedy="Set mapped_file_size_consume_queue as it was when the directory was written",
            )
        if file.size < size:
            file.truncate(size)

    def unlink(self, path: Path) -> None:
        self.forget(path)
        self.disk.unlink(path)

    def forget(self, path: Path) -> None:
        file = self._files.pop(path, None)
        if file is not None:
            file.close()

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _keep(self, path: Path, file: DiskFile) -> DiskFile:
        # Queues ask for their file at each use, so any of them may be closed.
        while len(self._files) >= self._limit:
            self._files.popitem(last=False)[1].close()
        self._files[path] = file
        return file
