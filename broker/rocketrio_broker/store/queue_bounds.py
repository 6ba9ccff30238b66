"""The bounds of all consume queues in one file: what a start expects in their files, and need not search there.

    rocketrioQueues     u32 CRC of the rest | JSON: the size of queue files, the log's begin, the queues of each topic

It is written with each checkpoint, after the entries that it covers are synced. Entries within its bounds that a
queue's files lack are lost, and made from the log again (recovery.py); entries beyond the bounds were written after the
checkpoint, and are made again too. Without the file all queues are.

Invariant: it is valid only with a rocketrio checkpoint; if Apache's broker ran since, the queues' files are read.
Invariant: a queue's file expires (retention.py) only when the bounds on the disk do not cover its entries any more.
Answers to: nothing; Apache's brokers read the files of all queues.
"""

import zlib
from pathlib import Path
from struct import Struct
from typing import Final

import msgspec

from rocketrio_broker.store.consume_queue import Bounds
from rocketrio_broker.store.disk import Disk

BOUNDS_FILE: Final = "rocketrioQueues"
_CRC: Final = Struct(">I")


class QueueBounds(msgspec.Struct):
    """The content of the file."""

    file_size: int
    """The size of a queue file in bytes."""
    log_begin: int
    """Entries for addresses of the log before this one are not valid."""
    topics: dict[str, dict[int, Bounds]]

    def note(self, key: tuple[str, int], bounds: Bounds) -> None:
        """Add a queue."""
        topic, queue_id = key
        self.topics.setdefault(topic, {})[queue_id] = bounds


def write_bounds(disk: Disk, root: Path, bounds: QueueBounds) -> None:
    """Replace the file and sync it; blocks."""
    data = msgspec.json.encode(bounds)
    path = root / BOUNDS_FILE
    beside = path.with_name(f"{BOUNDS_FILE}.tmp")
    disk.unlink(beside)
    file = disk.open(beside, create=True)
    try:
        file.pwrite(_CRC.pack(zlib.crc32(data)) + data, 0)
        # Before the rename: a file that is there and damaged costs a walk through the whole log.
        file.fdatasync()
    finally:
        file.close()
    disk.rename(beside, path)
    disk.sync_directory(root)


def remove_bounds(disk: Disk, root: Path) -> None:
    """Remove the file, because the queues belong to another log now; blocks."""
    disk.unlink(root / BOUNDS_FILE)
    disk.sync_directory(root)


def read_bounds(disk: Disk, root: Path, file_size: int) -> QueueBounds | None:
    """Read the file; return None if it is missing, damaged, or for queue files of another size."""
    try:
        file = disk.open(root / BOUNDS_FILE)
    except FileNotFoundError:
        return None
    try:
        data = file.pread(file.size, 0)
    finally:
        file.close()
    if len(data) < _CRC.size or _CRC.unpack_from(data)[0] != zlib.crc32(data[_CRC.size :]):
        return None
    try:
        bounds = msgspec.json.decode(data[_CRC.size :], type=QueueBounds)
    except msgspec.DecodeError:
        return None
    # With another size of files the entries are at other bytes.
    return bounds if bounds.file_size == file_size else None
