"""Flip one thing in a log or a queue, and see whether the check finds that and nothing else."""

from collections.abc import Callable

import pytest
import trio
from tests.support.clocks import SettableClock
from tests.support.stores import SMALL, opened, put_of, stored

from rocketrio_broker.store.consume_queue import ENTRY
from rocketrio_broker.store.log_check import Finding, LogCheck, digest
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


async def checked(store: MessageStore, disk: MemoryDisk) -> list[Finding]:
    check = LogCheck(store, disk=disk)
    await check.start()
    found: list[Finding] = []
    while check.position < check.end:
        found += await check.step()
    return found


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
