from pathlib import Path
from struct import pack

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketrio_broker.store.errors import StoreDamagedError
from rocketrio_broker.store.index_file import IndexFile
from rocketrio_broker.testing.memory_disk import MemoryDisk

PATH = Path("/data/index/20260101000000000")
SLOTS, ENTRIES = 5, 10
SIZE = 40 + 4 * SLOTS + 20 * ENTRIES


def made(disk: MemoryDisk, *, create: bool = True) -> IndexFile:
    disk.make_directory(PATH.parent)
    return IndexFile(disk, PATH, SLOTS, ENTRIES, create=create)


def content(disk: MemoryDisk) -> bytes:
    return disk.files[PATH].pread(SIZE + 1, 0)


def test_index_file_has_apaches_layout() -> None:
    disk = MemoryDisk()
    file = made(disk)
    file.put_many([(7, 1000, 50_000)])
    file.put_many([(12, 2000, 53_999)])
    file.write_header()
    entries = pack(">iqii", 7, 1000, 0, 0) + pack(">iqii", 12, 2000, 3, 1)
    expected = pack(">qqqqii", 50_000, 53_999, 1000, 2000, 1, 3)
    expected += pack(">5i", 0, 0, 2, 0, 0) + bytes(20) + entries
    assert content(disk) == expected.ljust(SIZE, b"\0")


def test_find_walks_newest_first_and_keeps_to_the_hash_and_the_times() -> None:
    file = made(MemoryDisk())
    for number in range(8):
        file.put_many([(2 if number % 2 else 7, number * 100, number * 10_000)])
    assert list(file.find(7, 0, 1 << 62)) == [600, 400, 200, 0]
    assert list(file.find(2, 0, 1 << 62)) == [700, 500, 300, 100]
    assert list(file.find(7, 20_000, 40_000)) == [400, 200]
    assert list(file.find(3, 0, 1 << 62)) == []


def test_full_file_has_no_entry_zero() -> None:
    file = made(MemoryDisk())
    for number in range(ENTRIES - 1):
        assert file.room
        file.put_many([(number, number, 0)])
    assert not file.room


def test_reopened_index_file_accepts_more_entries() -> None:
    disk = MemoryDisk()
    first = made(disk)
    first.put_many([(7, 1000, 50_000)])
    first.write_header()
    again = made(disk, create=False)
    again.put_many([(7, 2000, 51_000)])
    assert list(again.find(7, 0, 1 << 62)) == [2000, 1000]


@pytest.mark.parametrize("below", [0, 1, 300, 350, 10_000])
@pytest.mark.parametrize("lost", [(), (8,), (6, 8), (5, 6, 7)])
def test_cut_file_equals_one_written_so_far_only(below: int, lost: tuple[int, ...]) -> None:
    """Whatever a crash lost of the later entries."""
    disk, other = MemoryDisk(), MemoryDisk()
    file, expected = made(disk), made(other)
    for number in range(8):
        file.put_many([(number % 4 + 1, number * 100, number * 1000)])
        if number * 100 < below:
            expected.put_many([(number % 4 + 1, number * 100, number * 1000)])
    expected.write_header()
    for number in lost:
        if (number - 1) * 100 >= below:
            disk.files[PATH].pwrite(bytes(20), 40 + 4 * SLOTS + 20 * number)
    file.cut(below)
    if below:
        assert content(disk) == content(other)
    assert file.next_number == expected.next_number
    assert file.end_physical_offset == expected.end_physical_offset


@pytest.mark.parametrize("below", [0, 1, 300, 350, 10_000])
def test_rebuilt_file_equals_one_written_so_far_only(below: int) -> None:
    disk, other = MemoryDisk(), MemoryDisk()
    file, expected = made(disk), made(other)
    for number in range(8):
        file.put_many([(number % 4 + 1, number * 100, number * 1000)])
        if number * 100 < below:
            expected.put_many([(number % 4 + 1, number * 100, number * 1000)])
    file.write_header()
    expected.write_header()
    # A crash: slots and header of a later state, or of none.
    disk.files[PATH].pwrite(b"\0\0\0\x09" * SLOTS, 40)
    file.rebuild(below)
    if below:
        assert content(disk) == content(other)
    assert file.next_number == expected.next_number


def test_chain_that_a_crash_bent_to_a_circle_ends() -> None:
    disk = MemoryDisk()
    file = made(disk)
    file.put_many([(5, 100, 0)])
    file.put_many([(5, 200, 0)])
    disk.files[PATH].pwrite(pack(">i", 2), 40 + 4 * SLOTS + 20 + 16)
    assert list(file.find(5, 0, 1 << 62)) == [200, 100]


def test_written_entries_end_at_a_page_that_was_lost() -> None:
    disk = MemoryDisk()
    file = made(disk)
    for number in range(6):
        file.put_many([(number + 1, number * 100, 0)])
    disk.files[PATH].pwrite(bytes(20), 40 + 4 * SLOTS + 20 * 4)
    assert [entry[1] for entry in file.written_entries()] == [0, 100, 200]


def test_wrong_size_is_refused() -> None:
    disk = MemoryDisk()
    made(disk)
    disk.files[PATH].truncate(SIZE - 1)
    with pytest.raises(StoreDamagedError, match="max_index_num"):
        made(disk, create=False)


@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(0, 0x7FFFFFFF) | st.integers(0, 12), st.integers(-3000, 9000)),
            min_size=1,
            max_size=4,
        ),
        max_size=3,
    ),
    st.lists(st.integers(-3, 12), min_size=SLOTS, max_size=SLOTS),
)
def test_columns_write_the_bytes_that_single_entries_do(
    batches: list[list[tuple[int, int]]], slots: list[int]
) -> None:
    """Also over slots that a crash left."""
    disks = MemoryDisk(), MemoryDisk()
    files = [made(disk) for disk in disks]
    for disk in disks:
        disk.files[PATH].pwrite(pack(f">{SLOTS}i", *slots), 40)
    address, time_ms = 0, 50_000
    for batch in batches:
        entries = []
        for key_hash, passed_ms in batch:
            address, time_ms = address + 100, time_ms + passed_ms
            entries.append((key_hash, address, time_ms))
        entries = entries[: files[0].room]
        if entries:
            files[0].put_many(entries)
            files[1].put_columns(np.array(entries))
    for file in files:
        file.write_header()
    assert content(disks[0]) == content(disks[1])
