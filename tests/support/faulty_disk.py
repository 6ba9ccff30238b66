"""A disk that can lose power: what was not synced is lost, kept or torn, sector by sector, as a seed says.

Mapped pages and written bytes alike count as unsynced until `fdatasync`; names until their folder is synced. The names
of a folder reach the disk in the order in which they were changed, as journaling file systems do it.
`fail_at` cuts the power at that operation: it and all later ones raise `PowerCutError`.
"""

import random
from pathlib import Path
from typing import Self

from rocketrio_broker.store.disk import Buffer, DiskFile
from rocketrio_broker.testing.memory_disk import MemoryDisk, MemoryFile, MemoryOpenFile

SECTOR = 512


class PowerCutError(BaseException):
    """Not an Exception: no part may take it for a full disk, or for a fault of one connection, and go on."""


class FaultyFile(MemoryFile):
    """A file and what of it is on the disk."""

    __slots__ = ("durable",)

    def __init__(self) -> None:
        super().__init__()
        self.durable = b""

    def content(self) -> bytes:
        return self.pread(self.size, 0)

    def after_cut(self, rng: random.Random, kept: float) -> bytes:
        """What is found afterwards: each changed sector is old or new."""
        new, old = self.content(), self.durable
        if new == old:
            return old
        size = len(new) if rng.random() < kept or len(new) == len(old) else len(old)
        new, old = new.ljust(size, b"\0")[:size], old.ljust(size, b"\0")[:size]
        return b"".join(
            (new if rng.random() < kept else old)[at : at + SECTOR] for at in range(0, size, SECTOR)
        )


class FaultyOpenFile(MemoryOpenFile):
    """One opening; every change and sync is an operation that the power may fail at."""

    __slots__ = ("_disk",)

    def __init__(self, disk: "FaultyDisk", file: FaultyFile) -> None:
        super().__init__(file, disk)
        self._disk = disk

    def pwrite(self, data: Buffer, offset: int) -> None:
        self._disk.operate()
        super().pwrite(data, offset)

    def truncate(self, size: int) -> None:
        self._disk.operate()
        super().truncate(size)

    def clear_from(self, offset: int) -> None:
        self._disk.operate()
        super().clear_from(offset)

    def reserve(self, offset: int, size: int) -> None:
        self._disk.operate()
        super().reserve(offset, size)

    def fdatasync(self) -> None:
        self._disk.operate()
        assert isinstance(self.file, FaultyFile)
        self.file.durable = self.file.content()


class FaultyDisk(MemoryDisk):
    """A `MemoryDisk` with a power switch."""

    def __init__(self, fail_at: int | None = None) -> None:
        super().__init__()
        self.operations = 0
        self.fail_at = fail_at
        self._durable_names: dict[Path, MemoryFile] = {}
        self._changes: dict[Path, list[dict[Path, MemoryFile | None]]] = {}
        """By folder, what its names became since it was synced."""

    def operate(self) -> None:
        self.operations += 1
        if self.fail_at is not None and self.operations > self.fail_at:
            raise PowerCutError(f"operation {self.operations}")

    def open(self, path: Path, *, create: bool = False) -> DiskFile:
        file = self.files.get(path)
        if file is None and create:
            self.operate()
            file = self.files[path] = FaultyFile()
            self._change({path: file})
        if file is None:
            raise FileNotFoundError(path)
        assert isinstance(file, FaultyFile)
        return FaultyOpenFile(self, file)

    def sync_directory(self, path: Path) -> None:
        self.operate()
        self._changes.pop(path, None)
        folder = str(path) + "/"

        def is_in(name: Path) -> bool:  # As `name.parent == path`, at a tenth of its price.
            text = str(name)
            return text.startswith(folder) and "/" not in text[len(folder) :]

        for name in [name for name in self._durable_names if is_in(name)]:
            del self._durable_names[name]
        self._forget_removed_folders(path)
        self._durable_names.update({name: file for name, file in self.files.items() if is_in(name)})

    def _forget_removed_folders(self, path: Path) -> None:
        """What was in folders that are gone from this one does not come back."""
        deep = [name for name in self._durable_names if path in name.parents]
        for name in deep:
            if path / name.relative_to(path).parts[0] not in self.directories:
                del self._durable_names[name]
                self._changes.pop(name.parent, None)

    def sync_tree(self, path: Path) -> None:
        self.operate()
        for folder in [folder for folder in self._changes if path in (folder, *folder.parents)]:
            del self._changes[folder]
        for name, file in self.files.items():
            if path in name.parents:
                assert isinstance(file, FaultyFile)
                file.durable = file.content()
        for name in [name for name in self._durable_names if path in name.parents]:
            del self._durable_names[name]
        self._durable_names.update(
            {name: file for name, file in self.files.items() if path in name.parents}
        )

    def unlink(self, path: Path) -> None:
        if path in self.files:
            self.operate()
            self._change({path: None})
        super().unlink(path)

    def rename(self, old: Path, new: Path) -> None:
        self.operate()
        self._change({old: None, new: self.files[old]})
        super().rename(old, new)

    def _change(self, names: dict[Path, MemoryFile | None]) -> None:
        folder = next(iter(names)).parent
        self._changes.setdefault(folder, []).append(names)

    def after_cut(self, seed: int, kept: float) -> Self:
        """The disk as it is found when the power is back; `kept` is the share of unsynced changes that made it."""
        rng = random.Random(seed)
        found = type(self)()
        found.directories = set(self.directories)
        found.boot = f"{self.boot}+"
        for path, file in sorted(self._names_after_cut(rng, kept).items()):
            assert isinstance(file, FaultyFile)
            found.put(path, file.after_cut(rng, kept))
            found.directories.update(
                path.parents
            )  # Also of a file that was deleted, and its folder.
        return found

    def copy(self) -> Self:
        """A disk with what a program reads in the files of this one now, synced or not."""
        found = type(self)()
        found.directories = set(self.directories)
        found.boot = self.boot
        for path, file in sorted(self.files.items()):
            found.put(path, file.pread(file.size, 0))
        return found

    def put(self, path: Path, content: bytes) -> None:
        """Put a file there that is on the disk, with its name."""
        file = FaultyFile()
        file.pwrite(content, 0)
        file.durable = content
        self.files[path] = self._durable_names[path] = file

    def _names_after_cut(self, rng: random.Random, kept: float) -> dict[Path, MemoryFile]:
        """Return what each folder names: the first of its unsynced changes made it."""
        names: dict[Path, MemoryFile | None] = dict(self._durable_names)
        for _, changes in sorted(self._changes.items()):
            for change in changes[: sum(rng.random() < kept for _ in changes)]:
                names.update(change)
        return {path: file for path, file in names.items() if file is not None}
