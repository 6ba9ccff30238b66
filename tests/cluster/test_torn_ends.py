"""The end of a log that a crash tore is its holder's damage: the good copy of another broker takes its place."""

import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
from tests.support.caller import Caller, caller_of
from tests.support.replication import assert_same_logs, log_bytes, wait_same_ends
from tests.support.waiting import eventually
from trio.testing import MockClock

from rocketrio_broker.broker import Broker
from rocketrio_broker.embedded import EmbeddedCluster, Member
from rocketrio_broker.ha.client import HAClientState
from rocketrio_broker.ha.torn_end import TornEnd
from rocketrio_broker.store.config import StoreConfig
from rocketrio_protocol.codes import ResponseCode

FILE_SIZE = 64 << 10
STORE = StoreConfig(
    mapped_file_size_commit_log=FILE_SIZE,
    mapped_file_size_consume_queue=2000,
    max_hash_slot_num=20,
    max_index_num=100,
)
PROPERTIES = "KEYS\x01{}\x02TAGS\x01k"


@attrs.define
class Pair:
    """A cluster whose members' logs can be damaged while they are down."""

    cluster: EmbeddedCluster
    caller: Caller

    @property
    def master(self) -> Member:
        return self.cluster.master

    async def send(self, *names: str, properties: str = "") -> None:
        """Messages that were acknowledged."""
        for name in names:
            text = PROPERTIES.format(name) + properties
            addr = self.master.broker.address
            answer = await self.caller.send(addr, name.encode(), properties=text)
            assert answer.code == ResponseCode.SUCCESS, answer.remark

    async def read(self, broker: Broker, topic: str = "orders") -> list[str]:
        return [body.decode() for body in await self.caller.read(broker.address, topic=topic)]

    async def level(self) -> None:
        """Wait until all follow and have one log, read alike."""
        await eventually(self.is_level, 90)
        stores = [member.broker.store for member in self.cluster.members]
        await wait_same_ends(*stores)
        assert_same_logs(*stores)

    def is_level(self) -> bool:
        ends = {member.broker.store.max_physical_offset for member in self.cluster.members}
        states = set()
        for member in self.cluster.slaves:
            assert member.broker.slave is not None
            states.add(member.broker.slave.client.state)
        return len(ends) == 1 and states <= {HAClientState.FOLLOWING}


def damage(member: Member, address: int, data: bytes) -> None:
    """Overwrite bytes of a log that nobody has open, as far as it goes."""
    folder = member.config.data / "commitlog"
    for offset, byte in enumerate(data, address):
        path = folder / f"{offset // FILE_SIZE * FILE_SIZE:020d}"
        if member.disk.exists(path):
            member.disk.open(path).pwrite(bytes([byte]), offset % FILE_SIZE)


def cut_files(member: Member) -> list[str]:
    return member.disk.list_directory(member.config.data / "cut")


@asynccontextmanager
async def pair_of(slaves: int = 1, **settings: Any) -> AsyncGenerator[Pair]:
    async with (
        EmbeddedCluster(slaves=slaves, store=STORE, slave_read_enable=True, **settings) as cluster,
        caller_of(cluster) as caller,
    ):
        await trio.sleep(2)
        yield Pair(cluster, caller)


MONEY: dict[str, Any] = {"role": "sync-master", "ha_acknowledge": "disk"}


@pytest.mark.parametrize("is_checkpointed", [False, True])
@pytest.mark.parametrize("torn", [bytes(17), b"\0", b"\xb7", b"x"], ids=repr)
@pytest.mark.parametrize("who", ["master", "slave"])
async def test_torn_last_record_is_mended_and_the_pair_continues(
    autojump_clock: MockClock, who: str, torn: bytes, is_checkpointed: bool
) -> None:
    async with pair_of(**MONEY) as pair:
        await pair.send("first", "second", "last")
        await pair.level()
        member = pair.master if who == "master" else pair.cluster.slaves[0]
        if is_checkpointed:
            await member.broker.store.checkpoint()
        before = log_bytes(member.broker.store)
        await member.kill()
        damage(member, len(before) - len(torn), torn)
        await member.start()
        await pair.level()
        assert log_bytes(member.broker.store) == before
        assert len(cut_files(member)) == 1
        await pair.send("more")
        await pair.level()
        assert await pair.read(member.broker) == ["first", "second", "last", "more"]


