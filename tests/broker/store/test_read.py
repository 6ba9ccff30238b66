"""The rows and limits of the RocketMQ reference, section 8.1."""

import attrs
import pytest
from tests.support.stores import SMALL, body_of, opened, put_of, read_all, stored

from rocketrio_broker.store.config import StoreConfig
from rocketrio_broker.store.consume_queue import ENTRY
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.store.read import GATHER_LEAST, GetStatus
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_protocol.record.java_hash import java_string_hash

BIG = attrs.evolve(SMALL, mapped_file_size_commit_log=1 << 20)
SMALL_FILE = SMALL.mapped_file_size_commit_log
RED, BLUE = java_string_hash("red"), java_string_hash("blue")


def put_many(store: MessageStore, count: int, size: int = 10, **more: object) -> None:
    for number in range(count):
        stored(store.append(put_of(bytes([number % 256]) * size, **more)))  # type: ignore[arg-type]


async def test_offsets_outside_the_queue() -> None:
    async with opened(MemoryDisk(), BIG) as store:
        unknown = store.get_message("orders", 0, 5, 32)
        assert (unknown.status, unknown.next_begin_offset) == (GetStatus.NO_MATCHED_LOGIC_QUEUE, 0)
        store.queue_table.queue("orders", 0)
        empty = store.get_message("orders", 0, 5, 32)
        assert (empty.status, empty.next_begin_offset) == (GetStatus.NO_MESSAGE_IN_QUEUE, 0)
        put_many(store, 5)
        store.queue_table.queue("orders", 0).min_offset = 2
        rows = {1: (GetStatus.OFFSET_TOO_SMALL, 2), 5: (GetStatus.OFFSET_OVERFLOW_ONE, 5)}
        rows[6] = (GetStatus.OFFSET_OVERFLOW_BADLY, 5)
        for offset, (status, next_offset) in rows.items():
            result = store.get_message("orders", 0, offset, 32)
            assert (result.status, result.next_begin_offset) == (status, next_offset)
            assert (result.min_offset, result.max_offset) == (2, 5)


@pytest.mark.parametrize("offset", [1, 5, 6])
async def test_slave_does_not_move_its_readers(offset: int) -> None:
    async with opened(MemoryDisk(), BIG) as store:
        put_many(store, 5)
        store.queue_table.queue("orders", 0).min_offset = 2
        store.begin_replication()
        assert store.get_message("orders", 0, offset, 32).next_begin_offset == offset
    checking = attrs.evolve(BIG, offset_check_in_slave=True)
    async with opened(MemoryDisk(), checking) as store:
        put_many(store, 5)
        store.begin_replication()
        assert store.get_message("orders", 0, 9, 32).next_begin_offset == 5


async def test_read_from_memory_is_limited_by_messages_and_bytes() -> None:
    async with opened(MemoryDisk(), BIG) as store:
        put_many(store, 50)
        assert store.get_message("orders", 0, 0, 100).message_count == 32
        assert store.get_message("orders", 0, 0, 7).message_count == 7
        assert store.get_message("orders", 0, 45, 32).message_count == 5
        size = store.queue_table.by_key["orders", 0].entries(0, 1)[8:12]
        one = int.from_bytes(size)
        for limit, count in ((3 * one, 3), (3 * one - 1, 2), (1, 1)):
            result = store.get_message("orders", 0, 0, 32, max_bytes=limit)
            assert (result.message_count, result.body_size) == (count, count * one)
            assert result.next_begin_offset == count


async def test_first_message_is_taken_however_large() -> None:
    config = attrs.evolve(BIG, max_transfer_bytes_on_message_in_memory=10)
    async with opened(MemoryDisk(), config) as store:
        put_many(store, 3, 1000)
        assert store.get_message("orders", 0, 0, 32).message_count == 1


