"""The tables of a broker are in their files when it has stopped, whatever was answered last."""

import json
from pathlib import Path

import pytest
import trio
from tests.broker.builders import config_file, read
from tests.support.caller import Caller, caller_of
from tests.support.clocks import SettableClock
from tests.support.failing_disk import FailingDisk
from tests.support.faulty_disk import FaultyDisk
from tests.support.further import every_other
from trio.testing import MockClock

from rocketrio_broker.clients.queue_locks import QueueLocks
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_broker.offsets.manager import ConsumerOffsetManager
from rocketrio_broker.tables.config_file import ConfigFileError
from rocketrio_broker.tables.kept_tables import TableSyncService, keep_tables
from rocketrio_broker.tables.versioned_table import VersionedTable
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_protocol.bodies.topics import TopicConfig, TopicConfigSerializeWrapper
from rocketrio_protocol.errors import Error

TOPICS = Path("/data/config/topics.json")
JOURNAL = Path("/data/config/topics.json.journal")
OFFSETS = Path("/data/config/consumerOffset.json")


def topics_on(disk: MemoryDisk) -> VersionedTable[TopicConfig]:
    return VersionedTable(
        TopicConfigSerializeWrapper,
        {},
        file=config_file(TOPICS.name, disk),
        possible=lambda table: table,
        wall_clock=SettableClock(),
    )


def offsets_on(disk: MemoryDisk) -> ConsumerOffsetManager:
    return ConsumerOffsetManager(file=config_file(OFFSETS.name, disk), disk=disk)


def names_after_a_power_cut(disk: FaultyDisk) -> list[str]:
    """The topics that are found if nothing was kept but what had been synced."""
    topics = topics_on(disk.after_cut(seed=1, kept=0.0))
    topics.load()
    return list(topics.entries)


async def test_changed_tables_reach_the_disk_on_a_period(autojump_clock: MockClock) -> None:
    disk = FaultyDisk()
    topics = topics_on(disk)
    async with trio.open_nursery() as nursery:
        await nursery.start(TableSyncService([topics], disk=disk, interval=5).run)
        topics.put({"T": TopicConfig("T")})
        topics.put({"U": TopicConfig("U")})
        assert names_after_a_power_cut(disk) == ["T"]
        await trio.sleep(5.1)
        assert names_after_a_power_cut(disk) == ["T", "U"]
        nursery.cancel_scope.cancel()


async def test_a_killed_brokers_file_has_changes_of_some_seconds_ago_without_the_journal(
    autojump_clock: MockClock,
) -> None:
    """Where requests for syncs come all the time, too. Apache's broker does not read the journal."""
    disk = FaultyDisk()
    topics = topics_on(disk)
    async with trio.open_nursery() as nursery:
        await nursery.start(TableSyncService([topics], disk=disk, interval=5).run)
        for number in range(12):
            topics.put({f"T{number}": TopicConfig(f"T{number}")})
            topics.sync_soon()
            await trio.sleep(1)
        topics_in_file = json.loads(read(disk, TOPICS))["topicConfigTable"]
        assert {f"T{number}" for number in range(5)} <= set(topics_in_file)
        await trio.sleep(5)
        assert not disk.exists(JOURNAL)
        nursery.cancel_scope.cancel()


async def test_table_is_synced_soon_on_request(
    autojump_clock: MockClock,
) -> None:
    disk = FaultyDisk()
    topics = topics_on(disk)
    async with trio.open_nursery() as nursery:
        await nursery.start(TableSyncService([topics], disk=disk, interval=5).run)
        topics.put({"T": TopicConfig("T")})
        topics.put({"U": TopicConfig("U")})
        topics.sync_soon()
        await trio.sleep(0.1)
        assert names_after_a_power_cut(disk) == ["T", "U"]
        nursery.cancel_scope.cancel()


