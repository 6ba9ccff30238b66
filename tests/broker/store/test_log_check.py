"""Flip one thing in a log or a queue, and see whether the check finds that and nothing else."""

from collections.abc import Awaitable, Callable

import pytest
import trio
from tests.support.clocks import SettableClock
from tests.support.stores import HOST, SMALL, opened, put_of, stored

from rocketrio_broker.store.consume_queue import ENTRY, ConsumeQueue
from rocketrio_broker.store.deletion import deletion_record
from rocketrio_broker.store.log_check import LogCheck, LogFault, digest
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.testing.memory_disk import MemoryDisk

COUNT = 300


async def fill(store: MessageStore, *, count: int = COUNT) -> list[int]:
    """Messages over three files, two topics, three queues; their addresses."""
    addresses = []
    for number in range(count):
        topic, queue_id = ("orders", number % 2) if number % 3 else ("payments", 0)
        result = stored(store.append(put_of(b"%d" % number * 20, topic=topic, queue_id=queue_id)))
        addresses.append(result.physical_offset)
    await trio.sleep(2)
    return addresses


async def checked(
    store: MessageStore,
    disk: MemoryDisk,
    *,
    topic_exists: Callable[[str], bool] = lambda _: True,
    meanwhile: Callable[[], Awaitable[object]] | None = None,
) -> list[LogFault]:
    check = LogCheck(store, disk=disk, topic_exists=topic_exists)
    await check.start()
    found: list[LogFault] = []
    while check.position < check.end:
        found += await check.step()
        if meanwhile is not None:
            await meanwhile()
    return found + check.finish()


def flip(store: MessageStore, address: int, *, xor: int = 1) -> None:
    file = store.commit_log.files.file_at(address)
    assert file is not None
    file.mapping[address - file.start_offset] ^= xor


async def test_check_of_a_whole_log_finds_no_problem(autojump_clock: trio.abc.Clock) -> None:
    disk = MemoryDisk()
    async with opened(disk) as store:
        await fill(store)
        assert len(store.commit_log.files.files) > 2
        assert await checked(store, disk) == []
        await store.checkpoint()
        await store._retention.delete_files(1)
        assert store.min_physical_offset > 0
        assert await checked(store, disk) == []


AT = 200


@pytest.mark.parametrize(
    ("distance", "expected"),
    [
        (0, "no record begins there"),  # size: 2^24 more
        (3, "no record begins there"),
        (7, "no record begins there"),  # magic
        (11, "CRC"),  # the checksum itself
        (15, "the record says it is message"),  # queue id
        (27, "the record says it is message"),  # queue offset
        (35, "the record there says it lies at"),
        (90, "CRC"),  # body
    ],
)
async def test_flipped_byte_of_a_record_is_found_at_its_address(
    autojump_clock: trio.abc.Clock, distance: int, expected: str
) -> None:
    disk = MemoryDisk()
    async with opened(disk) as store:
        addresses = await fill(store)
        flip(store, addresses[AT] + distance)
        found = await checked(store, disk)
        assert {finding.physical_offset for finding in found} == {addresses[AT]}
        assert any(expected in finding.problem for finding in found), found


async def test_flipped_topic_is_found(autojump_clock: trio.abc.Clock) -> None:
    disk = MemoryDisk()
    async with opened(disk) as store:
        addresses = await fill(store)
        record = store.message_at(addresses[AT])
        assert record is not None
        flip(store, addresses[AT] + bytes(record).index(b"orders"))
        (found,) = await checked(store, disk)
        assert found.physical_offset == addresses[AT]
        assert "of nrders" in found.problem


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda address, size, code: (address + 1, size, code), id="address"),
        pytest.param(lambda address, size, code: (address - 1, size, code), id="address before"),
        pytest.param(lambda address, size, code: (address + (1 << 50), size, code), id="far away"),
        pytest.param(lambda address, size, code: (address, size + 1, code), id="size"),
    ],
)
@pytest.mark.parametrize("number", [0, 40, -1])
async def test_changed_queue_entry_is_found(
    autojump_clock: trio.abc.Clock,
    change: Callable[[int, int, int], tuple[int, int, int]],
    number: int,
) -> None:
    disk = MemoryDisk()
    async with opened(disk) as store:
        await fill(store)
        queue = store.queues()["orders"][0]
        queue.write_tail()
        number %= queue.max_offset
        entry = queue.entry(number)
        assert entry is not None
        position = number * ENTRY.size
        path = queue.directory / f"{position - position % 400:020d}"
        disk.open(path).pwrite(ENTRY.pack(*change(*entry)), position % 400)
        found = await checked(store, disk)
        assert len(found) == 1, found
        assert "of orders" in found[0].problem


async def test_messages_that_a_rebuilt_queue_lacks_are_found(
    autojump_clock: trio.abc.Clock,
) -> None:
    disk = MemoryDisk()
    async with opened(disk) as store:
        await fill(store)
        queue = store.queues()["orders"][1]
        queue.fill_to(queue.max_offset + 1)
        stored(store.append(put_of(topic="orders", queue_id=1)))
        (found,) = await checked(store, disk)
        assert f"queue 1 of orders lacks its message {queue.max_offset - 2}" in found.problem


def lose(queue: ConsumeQueue, disk: MemoryDisk, file: int) -> None:
    queue._files.unlink(queue.directory / f"{400 * file:020d}")


def shorten(queue: ConsumeQueue, disk: MemoryDisk, file: int) -> None:
    disk.open(queue.directory / f"{400 * file:020d}").truncate(50)


