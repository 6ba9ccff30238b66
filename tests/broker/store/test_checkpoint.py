import zlib
from pathlib import Path
from struct import pack

from rocketrio_broker.store.checkpoint import (
    CHECKPOINT_SIZE,
    Checkpoint,
    Positions,
    read_checkpoint,
    write_checkpoint,
)
from rocketrio_broker.store.read_gate import EVERYTHING
from rocketrio_broker.testing.memory_disk import MemoryDisk

PATH = Path("/data/checkpoint")


def made() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directory(PATH.parent)
    return disk


def test_absent_checkpoint_is_all_zero() -> None:
    assert read_checkpoint(made(), PATH) == Checkpoint()


def test_checkpoint_reads_as_written_and_has_apaches_layout() -> None:
    disk = made()
    checkpoint = Checkpoint(111, 222, 333, Positions(4, 5, 6))
    write_checkpoint(disk, PATH, checkpoint)
    assert read_checkpoint(disk, PATH) == checkpoint
    assert disk.files[PATH].size == CHECKPOINT_SIZE
    assert disk.files[PATH].pread(24, 0) == pack(">qqq", 111, 222, 333)
    assert checkpoint.queue_timestamp_ms == 111


def test_positions_do_not_count_once_apache_wrote_its_times() -> None:
    disk = made()
    write_checkpoint(disk, PATH, Checkpoint(111, 222, 333, Positions(4, 5, 6)))
    disk.open(PATH).pwrite(pack(">q", 112), 0)
    assert read_checkpoint(disk, PATH) == Checkpoint(112, 222, 333)


def test_damaged_positions_do_not_count() -> None:
    disk = made()
    write_checkpoint(disk, PATH, Checkpoint(111, 222, 333, Positions(4, 5, 6)))
    disk.open(PATH).pwrite(b"\xff", 270)
    assert read_checkpoint(disk, PATH).positions is None


def test_apaches_later_fields_stay() -> None:
    disk = made()
    disk.open(PATH, create=True).pwrite(pack(">qqqqq", 1, 2, 3, 44, 55), 0)
    write_checkpoint(disk, PATH, Checkpoint(7, 8, 9, Positions(4, 5, 6)))
    assert disk.files[PATH].pread(40, 0) == pack(">qqqqq", 7, 8, 9, 44, 55)


def test_checkpoint_fits_one_sector() -> None:
    disk = made()
    write_checkpoint(disk, PATH, Checkpoint(1, 2, 3, Positions(4, 5, 6)))
    assert not any(disk.files[PATH].pread(CHECKPOINT_SIZE, 512))


def test_positions_without_the_gate_still_count() -> None:
    """As they were written before readers had one: they saw everything."""
    disk = made()
    write_checkpoint(disk, PATH, Checkpoint(111, 222, 333, Positions(4, 5, 6, 7)))
    assert read_checkpoint(disk, PATH).positions == Positions(4, 5, 6, 7)
    trailer = pack(">8sqqqqqq", b"rocktrio", 4, 5, 6, 111, 222, 333)
    disk.open(PATH).pwrite(trailer + pack(">I", zlib.crc32(trailer)), 256)
    positions = read_checkpoint(disk, PATH).positions
    assert positions == Positions(4, 5, 6)
    assert positions is not None
    assert positions.read_gate == EVERYTHING