async def test_changing_table_is_written_whole_in_each_interval(
    autojump_clock: MockClock,
) -> None:
    disk = MemoryDisk()
    topics = topics_on(disk)
    async with trio.open_nursery() as nursery:
        await nursery.start(TableSyncService([topics], disk=disk, interval=5).run)
        for number in range(10):
            topics.put({f"T{number}": TopicConfig(f"T{number}")})
            await trio.sleep(3)
        assert b'"T6"' in read(disk, TOPICS)
        await trio.sleep(5)
        assert b'"T9"' in read(disk, TOPICS)
        assert not disk.exists(JOURNAL)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("changes", [1, 2])
async def test_a_table_that_cannot_be_synced_is_tried_again(
    changes: int, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first change writes the file, the second one the journal."""
    disk = FaultyDisk()
    topics = topics_on(disk)

    def failing(path: Path) -> None:
        raise OSError(5, "Input/output error")

    async with trio.open_nursery() as nursery:
        await nursery.start(TableSyncService([topics], disk=disk, interval=5).run)
        names = [f"T{number}" for number in range(changes)]
        for name in names[:-1]:
            topics.put({name: TopicConfig(name)})
        monkeypatch.setattr(disk, "sync_directory", failing)
        topics.put({names[-1]: TopicConfig(names[-1])})
        await trio.sleep(20)
        assert names_after_a_power_cut(disk) == names[:-1]
        monkeypatch.undo()
        await trio.sleep(6)
        assert names_after_a_power_cut(disk) == names
        nursery.cancel_scope.cancel()


async def test_what_changes_until_the_body_ends_is_written_and_synced(
    autojump_clock: MockClock,
) -> None:
    disk = FailingDisk()
    offsets, topics = offsets_on(disk), topics_on(disk)
    with trio.CancelScope() as scope:
        async with keep_tables(offsets, QueueLocks(), [topics], disk=disk):
            await trio.sleep(1)
            scope.cancel()
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await trio.sleep(10)  # every service of the tables has ended by now
                offsets.commit_offset("G", "T", 0, 5)
                topics.put({"T": TopicConfig("T", 1)})
                topics.put({"T": TopicConfig("T", 7)})
                assert b'"readQueueNums":7' not in read(disk, TOPICS)
    assert b"{0:5" in read(disk, OFFSETS)
    assert b'"readQueueNums":7' in read(disk, TOPICS)
    assert not disk.exists(JOURNAL)
    assert disk.steps["sync_directory", OFFSETS.parent] >= 2


async def test_a_file_that_cannot_be_written_at_the_end_does_not_keep_the_others_from_it(
    autojump_clock: MockClock,
) -> None:
    disk = FailingDisk()
    offsets, topics = offsets_on(disk), topics_on(disk)

    async def stop_on_a_full_disk() -> None:
        async with keep_tables(offsets, QueueLocks(), [topics], disk=disk):
            offsets.commit_offset("G", "T", 0, 5)
            topics.put({"T": TopicConfig("T", 7)})
            disk.fails_at, disk.where = "rename", str(OFFSETS)

    with pytest.raises(ConfigFileError, match=r"consumerOffset\.json cannot be written"):
        await stop_on_a_full_disk()
    assert disk.steps["sync_directory", OFFSETS.parent] >= 1


async def commit_until_stopped(caller: Caller, addr: str, answered: list[int]) -> None:
    for offset in range(1, 10_000):
        try:
            await caller.commit(addr, offset)
        except Error:
            return
        answered.append(offset)


@pytest.mark.parametrize("yields", every_other(range(8)))
async def test_no_answered_commit_is_lost_by_a_stop(yields: int, autojump_clock: MockClock) -> None:
    """Commits go on while the broker stops: each that was answered is there after the start."""
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        await caller.send(cluster.master.broker.address, b"first")
        answered: list[int] = []
        for _ in range(2):
            addr = cluster.master.broker.address
            async with trio.open_nursery() as nursery:
                nursery.start_soon(commit_until_stopped, caller, addr, answered)
                while len(answered) < 10:
                    await trio.lowlevel.checkpoint()
                for _ in range(yields):
                    await trio.lowlevel.checkpoint()
                await cluster.master.stop()
            await cluster.restart_master()
            assert await caller.committed(addr) >= answered[-1]
            answered.clear()
