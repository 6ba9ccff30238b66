"""The commit log's files in order of address: finds the file for an address, adds files at the end and deletes files.

Invariant: a file gets its name after its length is on the disk, so that it is never found shorter.
Invariant: a file that could not be made or named leaves nothing behind; the next attempt starts from the beginning.
Invariant: files follow each other without a gap; all have the same size; a name is the address of the first byte.
Answers to: MappedFileQueue, and the file part of AllocateMappedFileService.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from rocketrio_broker.store.disk import Disk
from rocketrio_broker.store.errors import StoreDamagedError
from rocketrio_broker.store.mapped_file import FILE_NAME_DIGITS, MappedFile, file_name, is_number


class MappedFileQueue:
    """The files of one folder as one address space."""

    def __init__(self, disk: Disk, directory: Path, file_size: int) -> None:
        self.directory = directory
        self.file_size = file_size
        self.files: list[MappedFile] = []
        self.has_unsynced_names = False
        # Beside the folder, because Apache expects only whole files in it. Two names, as one is used in a thread.
        self._ahead_path = directory.with_name(directory.name + ".ahead")
        self._making_path = directory.with_name(directory.name + ".making")
        self._disk = disk
        self._prepared: MappedFile | None = None

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return len(self.files) * self.file_size

    def __repr__(self) -> str:
        return f"<MappedFileQueue {self.directory} of {len(self.files)} files>"

    def load(self, synced_position: int | None = None) -> None:
        """Open the existing files.

        After a crash, data and file names at or above `synced_position` may be lost in any order, so the files after
        a missing one are deleted. Raises StoreDamagedError if a file below it is missing.
        """
        for left_over in (self._ahead_path, self._making_path):
            self._disk.unlink(left_over)
        names = [
            name
            for name in self._disk.list_directory(self.directory)
            if len(name) == FILE_NAME_DIGITS and is_number(name)
        ]
        for name in names:
            start = int(name)
            if self.files:
                expected = self.files[-1].end_offset
            else:
                expected = start if synced_position is None else min(start, synced_position)
            if start == expected:
                path = self.directory / name
                self.files.append(MappedFile(self._disk, path, self.file_size, start))
            elif synced_position is not None and expected >= synced_position:
                self._disk.unlink(self.directory / name)
            else:
                raise StoreDamagedError(
                    f"{self.directory} lacks a file: {name} does not follow {expected}"
                )

    @property
    def first_offset(self) -> int:
        """The lowest address in any file; 0 without files."""
        return self.files[0].start_offset if self.files else 0

    @property
    def end_offset(self) -> int:
        """The address after the last file."""
        return self.files[-1].end_offset if self.files else 0

    def file_at(self, offset: int) -> MappedFile | None:
        """Return the file that holds this address, or None if there is none."""
        files = self.files
        if not files:
            return None
        index = (offset - files[0].start_offset) // self.file_size
        return files[index] if 0 <= index < len(files) else None

    def files_between(self, start: int, end: int) -> list[MappedFile]:
        """Return the files that hold bytes of this range."""
        return [file for file in self.files if file.start_offset < end and file.end_offset > start]

    def prepare(self, start_offset: int, reserve: int) -> MappedFile:
        """Make a file ahead of its use, under another name; blocks, and may run in a thread."""
        return self._make(start_offset, reserve, self._ahead_path)

    def keep_prepared(self, file: MappedFile) -> None:
        """Keep a file from `prepare` until the log reaches it; delete it if the log has passed it."""
        if self._prepared is None and file.start_offset >= self.end_offset:
            self._prepared = file
        else:
            self._discard(file)

    def has_prepared(self, start_offset: int) -> bool:
        return self._prepared is not None and self._prepared.start_offset == start_offset

    def add_file(self, start_offset: int, reserve: int) -> MappedFile:
        """Add the next file of the address space: the prepared one or a new one. Its name is not synced yet."""
        assert start_offset % self.file_size == 0
        assert not self.files or start_offset == self.end_offset
        path = self.directory / file_name(start_offset)
        if self.has_prepared(start_offset):
            assert self._prepared is not None
            file = self._prepared
            self._disk.rename(file.path, path)
            self._prepared = None
        else:
            # Under another name, until its length is on the disk: Apache's brokers
            # refuse a directory with a shorter file.
            file = self._make(start_offset, reserve, self._making_path)
            try:
                self._disk.rename(file.path, path)
            except BaseException:
                self._discard(file)
                raise
        file.path = path
        self.has_unsynced_names = True
        self.files.append(file)
        return file

    def sync_names(self) -> None:
        """Block until the files' names are on the disk."""
        self._disk.sync_directory(self.directory)

    def _make(self, start_offset: int, reserve: int, path: Path) -> MappedFile:
        file: MappedFile | None = None
        try:
            file = MappedFile(self._disk, path, self.file_size, start_offset, create=True)
            file.reserve(reserve)
        except BaseException:
            if file is not None:
                file.close()
            # On a full disk its blocks are needed elsewhere.
            with suppress(OSError):
                self._disk.unlink(path)
            raise
        return file

    def truncate(self, end: int) -> None:
        """Delete the files that begin at or after `end`; fill the rest of the file that holds `end` with zeros."""
        self.drop_prepared()
        # The last one first: a crash in between leaves no gap.
        while self.files and self.files[-1].start_offset >= end:
            self._discard(self.files.pop())
        if self.files and end < self.files[-1].end_offset:
            last = self.files[-1]
            last.clear_from(end - last.start_offset)
            last.flush()
        self._sync()

    def remove_first(self) -> None:
        """Delete the oldest file."""
        self._discard(self.files.pop(0))
        self._sync()

    def drop_prepared(self) -> None:
        """Delete the file that was made ahead, if there is one."""
        if self._prepared is not None:
            self._discard(self._prepared)
            self._prepared = None

    def close(self) -> None:
        self.drop_prepared()
        for file in self.files:
            file.close()
        self.files.clear()

    def __iter__(self) -> Iterator[MappedFile]:
        return iter(self.files)

    def _discard(self, file: MappedFile) -> None:
        file.close()
        self._disk.unlink(file.path)

    def _sync(self) -> None:
        if self._disk.exists(self.directory):
            self.sync_names()
