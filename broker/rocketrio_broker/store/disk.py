"""The only access to files: the interface `Disk`, and its two implementations for the real disk.

Reads and writes in the page cache are plain calls. What may block for long (fdatasync, preallocation, the recovery
scan) is passed to `run`: `RealDisk` runs it in a worker thread, `InlineDisk` at once, for tests with a virtual clock.
`MemoryDisk` (memory_disk.py) has the same interface and uses no files.

Invariant: only this user can read what is made here, and no file is opened through a symbolic link.
Invariant: a file opened twice shows the same bytes through `pread`, `pwrite` and `map`.
Answers to: the FileChannel, RandomAccessFile and File calls spread over the Java store; UtilAll's disk ratios.
Unlike Java: a new or renamed file's directory is synced too; otherwise a power cut removes the name.
"""

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, TypeVar, TypeVarTuple

import trio

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")
Buffer = bytes | bytearray | memoryview

_ZEROS: Final = bytes(1 << 20)
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_OTHERS: Final = 0o077
_LOCK_TEXT: Final = b"lock"  # the text that Java writes into its lock file


class DiskFile(Protocol):
    """One open file."""

    @property
    def size(self) -> int: ...
    def pread(self, size: int, offset: int) -> bytes: ...
    def pwrite(self, data: Buffer, offset: int) -> None: ...
    def truncate(self, size: int) -> None: ...
    def clear_from(self, offset: int) -> None:
        """Fill the file with zeros from `offset` to its end; its length stays, even if a crash comes in between."""

    def reserve(self, offset: int, size: int) -> None:
        """Allocate the blocks now, so that a write there cannot find the disk full."""

    def fdatasync(self) -> None:
        """Block until all that was written, also through `map`, is on the disk."""

    def map(self) -> mmap.mmap:
        """Map the whole file, writable; views of it stay valid after `close` and `unlink`."""

    def forget_pages(self, start: int, end: int) -> None:
        """Advise the system that this part of the mapping will hardly be read again."""

    def close(self) -> None: ...


class Lock(Protocol):
    """A held lock file."""

    def release(self) -> None: ...


