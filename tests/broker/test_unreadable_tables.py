"""Tables whose files exist but cannot be read in both copies: what a lone broker, a pair and a promoted slave do."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio
from tests.support.caller import Caller, bodies, caller_of
from trio.testing import MockClock

from rocketrio_broker.embedded import EmbeddedCluster, Member
from rocketrio_broker.tables.config_file import UnreadableTablesError
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_protocol.bodies.topics import SubscriptionGroupConfig
from rocketrio_protocol.codes import ResponseCode

TABLES = {
    "topics": ("topics.json",),
    "groups": ("subscriptionGroup.json",),
    "offsets": ("consumerOffset.json", "rocketrioOffsets.json"),
    "delays": ("delayOffset.json",),
}
ALL = tuple(name for names in TABLES.values() for name in names)


def nuls(disk: MemoryDisk, path: Path) -> None:
    """As a power cut leaves both copies."""
    for each in (path, path.with_name(f"{path.name}.bak")):
        file = disk.open(each, create=True)
        file.truncate(0)
        file.truncate(300)


def emptied(disk: MemoryDisk, path: Path) -> None:
    disk.unlink(path.with_name(f"{path.name}.bak"))
    disk.open(path).truncate(0)


def halved(disk: MemoryDisk, path: Path) -> None:
    disk.unlink(path.with_name(f"{path.name}.bak"))
    file = disk.open(path)
    file.truncate(file.size // 2)


def damage(member: Member, names: tuple[str, ...], how: Callable[[MemoryDisk, Path], None]) -> None:
    disk = member.disk
    assert isinstance(disk, MemoryDisk)
    for name in names:
        how(disk, member.config.config_directory / name)


def contents(member: Member) -> dict[Path, bytes]:
    disk = member.disk
    assert isinstance(disk, MemoryDisk)
    folder = member.config.config_directory
    return {
        path: disk.open(path).pread(1 << 20, 0)
        for path in disk.files
        if path.parent == folder and path.name.removesuffix(".bak") in ALL
    }


@attrs.frozen
class Story:
    cluster: EmbeddedCluster
    call: Caller

    async def live(self) -> None:
        """Make a topic, a group, an offset, and the progress of a level."""
        addr = self.cluster.master.broker.address
        await self.call.create_topic(addr)
        self.cluster.master.broker.state.groups.update(SubscriptionGroupConfig("billing"))
        for number in range(10):
            await self.call.send(addr, b"%d" % number)
        await self.call.send(addr, b"delayed", properties="DELAY\x011")
        await self.call.commit(addr, 7)
        await trio.sleep(30)

    async def check(self, member: Member) -> None:
        """Everything is known again."""
        state = member.broker.state
        assert state.topics.topic_config("orders") is not None
        assert state.groups.find("billing") is not None
        assert await self.call.committed(member.broker.address) == 7
        pulled = bodies(await self.call.pull(member.broker.address, 0))
        assert pulled == [*(b"%d" % number for number in range(10)), b"delayed"]


@asynccontextmanager
async def lived(slaves: int = 0) -> AsyncGenerator[Story]:
    async with EmbeddedCluster(slaves=slaves) as cluster, caller_of(cluster) as call:
        story = Story(cluster, call)
        await story.live()
        yield story


@pytest.mark.parametrize(
    ("how", "is_killed"),
    [(nuls, True), (emptied, False), (halved, True)],
    ids=["nuls", "emptied", "halved"],
)
@pytest.mark.parametrize("table", TABLES)
async def test_lone_broker_with_messages_does_not_start_without_a_table(
    autojump_clock: MockClock,
    table: str,
    how: Callable[[MemoryDisk, Path], None],
    is_killed: bool,
) -> None:
    async with lived() as story:
        master = story.cluster.master
        await (master.kill() if is_killed else master.stop())
        damage(master, TABLES[table], how)
        before = contents(master)
        for _ in range(2):
            with pytest.raises(UnreadableTablesError, match="cannot be read") as caught:
                await master.start()
            assert TABLES[table][-1] in str(caught.value)
            assert "--set unreadable_tables=drop" in str(caught.value)
            assert contents(master) == before
        master.config = attrs.evolve(master.config, unreadable_tables="drop")
        await master.start()
        assert story.call is not None
        await trio.sleep(30)
        await master.stop()
        master.config = attrs.evolve(master.config, unreadable_tables="refuse")
        await master.start()
        known = master.broker.state.topics.topic_config("orders")
        assert (known is None) == (table == "topics")


@pytest.mark.parametrize("names", [ALL, *TABLES.values()])
async def test_table_whose_file_is_missing_or_whose_backup_is_good_is_no_reason_to_refuse(
    autojump_clock: MockClock, names: tuple[str, ...]
) -> None:
    async with lived() as story:
        master = story.cluster.master
        disk = master.disk
        assert isinstance(disk, MemoryDisk)
        await master.stop()
        for name in names:
            path = master.config.config_directory / name
            file = disk.open(path)
            disk.open(path.with_name(f"{name}.bak"), create=True).pwrite(
                file.pread(file.size, 0), 0
            )
            file.truncate(0)
        await master.start()
        await story.check(master)
        await master.stop()
        for name in names:
            path = master.config.config_directory / name
            for each in (path, path.with_name(f"{name}.bak")):
                disk.unlink(each)
        await master.start()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "is_killed"), [(nuls, True), (emptied, False)], ids=["nuls", "emptied"]
)
async def test_master_takes_its_tables_from_a_slave(
    autojump_clock: MockClock, how: Callable[[MemoryDisk, Path], None], is_killed: bool
) -> None:
    async with lived(slaves=1) as story:
        master = story.cluster.master
        await (master.kill() if is_killed else master.stop())
        damage(master, ALL, how)
        await master.start()
        await trio.sleep(8)
        await story.check(master)
        await master.stop()
        await master.start()
        await story.check(master)


@pytest.mark.slow
async def test_slave_takes_its_tables_from_the_master(autojump_clock: MockClock) -> None:
    async with lived(slaves=1) as story:
        slave = story.cluster.slaves[0]
        await slave.stop()
        damage(slave, ALL, nuls)
        await slave.start()
        await trio.sleep(20)
        await story.cluster.master.kill()
        await story.call.change_role(slave.broker.address, "async-master", 0)
        await story.check(slave)


async def test_slave_without_tables_remains_a_slave_when_it_is_to_be_master(
    autojump_clock: MockClock,
) -> None:
    async with lived(slaves=1) as story:
        slave = story.cluster.slaves[0]
        await story.cluster.master.kill()
        await slave.stop()
        damage(slave, ALL, nuls)
        await slave.start()
        answer = await story.call.change_role(slave.broker.address, "async-master", 0)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "topics.json cannot be read" in (answer.remark or "")
        assert slave.broker.role == "slave"


async def test_broker_without_messages_starts_as_a_new_one(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster() as cluster:
        await cluster.master.stop()
        damage(cluster.master, ALL, nuls)
        for _ in range(2):
            await cluster.master.start()
            await cluster.master.stop()
        await cluster.master.start()
