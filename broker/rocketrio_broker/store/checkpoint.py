"""The checkpoint file: how much was on the disk, as Apache's three times and as our exact positions.

    0 i64 physicMsgTimestamp | 8 i64 logicsMsgTimestamp | 16 i64 indexMsgTimestamp       4096 bytes
    256 8 B "rocktri2" | i64 queue position | i64 index position | i64 log begin | i64 read gate | the three times again
        | u32 CRC                                              ("rocktrio" before that: without the gate)

All of it is in the first 512 bytes, which a disk writes as one.

Invariant: a message stored at or before a time, or below a position, is on the disk with its queue entry.
Invariant: our part is valid only while its copy of the times equals Apache's; they differ if Apache's broker ran since.
Answers to: StoreCheckpoint.
"""

import zlib
from pathlib import Path
from struct import Struct
from typing import Final

import attrs

from rocketrio_broker.store.disk import Disk
from rocketrio_broker.store.read_gate import EVERYTHING

CHECKPOINT_SIZE: Final = 4096
_TIMES: Final = Struct(">qqq")
_TRAILER_AT: Final = 256
_TRAILER: Final = Struct(">8sqqqqqqq")
_CRC: Final = Struct(">I")
_TRAILER_MAGIC: Final = b"rocktri2"
_TRAILER_WITHOUT_GATE: Final = Struct(">8sqqqqqq")
_MAGIC_WITHOUT_GATE: Final = b"rocktrio"


@attrs.frozen
class Positions:
    """Our part of a checkpoint: addresses in the commit log, each at the beginning of a record or at the end."""

    queue_position: int
    """Below it the log is synced, and every queue entry is written and synced."""
    index_position: int
    """Below it the index is complete and synced."""
    log_begin: int
    """Where the data of the first log file begins."""
    read_gate: int = EVERYTHING
    """Readers could see the messages that end at or before it when this was written (read_gate.py)."""


@attrs.frozen
class Checkpoint:
    """The contents of the checkpoint file."""

    physical_timestamp_ms: int = 0
    logics_timestamp_ms: int = 0
    index_timestamp_ms: int = 0
    positions: Positions | None = None

    @property
    def queue_timestamp_ms(self) -> int:
        """The store time in ms up to which the log and the queues are known to be on the disk."""
        # The lower one: of what comes after it the log may be on the disk without the entries, or the other way round.
        return min(self.physical_timestamp_ms, self.logics_timestamp_ms)

    @property
    def is_lowered(self) -> bool:
        """Whether its position was moved down, because the log was cut or queues were made again."""
        return self.positions is not None and not self.queue_timestamp_ms


def read_checkpoint(disk: Disk, path: Path) -> Checkpoint:
    """Read the checkpoint of a directory; return one of zeros if there is none."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return Checkpoint()
    try:
        data = file.pread(CHECKPOINT_SIZE, 0)
    finally:
        file.close()
    if len(data) < _TIMES.size:
        return Checkpoint()
    times = _TIMES.unpack_from(data)
    return Checkpoint(times[0], times[1], times[2], _positions(data, times))


def _positions(data: bytes, times: tuple[int, ...]) -> Positions | None:
    """Return our part, or None if it is missing, damaged or outdated."""
    trailer = _TRAILER
    if data[_TRAILER_AT : _TRAILER_AT + len(_MAGIC_WITHOUT_GATE)] == _MAGIC_WITHOUT_GATE:
        trailer = _TRAILER_WITHOUT_GATE
    end = _TRAILER_AT + trailer.size
    if len(data) < end + _CRC.size:
        return None
    magic, *numbers = trailer.unpack_from(data, _TRAILER_AT)
    is_rocketrio = magic in (_TRAILER_MAGIC, _MAGIC_WITHOUT_GATE)
    intact = _CRC.unpack_from(data, end)[0] == zlib.crc32(data[_TRAILER_AT:end])
    # Apache's broker replaces the times and leaves our part as it was: other
    # times mean that its positions are outdated.
    if not is_rocketrio or not intact or tuple(numbers[-len(times) :]) != times:
        return None
    return Positions(*numbers[: -len(times)])


def write_checkpoint(disk: Disk, path: Path, checkpoint: Checkpoint) -> None:
    """Write the checkpoint and sync it; leave Apache's later fields as they are. Blocks."""
    file = disk.open(path, create=True)
    try:
        is_new = file.size < CHECKPOINT_SIZE
        if is_new:
            file.truncate(CHECKPOINT_SIZE)
        head = bytearray(file.pread(512, 0).ljust(512, b"\0"))
        times = (
            checkpoint.physical_timestamp_ms,
            checkpoint.logics_timestamp_ms,
            checkpoint.index_timestamp_ms,
        )
        _TIMES.pack_into(head, 0, *times)
        if checkpoint.positions is not None:
            trailer = _TRAILER.pack(_TRAILER_MAGIC, *attrs.astuple(checkpoint.positions), *times)
            head[_TRAILER_AT : _TRAILER_AT + len(trailer)] = trailer
            _CRC.pack_into(head, _TRAILER_AT + len(trailer), zlib.crc32(trailer))
        # One write, to one sector: after a power cut times, positions and checksum are all new or all old.
        file.pwrite(head, 0)
        file.fdatasync()
    finally:
        file.close()
    if is_new:
        disk.sync_directory(path.parent)
