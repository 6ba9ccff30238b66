"""Saves the end of a log before it is cut off: raw bytes in a file of their own, named after their address.

    cut/<address, 20 digits>-<time in ms>.log

Invariant: when `keep_tail` or `keep_bytes` returns, the bytes and the name of their file survive a power cut.
Answers to: nothing; Apache's brokers in controller mode truncate without keeping anything.
"""

from pathlib import Path
from typing import Final

from rocketrio_broker.store.commit_log import CommitLog
from rocketrio_broker.store.disk import Buffer, Disk

_BLOCK: Final = 4 << 20
"""Bytes written at once, in a worker thread: a tail may be long, and other tasks must run in between."""


def tail_name(physical_offset: int, now_ms: int) -> str:
    """Return the name of the file for bytes that were cut at this address."""
    return f"{physical_offset:020}-{now_ms}.log"


async def keep_tail(log: CommitLog, start: int, path: Path, *, disk: Disk) -> int:
    """Write everything from `start` on to `path`; return the number of bytes.

    Raises OSError if the disk has no room; a part of the file is then left. A cancel leaves the same.
    """
    disk.make_directory(path.parent)
    file = disk.open(path, create=True)
    position = start
    try:
        while (block := log.read(position, _BLOCK)) is not None:
            await disk.run(file.pwrite, block, position - start)
            position += len(block)
        await disk.run(file.fdatasync)
    finally:
        file.close()
    await disk.run(_sync_names, path, disk)
    return position - start


def keep_bytes(data: Buffer, path: Path, *, disk: Disk) -> None:
    """Write `data` to `path`; blocks. Raises OSError, with a part of the file left, if the disk has no room."""
    disk.make_directory(path.parent)
    file = disk.open(path, create=True)
    try:
        file.pwrite(data, 0)
        file.fdatasync()
    finally:
        file.close()
    _sync_names(path, disk)


def _sync_names(path: Path, disk: Disk) -> None:
    disk.sync_directory(path.parent)
    disk.sync_directory(path.parent.parent)
