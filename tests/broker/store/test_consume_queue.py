from pathlib import Path
from struct import pack

import pytest

from rocketrio_broker.store.consume_queue import FILLER_SIZE, ConsumeQueue
from rocketrio_broker.store.errors import StoreDamagedError
from rocketrio_broker.store.open_files import OpenFiles
from rocketrio_broker.testing.memory_disk import MemoryDisk

ROOT = Path("/data/consumequeue")
FOLDER = ROOT / "t" / "0"
FILE_SIZE = 100  # five entries


def made(disk: MemoryDisk | None = None) -> ConsumeQueue:
    return ConsumeQueue("t", 0, ROOT, FILE_SIZE, OpenFiles(disk or MemoryDisk()), set())


def filled(queue: ConsumeQueue, count: int) -> ConsumeQueue:
    for number in range(count):
        queue.append(number * 10, 10, number)
    return queue


def loaded(disk: MemoryDisk) -> ConsumeQueue:
    queue = made(disk)
    queue.load()
    return queue


def test_entries_have_apaches_layout_and_files_their_full_length() -> None:
    disk = MemoryDisk()
    queue = filled(made(disk), 7)
    queue.write_tail()
    first, second = (disk.files[path] for path in sorted(disk.files))
    assert [path.name for path in sorted(disk.files)] == [f"{n:020d}" for n in (0, 100)]
    assert first.pread(100, 0) == b"".join(pack(">qiq", n * 10, 10, n) for n in range(5))
    assert second.pread(100, 0)[:40] == pack(">qiqqiq", 50, 10, 5, 60, 10, 6)
    assert second.size == 100
    assert not any(second.pread(60, 40))


@pytest.mark.parametrize("written", [0, 3, 5, 7, 12])
def test_entries_come_from_files_and_memory_alike(written: int) -> None:
    queue = made()
    for number in range(12):
        if number == written:
            queue.write_tail()
        queue.append(number * 10, 10, number)
    for start in range(13):
        for count in range(14):
            data = queue.entries(start, count)
            expected = range(start, min(start + count, 12))
            assert data == b"".join(pack(">qiq", n * 10, 10, n) for n in expected)
    assert queue.entries(-1, 3) == b""


@pytest.mark.parametrize("count", [0, 1, 4, 5, 6, 10, 11])
def test_load_finds_the_end(count: int) -> None:
    disk = MemoryDisk()
    filled(made(disk), count).write_tail()
    queue = loaded(disk)
    assert (queue.min_offset, queue.max_offset) == (0, count)
    assert queue.last_physical_end == count * 10


@pytest.mark.parametrize("keep", [0, 1, 4, 5, 6, 11, 12])
def test_truncate_leaves_zeros_that_load_stops_at(keep: int) -> None:
    disk = MemoryDisk()
    queue = filled(made(disk), 12)
    queue.truncate(keep)
    assert (queue.max_offset, queue.last_physical_end) == (keep, keep * 10)
    assert loaded(disk).max_offset == keep
    queue.append(5000, 10, 1)
    queue.write_tail()
    assert loaded(disk).entry(keep) == (5000, 10, 1)


def test_queue_that_begins_late_is_filled_from_its_files_start() -> None:
    disk = MemoryDisk()
    queue = made(disk)
    queue.fill_to(13)
    queue.append(500, 10, 1)
    queue.write_tail()
    assert (queue.min_offset, queue.max_offset) == (13, 14)
    (path,) = disk.files
    assert path.name == f"{200:020d}"
    assert disk.files[path].pread(60, 0) == pack(">qiq", 0, FILLER_SIZE, 0) * 3
    again = loaded(disk)
    again.raise_min(0)
    assert (again.min_offset, again.max_offset) == (13, 14)


def test_gap_in_the_middle_keeps_what_is_before_it() -> None:
    queue = filled(made(), 3)
    queue.fill_to(6)
    queue.append(900, 10, 1)
    assert queue.entry(4) == (30, FILLER_SIZE, 0)
    assert [queue.first_at_or_after(address) for address in (0, 20, 21, 31, 900, 901)] == [
        0,
        2,
        3,
        6,
        6,
        7,
    ]


def test_a_huge_gap_is_not_filled() -> None:
    queue = filled(made(), 3)
    queue.fill_to(1 << 40)
    queue.append(900, 10, 1)
    assert (queue.min_offset, queue.max_offset) == (1 << 40, (1 << 40) + 1)


def test_files_below_the_minimum_go_but_never_the_last() -> None:
    disk = MemoryDisk()
    queue = filled(made(disk), 12)
    queue.write_tail()
    queue.raise_min(70)
    assert queue.min_offset == 7
    assert queue.delete_before_min() == 1
    queue.raise_min(1 << 40)
    assert (queue.min_offset, queue.delete_before_min()) == (12, 1)
    assert [path.name for path in disk.files] == [f"{200:020d}"]


def test_the_minimum_is_that_of_the_first_message_at_or_after_an_address() -> None:
    queue = filled(made(), 3)
    queue.fill_to(6)
    queue.append(900, 10, 1)
    for address, lowest in (
        (0, 0),
        (1, 1),
        (20, 2),
        (21, 3),
        (31, 6),
        (900, 6),
        (910, 7),
        (911, 7),
    ):
        before = queue.min_offset
        assert queue.raise_min(address) == (before != lowest)
        assert queue.min_offset == lowest


def test_file_of_another_size_is_refused_and_a_short_one_lengthened() -> None:
    disk = MemoryDisk()
    filled(made(disk), 2).write_tail()
    (path,) = disk.files
    disk.files[path].truncate(60)
    assert loaded(disk).max_offset == 2
    assert disk.files[path].size == FILE_SIZE
    disk.files[path].truncate(120)
    with pytest.raises(StoreDamagedError, match="120 bytes instead of 100"):
        loaded(disk)


def test_open_files_are_limited() -> None:
    disk = MemoryDisk()
    files = OpenFiles(disk, limit=2)
    for number in range(5):
        files.make(Path(f"/q/{number}"), 10).pwrite(b"x", 0)
        assert len(files) <= 2
    assert files.existing(Path("/q/0")) is not None
    assert files.existing(Path("/q/9")) is None


@pytest.mark.parametrize("count", [0, 1, 2, 7, 40])
@pytest.mark.parametrize("first", [0, 3])
def test_the_first_entry_that_ends_beyond_an_address(count: int, first: int) -> None:
    queue = filled(made(), count)
    queue.min_offset = min(first, count)
    for address in range(-5, 10 * count + 20):
        beyond = [number for number in range(queue.min_offset, count) if number * 10 + 10 > address]
        assert queue.first_ending_beyond(address) == min(beyond, default=count)


def test_first_entry_ending_beyond_an_address_is_no_missing_one() -> None:
    queue = filled(made(), 2)
    queue.fill_to(4)
    queue.append(100, 10, 0)
    assert queue.first_ending_beyond(20) == 4
    assert queue.first_ending_beyond(19) == 1
    assert queue.first_ending_beyond(110) == 5