class Disk(Protocol):
    """Files and folders, and a way to run what blocks."""

    async def run(self, work: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result: ...
    def open(self, path: Path, *, create: bool = False) -> DiskFile: ...
    def exists(self, path: Path) -> bool: ...
    def list_directory(self, path: Path) -> list[str]:
        """Return the names in a folder, sorted; none if it does not exist."""

    def links_in(self, path: Path) -> list[str]:
        """Return the names in a folder that are symbolic links, sorted; none if it does not exist."""

    def is_open_to_others(self, path: Path) -> bool:
        """Return whether other users of the machine may read or change this folder."""

    def is_directory(self, path: Path) -> bool: ...
    def make_directory(self, path: Path) -> None: ...
    def sync_directory(self, path: Path) -> None: ...
    def sync_tree(self, path: Path) -> None:
        """Sync all files and names below a folder, and possibly other files of its file system."""

    def unlink(self, path: Path) -> None: ...
    def remove_directory(self, path: Path) -> None:
        """Remove a folder if it is empty."""

    def rename(self, old: Path, new: Path) -> None: ...
    def used_ratio(self, path: Path) -> float:
        """Return the used part of the file system that holds `path`, 0 to 1."""

    def capacity(self, path: Path) -> tuple[int, int]:
        """Return the total and the free bytes of the file system that holds `path`."""

    def physical_memory(self) -> int: ...
    def boot_id(self) -> str:
        """Return the id of the machine's current boot, during which no written bytes are lost. Empty if unknown."""

    def lock(self, path: Path) -> Lock:
        """Lock the lock file; raise `BlockingIOError` if it is locked already."""


class OSFile:
    """A file of the operating system."""

    __slots__ = ("_descriptor", "_mapping")

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._mapping: mmap.mmap | None = None

    @property
    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def pread(self, size: int, offset: int) -> bytes:
        data = os.pread(self._descriptor, size, offset)
        while 0 < len(data) < size:
            more = os.pread(self._descriptor, size - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def pwrite(self, data: Buffer, offset: int) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(self._descriptor, view, offset)
            offset += written
            view = view[written:]

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def clear_from(self, offset: int) -> None:
        end = self.size
        while offset < end:
            try:
                offset = os.lseek(self._descriptor, offset, os.SEEK_DATA)
                data_end = min(os.lseek(self._descriptor, offset, os.SEEK_HOLE), end)
            except OSError as error:
                if error.errno == errno.ENXIO:  # nothing but a hole is left
                    return
                raise
            while offset < data_end:
                zeros = _ZEROS[: data_end - offset]
                self.pwrite(zeros, offset)
                offset += len(zeros)

    def reserve(self, offset: int, size: int) -> None:
        os.posix_fallocate(self._descriptor, offset, size)

    def fdatasync(self) -> None:
        # Not mmap.flush(), which holds the interpreter lock; this syncs the mapping's dirty pages too.
        # A file deleted while it was being synced needs no sync.
        if self._descriptor >= 0:
            os.fdatasync(self._descriptor)

    def map(self) -> mmap.mmap:
        if self._mapping is None:
            self._mapping = mmap.mmap(self._descriptor, 0)
        return self._mapping

    def forget_pages(self, start: int, end: int) -> None:
        # For a file mapping this drops only our page table entries; the page cache keeps the bytes.
        if self._mapping is not None and end > start:
            self._mapping.madvise(mmap.MADV_DONTNEED, start, end - start)

    def close(self) -> None:
        # The mapping itself ends with its last view: an answer may still be on its way to a socket.
        self._mapping = None
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


_LIBC: Final = ctypes.CDLL(None, use_errno=True)


class _OSLock:
    """A lock file, locked with both kinds of lock, which are independent on Linux."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        os.close(self._descriptor)


def _open(path: Path, flags: int) -> int:
    return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)


class InlineDisk:
    """The real disk without threads: what blocks, blocks. For tests with a virtual clock and command-line tools."""

    async def run(self, work: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        # As with a worker thread, a cancel comes before the work or not at all, so its result is never lost.
        await trio.lowlevel.checkpoint()
        return work(*arguments)

    def open(self, path: Path, *, create: bool = False) -> DiskFile:
        return OSFile(_open(path, os.O_CREAT if create else 0))

    def exists(self, path: Path) -> bool:
        return path.exists()

    def list_directory(self, path: Path) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def links_in(self, path: Path) -> list[str]:
        try:
            with os.scandir(path) as entries:
                return sorted(entry.name for entry in entries if entry.is_symlink())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def is_open_to_others(self, path: Path) -> bool:
        return bool(path.stat().st_mode & _OTHERS)

    def is_directory(self, path: Path) -> bool:
        return path.is_dir()

    def make_directory(self, path: Path) -> None:
        try:
            path.mkdir(0o700)
        except FileExistsError:
            if not path.is_dir():
                raise
        except FileNotFoundError:
            if path.parent.is_dir():  # As below /proc: this folder cannot be made.
                raise
            # Not `parents=True`, which makes parents that other users can read.
            self.make_directory(path.parent)
            path.mkdir(0o700, exist_ok=True)

    def sync_directory(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync_tree(self, path: Path) -> None:
        # One commit of the file system's journal, where thousands of fdatasync calls wait for one each: 1 s against
        # 60 s for 8,000 queues. Since Linux 5.8 it also reports failed writes.
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if _LIBC.syncfs(descriptor):
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), str(path))
        finally:
            os.close(descriptor)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def remove_directory(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            path.rmdir()

    def rename(self, old: Path, new: Path) -> None:
        os.replace(old, new)

    def used_ratio(self, path: Path) -> float:
        numbers = os.statvfs(path)
        used = numbers.f_blocks - numbers.f_bfree
        usable = used + numbers.f_bavail
        return used / usable if usable else 0.0

    def capacity(self, path: Path) -> tuple[int, int]:
        numbers = os.statvfs(path)
        return numbers.f_blocks * numbers.f_frsize, numbers.f_bavail * numbers.f_frsize

    def physical_memory(self) -> int:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def boot_id(self) -> str:
        with contextlib.suppress(OSError):
            return _BOOT_ID.read_text().strip()
        return ""

    def lock(self, path: Path) -> Lock:
        descriptor = _open(path, os.O_CREAT)
        try:
            # flock keeps out a second rocketrio store (in this process too); Java's tryLock uses lockf.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.pwrite(descriptor, _LOCK_TEXT, 0)
        except BaseException:
            os.close(descriptor)
            raise
        return _OSLock(descriptor)


class RealDisk(InlineDisk):
    """The real disk; what may block for long runs in a worker thread."""

    async def run(self, work: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        return await trio.to_thread.run_sync(work, *arguments)
