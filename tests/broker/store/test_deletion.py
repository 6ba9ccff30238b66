from pathlib import Path

import attrs
import pytest
import trio
from tests.broker.store.generated_logs import FILE_SIZE, LogWriter, log_of
from tests.support.faulty_disk import FaultyDisk
from tests.support.stores import HOST, ROOT, SMALL, body_of, crash, opened, put_of, read_all, stored
from trio.testing import MockClock

from rocketrio_broker.store.consume_queue_table import ConsumeQueueTable
from rocketrio_broker.store.deletion import Deletion, deletion_in, deletion_record
from rocketrio_broker.store.dispatch import DelayLevels, QueueDispatcher
from rocketrio_broker.store.log_walk import LogWalk
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_protocol.message import decode_messages

LARGE = attrs.evolve(SMALL, mapped_file_size_commit_log=1 << 20)


def put(store: MessageStore, *bodies: bytes, topic: str = "orders") -> None:
    for body in bodies:
        stored(store.append(put_of(body, topic)))


def delete(store: MessageStore, topic: str = "orders") -> None:
    """As a master does it."""
    stored(store.append(deletion_record(topic, "3.1", host=HOST, now_ms=1)))
    store.delete_topic(topic)


def bodies(store: MessageStore, topic: str = "orders") -> list[bytes]:
    return [body_of(record) for record in read_all(store, topic)]


def copy(master: MessageStore, slave: MessageStore) -> None:
    """Give a slave what it lacks of the log."""
    data = master.read_log(slave.max_physical_offset, 1 << 20)
    assert data is not None
    slave.append_raw(slave.max_physical_offset, data)


async def test_record_of_a_deletion_is_recognized(autojump_clock: MockClock) -> None:
    async with opened(MemoryDisk()) as store:
        delete(store)
        data = store.read_log(0, 1 << 20)
        assert data is not None
        (message,) = decode_messages(data)
        assert (message.topic, message.body) == ("orders", b"")
    assert deletion_in(b"t", b"rocketrioDeleted\x013.1\x02") == Deletion("t", "3.1")
    assert deletion_in(b"t", b"rocketrioDeleted\x01\x02") is None
    assert deletion_in(b"t", b"TAGS\x01rocketrioDeleted\x02") is None


@pytest.mark.parametrize("count", [1, 300], ids=["one by one", "as columns"])
async def test_slave_drops_an_incarnation_once_the_deletion_is_in_its_log(
    count: int, autojump_clock: MockClock
) -> None:
    async with (
        opened(MemoryDisk(), LARGE) as master,
        opened(MemoryDisk(), LARGE, root=ROOT / "2") as slave,
    ):
        slave.begin_replication()
        put(master, *[b"earlier"] * count)
        put(master, *[b"other"] * count, topic="other")
        copy(master, slave)
        await trio.sleep(1)
        assert bodies(slave) == [b"earlier"] * count
        delete(master)
        copy(master, slave)
        await trio.sleep(1)
        assert slave.queue_bounds("orders", 0) is None
        assert slave.dispatcher.take_deletions() == [Deletion("orders", "3.1")]
        slave.end_replication()
        put(slave, b"later")
        assert bodies(slave) == [b"later"]
        assert bodies(slave, "other") == [b"other"] * count


@pytest.mark.parametrize("count", [1, 300], ids=["one by one", "as columns"])
async def test_incarnations_that_arrive_together_are_kept_separate(
    count: int, autojump_clock: MockClock
) -> None:
    async with (
        opened(MemoryDisk(), LARGE) as master,
        opened(MemoryDisk(), LARGE, root=ROOT / "2") as slave,
    ):
        slave.begin_replication()
        put(master, *[b"earlier"] * count)
        delete(master)
        put(master, *[b"later"] * (count + 1))
        copy(master, slave)
        await trio.sleep(1)
        assert bodies(slave) == bodies(master) == [b"later"] * (count + 1)


