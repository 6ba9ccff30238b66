"""Recovery of states that no power cut of a rocketrio broker makes, but users, Apache brokers and bad luck do."""

import random

import attrs
import pytest
import trio
from tests.support.clocks import SettableClock
from tests.support.stores import (
    ROOT,
    SMALL,
    body_of,
    crash,
    kill,
    opened,
    put_of,
    read_all,
    read_queues,
    remove,
    stored,
)

from rocketrio_broker.store.errors import StoreDamagedError
from rocketrio_broker.store.queue_bounds import BOUNDS_FILE
from rocketrio_broker.testing.memory_disk import MemoryDisk

FILE_SIZE = SMALL.mapped_file_size_commit_log


async def filled(disk: MemoryDisk, count: int = 150) -> dict[tuple[str, int], list[bytes]]:
    rng = random.Random(count)
    clock = SettableClock()
    async with opened(disk, clock=clock) as store:
        for number in range(count):
            clock.now += 1000
            topic, queue_id = rng.choice(["orders", "payments"]), rng.randrange(2)
            stored(store.append(put_of(b"%d" % number + bytes(400), topic, queue_id)))
        return read_queues(store)


@pytest.mark.parametrize("crashed", [False, True])
async def test_removed_queue_folder_is_rebuilt_from_the_log(crashed: bool) -> None:
    disk = MemoryDisk()
    expected = await filled(disk)
    remove(disk, ROOT / "consumequeue")
    crash(disk)
    if not crashed:
        disk.unlink(ROOT / "abort")
    async with opened(disk) as store:
        assert read_queues(store) == expected


@pytest.mark.parametrize("lost", [1, 5, 20, 37])
async def test_lost_newest_entries_are_found_again_however_far_back(lost: int) -> None:
    """Also when the checkpoint's times say they were safe."""
    disk = MemoryDisk()
    expected = await filled(disk)
    async with opened(disk) as store:
        for queue in store.queue_table:
            queue.truncate(max(queue.max_offset - lost, 0))
    kill(disk)
    disk.open(ROOT / "checkpoint").pwrite(bytes(256), 256)
    async with opened(disk) as store:
        assert read_queues(store) == expected


async def test_queue_without_folder_begins_where_the_walk_does_though_it_went_back() -> None:
    disk = MemoryDisk()
    expected = await filled(disk)
    async with opened(disk) as store:
        queue = store.queue_table.by_key["orders", 0]
        queue.truncate(queue.max_offset - 20)
    remove(disk, ROOT / "consumequeue" / "payments")
    kill(disk)
    disk.open(ROOT / "checkpoint").pwrite(bytes(256), 256)
    async with opened(disk) as store:
        found = read_queues(store)
        assert found["orders", 0] == expected["orders", 0]
        for queue_id in (0, 1):
            records = found["payments", queue_id]
            assert len(records) > 20
            assert records == expected["payments", queue_id][-len(records) :]


async def test_entries_beyond_the_log_go() -> None:
    disk = MemoryDisk()
    expected = await filled(disk)
    async with opened(disk) as store:
        queue = store.queue_table.by_key["orders", 0]
        for number in range(30):
            queue.append(store.max_physical_offset + number * 100, 100, 0)
    async with opened(disk) as store:
        assert read_queues(store) == expected


async def test_wrong_entries_at_the_end_of_a_queue_go() -> None:
    disk = MemoryDisk()
    expected = await filled(disk)
    async with opened(disk) as store:
        for number in range(3):
            store.queue_table.by_key["orders", 0].append(number, 77, 0)
    disk.unlink(ROOT / BOUNDS_FILE)
    async with opened(disk) as store:
        assert read_queues(store) == expected


async def test_record_with_a_wrong_checksum_is_the_end_and_what_follows_is_wiped() -> None:
    disk = MemoryDisk()
    await filled(disk)
    async with opened(disk) as store:
        entry = store.queue_table.by_key["orders", 0].entry(20)
        assert entry is not None
        address = entry[0]
    path = ROOT / "commitlog" / f"{address // FILE_SIZE * FILE_SIZE:020d}"
    disk.open(path).pwrite(b"\xff", address % FILE_SIZE + 90)
    crash(disk)
    async with opened(disk) as store:
        assert store.max_physical_offset == address
        assert store.next_queue_offset("orders", 0) == 20
        rest = store.commit_log.files.files[-1].view[address % FILE_SIZE :]
        assert not any(rest)
        # The same sizes again: stale records would begin right where new ones end.
        stored(store.append(put_of(b"new" + bytes(400))))
    crash(disk)
    async with opened(disk) as store:
        assert store.next_queue_offset("orders", 0) == 21
        assert body_of(read_all(store, "orders")[-1]).startswith(b"new")


async def test_deleted_topic_does_not_come_back_by_a_clean_start_and_restarts_at_zero() -> None:
    disk = MemoryDisk()
    async with opened(disk) as store:
        stored(store.append(put_of(b"other")))
        for number in range(30):
            stored(store.append(put_of(b"%d" % number, "doomed")))
        assert store.delete_topic("doomed")
    async with opened(disk) as store:
        assert store.queue_bounds("doomed", 0) is None
        assert stored(store.append(put_of(b"reborn", "doomed"))).queue_offset == 0
    crash(disk)
    async with opened(disk) as store:
        assert [body_of(record) for record in read_all(store, "doomed")] == [b"reborn"]


async def test_log_without_its_first_file_keeps_what_is_left(
    autojump_clock: trio.abc.Clock,
) -> None:
    """As after retention: queues begin at their first message that is still there."""
    disk = MemoryDisk()
    expected = await filled(disk)
    disk.unlink(ROOT / "commitlog" / f"{0:020d}")
    for crashed in (False, True):
        if crashed:
            crash(disk)
        async with opened(disk) as store:
            assert store.min_physical_offset == FILE_SIZE
            for key, records in read_queues(store).items():
                bounds = store.queue_bounds(*key)
                assert bounds is not None
                assert bounds[0] > 0
                assert records == expected[key][bounds[0] :]


async def test_no_log_at_all_empties_the_queues() -> None:
    disk = MemoryDisk()
    await filled(disk)
    remove(disk, ROOT / "commitlog")
    async with opened(disk) as store:
        assert store.max_physical_offset == 0
        assert not store.queues()
        assert stored(store.append(put_of())).queue_offset == 0


async def test_missing_file_in_the_middle_is_an_error() -> None:
    disk = MemoryDisk()
    await filled(disk)
    disk.unlink(ROOT / "commitlog" / f"{FILE_SIZE:020d}")
    with pytest.raises(StoreDamagedError, match="lacks a file"):
        async with opened(disk):
            pytest.fail("opened a log with a hole")


async def test_torn_checkpoint_only_costs_time() -> None:
    disk = MemoryDisk()
    expected = await filled(disk)
    disk.open(ROOT / "checkpoint").pwrite(b"\xee" * 100, 240)
    kill(disk)
    async with opened(disk) as store:
        assert read_queues(store) == expected


async def test_checksums_are_not_compared_when_switched_off() -> None:
    disk = MemoryDisk()
    async with opened(disk) as store:
        stored(store.append(put_of(b"abc")))
    disk.open(ROOT / "commitlog" / f"{0:020d}").pwrite(b"X", 88)
    crash(disk)
    async with opened(disk, attrs.evolve(SMALL, check_crc_on_recover=False)) as store:
        assert body_of(read_all(store, "orders")[0]) == b"Xbc"
    crash(disk)
    async with opened(disk) as store:
        assert store.max_physical_offset == 0