async def test_messages_far_from_the_end_count_as_on_disk() -> None:
    config = attrs.evolve(BIG, access_message_in_memory_max_bytes=2000)
    async with opened(MemoryDisk(), config) as store:
        put_many(store, 50, 100)
        cold = store.get_message("orders", 0, 0, 32)
        assert (cold.message_count, cold.suggest_pulling_from_slave) == (8, True)
        warm = store.get_message("orders", 0, 45, 32)
        assert (warm.message_count, warm.suggest_pulling_from_slave) == (5, False)
        # From the cold into the warm part: 8 are reached while still cold.
        edge = store.get_message("orders", 0, 38, 32)
        assert edge.message_count == 12
        assert not edge.suggest_pulling_from_slave
        assert store.is_in_memory(store.max_physical_offset - 2000)
        assert not store.is_in_memory(store.max_physical_offset - 2001)


def test_memory_size_is_a_share_of_the_machine_or_a_size() -> None:
    assert StoreConfig(access_message_in_memory_max_ratio=0.5).memory_size(1000) == 5
    assert StoreConfig(access_message_in_memory_max_bytes=7).memory_size(1000) == 7


async def test_touching_records_are_one_buffer_and_others_several() -> None:
    async with opened(MemoryDisk(), BIG) as store:
        for queue_id in (0, 0, 1, 0, 1, 1, 0):
            stored(store.append(put_of(queue_id=queue_id)))
        result = store.get_message("orders", 0, 0, 32)
        assert (result.message_count, len(result.buffers)) == (4, 3)
        assert sum(map(len, result.buffers)) == result.body_size


@pytest.mark.parametrize("sizes", [(10, 10), (10, 11)], ids=["one size", "two sizes"])
@pytest.mark.parametrize("count", [GATHER_LEAST, 2 * GATHER_LEAST])
async def test_many_separate_records_are_read_in_order(sizes: tuple[int, int], count: int) -> None:
    config = attrs.evolve(BIG, max_transfer_count_on_message_in_memory=1000)
    async with opened(MemoryDisk(), config) as store:
        for number in range(count):
            put_many(store, 1, size=sizes[number % 2])
            put_many(store, 1, queue_id=1)
        result = store.get_message("orders", 0, 0, 1000)
        assert result.message_count == count
        assert len(b"".join(result.buffers)) == result.body_size
        expected = [store.get_message("orders", 0, at, 1).buffers[0] for at in range(count)]
        assert b"".join(result.buffers) == b"".join(expected)


async def test_many_separate_records_in_two_files_are_read_in_order() -> None:
    config = attrs.evolve(SMALL, max_transfer_count_on_message_in_memory=1000)
    async with opened(MemoryDisk(), config) as store:
        for _ in range(100):
            put_many(store, 1, size=100)
            put_many(store, 1, size=100, queue_id=1)
        assert len(store.commit_log.files.files) > 1
        result = store.get_message("orders", 0, 0, 1000)
        expected = [store.get_message("orders", 0, at, 1).buffers[0] for at in range(100)]
        assert (result.message_count, b"".join(result.buffers)) == (100, b"".join(expected))


async def test_reading_goes_over_file_ends() -> None:
    async with opened(MemoryDisk()) as store:
        put_many(store, 100, 700)
        assert store.max_physical_offset > 4 * SMALL.mapped_file_size_commit_log
        bodies = [body_of(record)[0] for record in read_all(store, "orders")]
        assert bodies == list(range(100))


async def test_filter_by_tags_code_takes_what_matches_and_moves_on() -> None:
    async with opened(MemoryDisk(), BIG) as store:
        for number in range(30):
            tags = ("red", "blue", "green")[number % 3]
            stored(store.append(put_of(properties=f"TAGS\1{tags}".encode())))
        result = store.get_message("orders", 0, 0, 32, tags_codes=frozenset({RED, BLUE}))
        assert (result.status, result.message_count) == (GetStatus.FOUND, 20)
        assert result.next_begin_offset == 30
        assert len(result.buffers) == 10
        some = store.get_message("orders", 0, 0, 5, tags_codes=frozenset({RED}))
        # The scan ends before the entry that does not fit any more: the 6th red one, at 15 - but 13, 14 are skipped
        # only once it is known that nothing more is taken, so they are looked at again.
        assert some.message_count == 5
        assert some.next_begin_offset == 13
        none = store.get_message("orders", 0, 0, 32, tags_codes=frozenset({1}))
        assert (none.status, none.next_begin_offset) == (GetStatus.NO_MATCHED_MESSAGE, 30)