async def test_rebuilt_queues_hold_the_last_incarnation_alone(autojump_clock: MockClock) -> None:
    disk = MemoryDisk()
    async with opened(disk) as store:
        put(store, *[b"earlier"] * 40)
        put(store, b"gone", topic="gone")
        delete(store)
        delete(store, "gone")
        put(store, b"later")
        folder = store.directory.consume_queue
    for path in [path for path in disk.files if folder in path.parents]:
        disk.unlink(path)
    disk.directories = {path for path in disk.directories if folder not in (path, *path.parents)}
    async with opened(disk) as store:
        assert bodies(store) == [b"later"]
        assert store.queues().keys() == {"orders"}


@pytest.mark.parametrize("later", [[], [b"later"]])
async def test_crash_restores_no_earlier_incarnation_whatever_the_last_checkpoint(
    later: list[bytes], autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    disk = MemoryDisk()
    async with opened(disk) as store:
        put(store, b"other", topic="other")
        put(store, b"earlier", b"earlier")
        await store.checkpoint()
        checkpoint = disk.open(ROOT / "checkpoint").pread(4096, 0)
        put(store, b"earlier")
        delete(store)
        put(store, *later)
    crash(disk, checkpoint)
    async with opened(disk) as store:
        assert bodies(store) == later
    assert "recovery from earlier" not in caplog.text


@pytest.mark.parametrize("others", [0, 1], ids=["alone", "beside another topic"])
async def test_power_cut_restores_no_deleted_queue_behind_the_checkpoint(
    autojump_clock: MockClock, others: int
) -> None:
    disk = FaultyDisk()
    async with opened(disk) as store:
        put(store, b"a", b"b")
        for _ in range(others):
            put(store, b"stays", topic="bills")
        await store.checkpoint()
        delete(store)
        await store.checkpoint()
        found = disk.after_cut(seed=1, kept=0.0)
    async with opened(found) as store:
        assert bodies(store) == []
        assert bodies(store, "bills") == [b"stays"] * others


async def test_deletion_that_is_cut_off_gives_the_queues_back(autojump_clock: MockClock) -> None:
    """It was in a tail that the next master does not have."""
    disk = MemoryDisk()
    async with opened(disk) as slave:
        put(slave, b"other", topic="other")
        delete(slave, "other")
        put(slave, b"kept", b"kept too")
        put(slave, b"other again", topic="other")
        end = slave.max_physical_offset
        delete(slave)
        put(slave, b"of a life that never was")
        slave.begin_replication()
        await slave.checkpoint()
        slave.dispatcher.take_deletions()
        slave.truncate_to(end)
        assert slave.dispatcher.take_deletions() == [Deletion("orders", "3.1", is_undone=True)]
        checkpoint = disk.open(ROOT / "checkpoint").pread(4096, 0)
        await trio.sleep(1)
        assert bodies(slave) == [b"kept", b"kept too"]
        assert bodies(slave, "other") == [b"other again"]
        assert slave.dispatched.value == end
    crash(disk, checkpoint)
    async with opened(disk) as slave:
        assert bodies(slave) == [b"kept", b"kept too"]
        assert bodies(slave, "other") == [b"other again"]


def test_deletion_read_again_leaves_a_later_incarnation_alone() -> None:
    writer = LogWriter(1)
    writer.write(1)
    table = ConsumeQueueTable(Path("/q"), 400, disk=MemoryDisk())
    dispatcher = QueueDispatcher(table, DelayLevels("1s"))
    log = log_of(writer.data, FILE_SIZE)
    address, size, topic, queue_id, *_ = next(LogWalk(log, 0).records(1))
    record = (address, size, topic, queue_id, 0, 0, 1, b"")
    deletion = (address + size, 100, topic, 0, 0, 4, 1, b"rocketrioDeleted\x011.0\x02")
    later = (address + size + 100, size, topic, queue_id, 0, 0, 1, b"")
    dispatcher.dispatch([record, deletion, later])
    dispatcher.dispatch([record, deletion])
    queue = table.by_key[topic.decode(), queue_id]
    assert (queue.max_offset, queue.entry(0)) == (1, (later[0], size, 0))
