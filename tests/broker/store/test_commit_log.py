from pathlib import Path

import pytest
from tests.support.failing_disk import FailingDisk
from tests.support.records import plain_record

from rocketrio_broker.store.commit_log import CommitLog
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_protocol.record.decode import RecordStatus, scan_record

FOLDER = Path("/data/commitlog")
FILE_SIZE = 4096


def made(disk: MemoryDisk | None = None) -> CommitLog:
    disk = disk or MemoryDisk()
    disk.make_directory(FOLDER)
    return CommitLog(FOLDER, FILE_SIZE, disk=disk)


def record_of(address: int, body: bytes = b"body") -> bytes:
    return plain_record(
        physical_offset=address, store_time_ms=77, body=body, topic=b"t", properties=b""
    )


def test_empty_log_has_nothing_to_read() -> None:
    log = made()
    assert log.is_empty
    assert (log.min_offset, log.max_offset) == (0, 0)
    assert log.read(0, 10) is None
    assert log.record_at(0) is None


def test_record_that_does_not_fit_goes_to_the_next_file_behind_padding() -> None:
    log = made()
    assert log.claim(4000) == 0
    log.append(bytes(4000))
    # 96 bytes are left: 88 of record would fit with the 8 that must stay, 89 would not.
    assert log.claim(88) == 4000
    assert log.claim(89) == FILE_SIZE
    padding = log.read(4000, 96)
    assert padding is not None
    assert padding[:8].hex() == "00000060cbd43194"
    assert scan_record(padding, 0, 96).status is RecordStatus.PADDING
    assert log.max_offset == FILE_SIZE


def test_read_stays_within_one_file_and_within_what_is_appended() -> None:
    log = made()
    log.claim(4000)
    log.append(b"x" * 4000)
    log.claim(200)
    log.append(b"y" * 200)
    first = log.read(3990, 1 << 20)
    assert first is not None
    assert len(first) == 106
    second = log.read(FILE_SIZE + 100, 1 << 20)
    assert second is not None
    assert bytes(second) == b"y" * 100
    assert log.read(log.max_offset, 1) is None


def test_record_at_returns_only_records_with_their_own_address() -> None:
    log = made()
    size = len(record_of(0))
    log.append_raw(0, record_of(0) + record_of(12345))
    assert log.record_at(0) == record_of(0)
    assert log.store_timestamp_at(0) == 77
    assert log.record_at(size) is None
    assert log.record_at(1) is None


def test_raw_bytes_must_continue_the_log() -> None:
    log = made()
    log.append_raw(0, b"abc")
    with pytest.raises(ValueError, match="ends at 3"):
        log.append_raw(4, b"d")
    with pytest.raises(ValueError, match="ends at 3"):
        log.append_raw(2, b"d")


def test_raw_bytes_cross_files_and_begin_anywhere_when_empty() -> None:
    log = made()
    data = bytes(range(256)) * 40
    log.append_raw(FILE_SIZE * 3 + 100, data)
    assert log.min_offset == FILE_SIZE * 3 + 100
    assert [file.start_offset for file in log.files] == [FILE_SIZE * n for n in (3, 4, 5)]
    read = bytearray()
    offset = log.min_offset
    while (part := log.read(offset, 1000)) is not None:
        read += part
        offset += len(part)
    assert read == data
    assert log.read(FILE_SIZE * 3, 10) is None


def test_truncate_forgets_bytes_on_the_disk_too() -> None:
    disk = MemoryDisk()
    log = made(disk)
    log.append_raw(0, b"x" * 9000)
    log.truncate(5000)
    assert log.max_offset == 5000
    assert sorted(path.name for path in disk.files) == [f"{n:020d}" for n in (0, FILE_SIZE)]
    content = disk.files[FOLDER / f"{FILE_SIZE:020d}"].pread(FILE_SIZE, 0)
    assert content == b"x" * (5000 - FILE_SIZE) + bytes(2 * FILE_SIZE - 5000)
    log.append_raw(5000, b"new")
    assert log.read(5000, 10) == b"new"


def test_truncate_to_the_beginning_continues_at_the_same_address() -> None:
    log = made()
    log.append_raw(100, b"x" * 10)
    log.truncate(100)
    assert log.is_empty
    assert log.claim(50) == 100


def test_full_disk_leaves_the_log_as_it_was() -> None:
    disk = FailingDisk()
    log = made(disk)
    log.claim(4000)
    log.append(bytes(4000))
    disk.fails_at = "rename"
    with pytest.raises(OSError, match="No space"):
        log.claim(500)
    assert log.max_offset == 4000
    assert log.claim(88) == 4000


def test_prepared_file_is_used_and_a_late_one_dropped() -> None:
    disk = MemoryDisk()
    log = made(disk)
    log.claim(4000)
    log.append(bytes(4000))
    log.files.keep_prepared(log.files.prepare(FILE_SIZE, 0))
    assert log.files.has_prepared(FILE_SIZE)
    log.claim(500)
    assert not log.files.has_prepared(FILE_SIZE)
    assert sorted(disk.files) == [FOLDER / f"{n:020d}" for n in (0, FILE_SIZE)]
    log.files.keep_prepared(log.files.prepare(FILE_SIZE, 0))
    assert sorted(disk.files) == [FOLDER / f"{n:020d}" for n in (0, FILE_SIZE)]