async def test_filtered_scan_reads_800_entries() -> None:
    config = attrs.evolve(BIG, mapped_file_size_consume_queue=20 * 2000)
    async with opened(MemoryDisk(), config) as store:
        put_many(store, 1000, 0)
        result = store.get_message("orders", 0, 0, 32, tags_codes=frozenset({1}))
        assert result.next_begin_offset == 800
        result = store.get_message("orders", 0, 0, 900, tags_codes=frozenset({1}))
        assert result.next_begin_offset == 900


async def test_entries_of_deleted_messages_are_passed_over() -> None:
    async with opened(MemoryDisk()) as store:
        put_many(store, 100, 700)
        await store.checkpoint()
        queue = store.queue_table.by_key["orders", 0]
        store.commit_log.files.remove_first()
        first = queue.first_at_or_after(store.min_physical_offset)
        result = store.get_message("orders", 0, first - 3, 32)
        assert result.status is GetStatus.FOUND
        assert body_of(bytes(result.buffers[0]))[0] == first
        gone = store.get_message("orders", 0, 0, 32, max_bytes=1)
        assert gone.status is GetStatus.FOUND
        store.commit_log.files.remove_first()
        store.commit_log.files.remove_first()
        store.reconfigure(attrs.evolve(SMALL, max_filter_message_size=20))
        removing = store.get_message("orders", 0, 0, 2)
        assert removing.status is GetStatus.MESSAGE_WAS_REMOVING
        assert removing.next_begin_offset == 2


async def test_missing_queue_file_leads_to_the_next() -> None:
    disk = MemoryDisk()
    async with opened(disk, BIG) as store:
        put_many(store, 45)
        await store.checkpoint()
        queue = store.queue_table.by_key["orders", 0]
        queue._files.unlink(queue._path(0))
        result = store.get_message("orders", 0, 3, 32)
        assert (result.status, result.next_begin_offset) == (GetStatus.OFFSET_FOUND_NULL, 20)
        store.begin_replication()
        assert store.get_message("orders", 0, 3, 32).next_begin_offset == 3


async def test_limits_can_change_while_the_store_is_open() -> None:
    async with opened(MemoryDisk(), BIG) as store:
        put_many(store, 50, 100)
        assert store.get_message("orders", 0, 0, 32).message_count == 32
        changed = attrs.evolve(BIG, access_message_in_memory_max_bytes=0)
        store.reconfigure(attrs.evolve(changed, max_transfer_count_on_message_in_disk=5))
        cold = store.get_message("orders", 0, 0, 32)
        assert (cold.message_count, cold.suggest_pulling_from_slave) == (5, True)
        assert not store.is_in_memory(0)


@pytest.mark.parametrize(
    "damage", [(1 << 40, 100), (-1, 100), (0, 1 << 30), (0, -5), (0, 0), (SMALL_FILE - 100, 200)]
)
@pytest.mark.parametrize("codes", [None, frozenset({0})])
async def test_read_passes_over_an_entry_that_names_bytes_outside_of_the_log(
    damage: tuple[int, int], codes: frozenset[int] | None
) -> None:
    async with opened(MemoryDisk(), SMALL) as store:
        put_many(store, 60, 400)
        assert store.max_physical_offset > SMALL_FILE
        queue = store.queue_table.queue("orders", 0)
        queue.write_tail()
        file = store.queue_table._files.existing(queue._path(0))
        assert file is not None
        file.pwrite(ENTRY.pack(*damage, 0), ENTRY.size)
        found, count, offset = b"", 0, 0
        while offset < 60:
            result = store.get_message("orders", 0, offset, 32, tags_codes=codes)
            assert result.next_begin_offset > offset
            assert result.body_size == sum(map(len, result.buffers))
            offset = result.next_begin_offset
            found += b"".join(result.buffers)
            count += result.message_count
        assert count == 59
        assert all((bytes([number]) * 400 in found) == (number != 1) for number in range(60))