def zero(queue: ConsumeQueue, disk: MemoryDisk, file: int) -> None:
    disk.open(queue.directory / f"{400 * file:020d}").pwrite(bytes(400), 0)


@pytest.mark.parametrize("file", [0, 2, 4])
@pytest.mark.parametrize(("damage", "kept"), [(lose, 0), (shorten, 2), (zero, 0)])
async def test_records_whose_entries_are_lost_are_named_for_each_queue(
    autojump_clock: trio.abc.Clock,
    damage: Callable[[ConsumeQueue, MemoryDisk, int], None],
    kept: int,
    file: int,
) -> None:
    disk = MemoryDisk()
    async with opened(disk) as store:
        await fill(store)
        queue = store.queues()["orders"][1]
        queue.write_tail()
        first, last = 20 * file + kept, 20 * file + 19
        entry = queue.entry(first)
        assert entry is not None
        damage(queue, disk, file)
        found = await checked(store, disk)
        assert found == [
            LogFault(
                entry[0],
                f"{last - first + 1} messages of queue 1 of orders, from {first} to {last}, have no"
                " entry, so consumers do not get them",
            )
        ]


async def test_zeros_in_place_of_an_entry_do_not_point_to_the_record_at_0(
    autojump_clock: trio.abc.Clock,
) -> None:
    disk = MemoryDisk()
    async with opened(disk) as store:
        assert (await fill(store))[0] == 0
        queue = store.queues()["payments"][0]
        queue.write_tail()
        zero(queue, disk, 0)
        (found,) = await checked(store, disk)
        assert "20 messages of queue 0 of payments, from 0 to 19," in found.problem


async def test_queue_that_is_lost_as_a_whole_is_found_unless_its_topic_is_gone(
    autojump_clock: trio.abc.Clock,
) -> None:
    disk = MemoryDisk()
    async with opened(disk) as store:
        addresses = await fill(store)
        store.queue_table.delete_queue(store.queues()["payments"][0])
        (found,) = await checked(store, disk)
        assert found.physical_offset == addresses[0]
        assert "100 messages of queue 0 of payments, from 0 to 99," in found.problem
        assert await checked(store, disk, topic_exists=lambda topic: topic == "orders") == []
        stored(store.append(deletion_record("payments", "1", host=HOST, now_ms=1)))
        assert await checked(store, disk) == []
        stored(store.append(put_of(topic="payments")))
        store.queue_table.delete_queue(store.queues()["payments"][0])
        (found,) = await checked(store, disk)
        assert "message 0 of queue 0 of payments has no entry" in found.problem


async def test_topic_that_is_deleted_during_the_pass_is_no_problem(
    autojump_clock: trio.abc.Clock,
) -> None:
    disk = MemoryDisk()
    async with opened(disk) as store:
        await fill(store, count=1000)
        await store.checkpoint()

        async def delete() -> None:
            if store.delete_topic("payments"):
                stored(store.append(put_of(topic="payments")))

        assert await checked(store, disk, meanwhile=delete) == []


async def test_files_that_expire_during_the_pass_are_no_problem(
    autojump_clock: trio.abc.Clock,
) -> None:
    disk = MemoryDisk()
    async with opened(disk) as store:
        await fill(store, count=1000)
        store.key_index.build_all()
        await store.checkpoint()
        assert await checked(store, disk, meanwhile=lambda: store._retention.delete_files(1)) == []
        assert store.min_physical_offset > 0


async def test_queues_beyond_the_limit_are_one_problem(
    autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketrio_broker.store.log_check.MISSING_LIMIT", 2)
    disk = MemoryDisk()
    async with opened(disk) as store:
        for queue_id in range(5):
            stored(store.append(put_of(queue_id=queue_id)))
        store.delete_topic("orders")
        found = [one.problem for one in await checked(store, disk)]
        assert [problem.partition(",")[0] for problem in found] == [
            "message 0 of queue 0 of orders has no entry",
            "message 0 of queue 1 of orders has no entry",
            "3 messages of further queues",
        ]


async def test_topic_deleted_and_created_again_passes_the_check(
    autojump_clock: trio.abc.Clock,
) -> None:
    disk = MemoryDisk()
    async with opened(disk, clock=SettableClock()) as store:
        await fill(store)
        store.delete_topic("payments")
        await fill(store, count=30)
        assert await checked(store, disk) == []


async def test_pass_over_a_log_that_is_cut_ends(autojump_clock: trio.abc.Clock) -> None:
    disk = MemoryDisk()
    async with opened(disk) as store:
        addresses = await fill(store)
        check = LogCheck(store, disk=disk)
        await check.start()
        store.truncate_to(addresses[100])
        assert await check.step() == []
        assert check.is_cut


async def test_digest_is_of_exactly_those_bytes(autojump_clock: trio.abc.Clock) -> None:
    disk = MemoryDisk()
    async with opened(disk) as store:
        addresses = await fill(store)
        whole = digest(store.commit_log, 0, addresses[-1])
        assert whole is not None
        assert len(whole) == 32
        flip(store, addresses[-1])
        assert digest(store.commit_log, 0, addresses[-1]) == whole
        flip(store, addresses[-1] - 1)
        assert digest(store.commit_log, 0, addresses[-1]) != whole
        assert digest(store.commit_log, 0, store.max_physical_offset + 1) is None
    assert SMALL.mapped_file_size_commit_log < addresses[-1]