async def test_damage_that_is_not_in_the_last_record_is_mended_too(
    autojump_clock: MockClock,
) -> None:
    async with pair_of(**MONEY) as pair:
        names = [f"{number:06d}" for number in range(30)]
        await pair.send(*names)
        await pair.level()
        before = log_bytes(pair.master.broker.store)
        torn_at = before.index(b"KEYS\x01000020")
        await pair.master.kill()
        damage(pair.master, torn_at, bytes(5))
        await pair.master.start()
        await pair.level()
        assert log_bytes(pair.master.broker.store) == before
        assert await pair.read(pair.master.broker) == names


@pytest.mark.parametrize("who", ["master", "slave"])
@pytest.mark.parametrize(("place", "byte"), [(24, b"\x7f"), (27, b"\xc8"), (27, b"\0")])
async def test_queue_that_a_damaged_head_misled_is_whole_again(
    autojump_clock: MockClock, who: str, place: int, byte: bytes
) -> None:
    """In the queue offset: recovery takes a gap for true, and the queue loses what lay before or behind it."""
    async with pair_of(**MONEY) as pair:
        names = [f"{number:06d}" for number in range(30)]
        await pair.send(*names)
        await pair.level()
        member = pair.master if who == "master" else pair.cluster.slaves[0]
        before = log_bytes(member.broker.store)
        await member.kill()
        damage(member, 27 * (len(before) // len(names)) + place, byte)
        await member.start()
        await pair.level()
        assert log_bytes(member.broker.store) == before
        assert await pair.read(member.broker) == names


async def test_what_only_the_torn_log_has_is_kept(autojump_clock: MockClock) -> None:
    """An asynchronous master is ahead of its slave; the slave has the torn record, and nothing behind it."""
    async with pair_of() as pair:
        (slave,) = pair.cluster.slaves
        await pair.send("shared 1", "shared 2")
        await pair.level()
        end = pair.master.broker.store.max_physical_offset
        pair.cluster.memory_network.partition(pair.master.host, slave.host)
        await pair.send("alone 1", "alone 2")
        before = log_bytes(pair.master.broker.store)
        await pair.master.kill()
        damage(pair.master, end - 17, bytes(17))
        pair.cluster.memory_network.heal()
        await pair.master.start()
        assert log_bytes(pair.master.broker.store) == before
        await pair.level()
        assert (await pair.read(slave.broker))[2:] == ["alone 1", "alone 2"]


@pytest.mark.parametrize("torn", [bytes(17), b"x"], ids=repr)
async def test_torn_delayed_message_is_delivered(autojump_clock: MockClock, torn: bytes) -> None:
    """Acknowledged by one of two slaves, as both have it; the master alone lost its properties."""
    async with pair_of(2, **MONEY) as pair:
        await pair.send("first")
        await pair.send("later", properties="\x02DELAY\x014")
        await pair.level()
        end = pair.master.broker.store.max_physical_offset
        await pair.master.kill()
        damage(pair.master, end - len(torn), torn)
        await pair.master.start()
        await pair.level()
        await trio.sleep(40)
        assert await pair.read(pair.master.broker) == ["first", "later"]
        await pair.level()


async def test_two_slaves_are_right_against_a_master_that_stopped_cleanly(
    autojump_clock: MockClock,
) -> None:
    """A disk that lies: nothing but the two that agree shows which copy is the wrong one."""
    async with pair_of(2) as pair:
        await pair.send("first", "last")
        await pair.level()
        before = log_bytes(pair.master.broker.store)
        await pair.master.stop()
        damage(pair.master, len(before) - 1, b"x")
        await pair.master.start()
        assert log_bytes(pair.master.broker.store) == before
        await pair.level()


async def test_master_that_stopped_cleanly_is_not_outvoted_by_one_slave(
    autojump_clock: MockClock,
) -> None:
    async with pair_of() as pair:
        (slave,) = pair.cluster.slaves
        await pair.send("first", "last")
        await pair.level()
        before = log_bytes(pair.master.broker.store)
        await pair.master.stop()
        damage(pair.master, len(before) - 1, b"x")
        broker = await pair.master.start()
        assert log_bytes(broker.store)[-1:] == b"x"
        await trio.sleep(30)
        assert slave.broker.slave is not None
        assert slave.broker.slave.client.state is HAClientState.DIVERGED
        assert cut_files(pair.master) == cut_files(slave) == []


async def test_good_copy_is_not_cut_for_a_damaged_one_by_any_rule(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair_of(ha_divergent_tail="cut") as pair:
        (slave,) = pair.cluster.slaves
        await pair.send("first", "last")
        await pair.level()
        await pair.master.broker.store.checkpoint()
        before = log_bytes(slave.broker.store)
        await pair.master.kill()
        damage(pair.master, len(before) - 17, bytes(17))

        async def compare_nothing(*_: object) -> None:
            await trio.lowlevel.checkpoint()

        with monkeypatch.context() as patch:
            # The master cannot reach its slave's replication port.
            patch.setattr(TornEnd, "_read", compare_nothing)
            await pair.master.start()
        await trio.sleep(30)
        assert log_bytes(slave.broker.store) == before
        assert cut_files(slave) == []
        await pair.master.kill()
        await pair.master.start()
        await pair.level()
        assert log_bytes(pair.master.broker.store) == before


async def test_messages_of_one_size_that_two_masters_took_are_no_damage(
    autojump_clock: MockClock,
) -> None:
    async with pair_of() as pair:
        old, (new,) = pair.master, pair.cluster.slaves
        await pair.send("common")
        await pair.level()
        pair.cluster.memory_network.partition(old.host, new.host)
        await pair.send("aaaa")
        await old.kill()
        await new.stop()
        new.config = attrs.evolve(new.config, role="async-master", broker_id=0)
        pair.cluster.memory_network.heal()
        await new.start()
        text = PROPERTIES.format("aaaa")
        await pair.caller.send(new.broker.address, b"aaaa", properties=text)
        old.config = attrs.evolve(old.config, role="slave", broker_id=2)
        await old.start()
        await trio.sleep(20)
        assert old.broker.slave is not None
        assert old.broker.slave.client.state is HAClientState.BEYOND
        assert cut_files(old) == cut_files(new) == []


def damage_of(rng: random.Random) -> bytes:
    kind = rng.randrange(4)
    if kind == 0:
        return bytes(17)
    if kind == 1:
        return b"\0"
    if kind == 2:
        return bytes(20_000)
    return rng.randbytes(1)


async def random_story(seed: int) -> None:
    """Tear the end of one of a pair: afterwards both have what was acknowledged, and follow."""
    rng = random.Random(seed)
    settings = rng.choice([MONEY, {}])
    async with pair_of(rng.choice([1, 1, 2]), **settings) as pair:
        names = [f"{number:04d}" for number in range(rng.choice([3, 40, 150]))]
        for name in names:
            delay = "\x02DELAY\x011" if rng.random() < 0.1 else ""
            await pair.send(name, properties="\x02X\x01" + "y" * rng.randrange(200) + delay)
        await trio.sleep(5)
        await pair.level()
        member = rng.choice(pair.cluster.members)
        end = member.broker.store.max_physical_offset
        if rng.random() < 0.5:
            await member.broker.store.checkpoint()
        await member.kill()
        data = damage_of(rng)
        damage(member, max(0, end - rng.randrange(1, 1024 + len(data))), data)
        await member.start()
        await pair.level()
        await pair.send("more")
        await pair.level()
        await trio.sleep(5)
        for broker in [member.broker for member in pair.cluster.members]:
            # A kill may repeat what was delivered after a delay.
            assert set(await pair.read(broker)) == {*names, "more"}


@pytest.mark.parametrize("seed", range(12))
async def test_random_tears_lose_nothing_and_stop_no_broker(
    autojump_clock: MockClock, seed: int
) -> None:
    await random_story(seed)


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed",
    [*range(100, 130), *(pytest.param(each, marks=pytest.mark.long) for each in range(130, 200))],
)
async def test_many_random_tears_lose_nothing_and_stop_no_broker(
    autojump_clock: MockClock, seed: int
) -> None:
    await random_story(seed)
