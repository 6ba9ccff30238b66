"""The end of a log that a crash tore is its holder's damage: the good copy of another broker takes its place."""

import random

import pytest
import trio
from tests.cluster.members import configure_as, cut_files, damage, state
from tests.cluster.stores import MONEY, keyed_pair
from tests.support.pair import Pair
from tests.support.replication import log_bytes

from rocketrio_broker.ha.client import HAClientState
from rocketrio_broker.ha.torn_end import TornEnd


@pytest.mark.parametrize(
    ("torn", "is_checkpointed"),
    [(bytes(17), False), (b"\0", True), (b"\xb7", False), (b"x", True)],
    ids=repr,
)
@pytest.mark.parametrize("who", ["master", "slave"])
async def test_torn_last_record_is_mended_and_the_pair_continues(
    who: str, torn: bytes, is_checkpointed: bool
) -> None:
    async with keyed_pair(**MONEY) as pair:
        await pair.send("first", "second", "last")
        await pair.level()
        member = pair.first if who == "master" else pair.second
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
        assert await pair.read(member) == ["first", "second", "last", "more"]


async def test_damage_that_is_not_in_the_last_record_is_mended_too() -> None:
    async with keyed_pair(**MONEY) as pair:
        names = await pair.settle()
        before = log_bytes(pair.master.store)
        torn_at = before.index(b"KEYS\x01000020")
        await pair.first.kill()
        damage(pair.first, torn_at, bytes(5))
        await pair.first.start()
        await pair.level()
        assert log_bytes(pair.master.store) == before
        assert await pair.read(pair.first) == names


@pytest.mark.parametrize("who", ["master", "slave"])
@pytest.mark.parametrize(("place", "byte"), [(24, b"\x7f"), (27, b"\xc8"), (27, b"\0")])
async def test_queue_that_a_damaged_head_misled_is_whole_again(
    who: str, place: int, byte: bytes
) -> None:
    """In the queue offset: recovery takes a gap for true, and the queue loses what lay before or behind it."""
    async with keyed_pair(**MONEY) as pair:
        names = await pair.settle()
        member = pair.first if who == "master" else pair.second
        before = log_bytes(member.broker.store)
        await member.kill()
        damage(member, 27 * (len(before) // len(names)) + place, byte)
        await member.start()
        await pair.level()
        assert log_bytes(member.broker.store) == before
        assert await pair.read(member) == names


async def test_what_only_the_torn_log_has_is_kept() -> None:
    """An asynchronous master is ahead of its slave; the slave has the torn record, and nothing behind it."""
    async with keyed_pair() as pair:
        slave = pair.second
        await pair.send("shared 1", "shared 2")
        await pair.level()
        end = pair.master.store.max_physical_offset
        pair.part(pair.first, slave.host)
        await pair.send("alone 1", "alone 2")
        before = log_bytes(pair.master.store)
        await pair.first.kill()
        damage(pair.first, end - 17, bytes(17))
        pair.network.heal()
        await pair.first.start()
        assert log_bytes(pair.master.store) == before
        await pair.level()
        assert (await pair.read(slave))[2:] == ["alone 1", "alone 2"]


@pytest.mark.slow
@pytest.mark.parametrize("torn", [bytes(17), b"x"], ids=repr)
async def test_torn_delayed_message_is_delivered(torn: bytes) -> None:
    """Acknowledged by one of two slaves, as both have it; the master alone lost its properties."""
    async with keyed_pair(2, **MONEY) as pair:
        await pair.send("first")
        await pair.send("later", properties="\x02DELAY\x014")
        await pair.level()
        end = pair.master.store.max_physical_offset
        await pair.first.kill()
        damage(pair.first, end - len(torn), torn)
        await pair.first.start()
        await pair.level()
        await trio.sleep(40)
        assert await pair.read(pair.first) == ["first", "later"]
        await pair.level()


async def stop_with_another_end(pair: Pair) -> bytes:
    """The master stops, and starts with another last byte of its log; return what all had."""
    await pair.settle()
    before = log_bytes(pair.master.store)
    await pair.first.stop()
    damage(pair.first, len(before) - 1, b"x")
    await pair.first.start()
    return before


async def test_two_slaves_are_right_against_a_master_that_stopped_cleanly() -> None:
    """A disk that lies: nothing but the two that agree shows which copy is the wrong one."""
    async with keyed_pair(2) as pair:
        before = await stop_with_another_end(pair)
        assert log_bytes(pair.master.store) == before
        await pair.level()


async def test_master_that_stopped_cleanly_is_not_outvoted_by_one_slave() -> None:
    async with keyed_pair() as pair:
        slave = pair.second
        await stop_with_another_end(pair)
        assert log_bytes(pair.master.store)[-1:] == b"x"
        await trio.sleep(30)
        assert state(slave) is HAClientState.DIVERGED
        assert cut_files(pair.first) == cut_files(slave) == []


async def test_good_copy_is_not_cut_for_a_damaged_one_by_any_rule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with keyed_pair(ha_divergent_tail="cut") as pair:
        slave = pair.second
        await pair.send("first", "last")
        await pair.level()
        await pair.master.store.checkpoint()
        before = log_bytes(slave.broker.store)
        await pair.first.kill()
        damage(pair.first, len(before) - 17, bytes(17))

        async def compare_nothing(*_: object) -> None:
            await trio.lowlevel.checkpoint()

        with monkeypatch.context() as patch:
            # The master cannot reach its slave's replication port.
            patch.setattr(TornEnd, "_read", compare_nothing)
            await pair.first.start()
        await trio.sleep(30)
        assert log_bytes(slave.broker.store) == before
        assert cut_files(slave) == []
        await pair.first.kill()
        await pair.first.start()
        await pair.level()
        assert log_bytes(pair.master.store) == before


async def test_messages_of_one_size_that_two_masters_took_are_no_damage() -> None:
    async with keyed_pair() as pair:
        old, new = pair.members
        await pair.send("common")
        await pair.level()
        pair.part(old, new.host)
        await pair.send("aaaa")
        await old.kill()
        await new.stop()
        configure_as(new, "async-master")
        pair.network.heal()
        await new.start()
        await pair.send("aaaa", at=new)
        configure_as(old, "slave", 2)
        await old.start()
        await trio.sleep(20)
        assert state(old) is HAClientState.BEYOND
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
    async with keyed_pair(rng.choice([1, 1, 2]), **settings) as pair:
        names = [f"{number:04d}" for number in range(rng.choice([3, 40, 150]))]
        for name in names:
            delay = "\x02DELAY\x011" if rng.random() < 0.1 else ""
            await pair.send(name, properties="\x02X\x01" + "y" * rng.randrange(200) + delay)
        await trio.sleep(5)
        await pair.level()
        member = rng.choice(pair.members)
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
        for member in pair.members:
            # A kill may repeat what was delivered after a delay.
            assert set(await pair.read(member)) == {*names, "more"}


@pytest.mark.parametrize(
    "seed",
    [
        *range(2),
        *(pytest.param(each, marks=pytest.mark.slow) for each in range(2, 4)),
        *(
            pytest.param(each, marks=[pytest.mark.slow, pytest.mark.long])
            for each in (*range(4, 12), *range(100, 200))
        ),
    ],
)
async def test_random_tears_lose_nothing_and_stop_no_broker(seed: int) -> None:
    await random_story(seed)
