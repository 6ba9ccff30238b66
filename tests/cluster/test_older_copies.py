"""A member whose directory is an older copy of itself: nothing that its log lacks then is cut off where it still is.

A backup, a snapshot of a volume, a machine that was set back: such a broker does not know what it acknowledged since.
"""

from typing import Literal

import pytest
import trio
from tests.cluster.members import copy_of, cut_files, set_back
from tests.cluster.power_cuts import NumberedPair, cluster_of, problem, settle, state, unheard

from rocketrio_broker.embedded import Member
from rocketrio_broker.ha.client import HAClientState
from rocketrio_broker.store.acknowledged import SYNC_PERIOD

Ending = Literal["stop", "kill", "power cut"]
ENDINGS: tuple[Ending, ...] = ("stop", "kill", "power cut")


async def end(pair: NumberedPair, member: Member, how: Ending) -> None:
    match how:
        case "stop":
            await member.stop()
        case "kill":
            await member.kill()
        case "power cut":
            await pair.cut_power(member, kept=0.5)


@pytest.mark.parametrize("acknowledge", ["disk", "memory"])
@pytest.mark.parametrize("copied", ["while it ran", "while it was down"])
@pytest.mark.parametrize("how", ENDINGS)
async def test_returning_master_keeps_what_a_slave_set_back_had_acknowledged(
    how: Ending, copied: str, acknowledge: str
) -> None:
    async with cluster_of(1, role="sync-master", ha_acknowledge=acknowledge) as pair:
        old, (new,) = pair.cluster.master, pair.cluster.slaves
        before = await settle(pair, old, new)
        if copied == "while it was down":
            await new.stop()
        copy = copy_of(new)
        if not new.is_running:
            await new.start()
            await trio.sleep(2)
        after = await pair.send(200, first=1000)
        await old.broker.store.flush()
        await trio.sleep(SYNC_PERIOD)
        end_of_log = old.broker.store.max_physical_offset
        await end(pair, old, how)
        await set_back(new, copy)
        await pair.change(new.broker, "sync-master", 0)
        await old.start()
        await trio.sleep(20)
        assert state(old.broker) is HAClientState.BEYOND
        assert not cut_files(old)
        told = problem(old.broker)
        assert "200 messages" in told
        assert f"slave {new.broker.address} had acknowledged this log up to {end_of_log}" in told
        # The operator makes the one master that has them.
        await pair.change(new.broker, "slave", 1)
        await pair.change(old.broker, "sync-master", 0)
        await trio.sleep(5)  # Its gate is as old as its checkpoint.
        assert await pair.caller.read(old.broker.address) == before + after


async def test_master_that_a_slave_set_back_replaced_keeps_what_the_other_slave_had_too() -> None:
    async with cluster_of(2, role="sync-master", ha_return_wait=1.0) as pair:
        old, (new, other) = pair.cluster.master, pair.cluster.slaves
        await settle(pair, old, new, other)
        copy = copy_of(new)
        await pair.send(10, first=1000)
        await pair.level(old, new, other)
        await other.stop()
        await old.kill()
        await set_back(new, copy)
        await pair.change(new.broker, "sync-master", 0)
        await old.start()
        await trio.sleep(20)
        assert state(old.broker) is HAClientState.BEYOND
        for slave in (new.broker.address, "10.0.0.12:10911"):
            assert f"slave {slave} had acknowledged" in problem(old.broker)
        assert not cut_files(old)


async def test_successor_that_has_all_is_followed_although_the_other_slave_was_set_back() -> None:
    async with cluster_of(2, role="sync-master") as pair:
        old, (new, other) = pair.cluster.master, pair.cluster.slaves
        sent = await settle(pair, old, new, other)
        copy = copy_of(other)
        sent += await pair.send(10, first=1000)
        await pair.level(old, new, other)
        pair.cluster.memory_network.partition(old.host, new.host)
        pair.cluster.memory_network.partition(old.host, other.host)
        await unheard(pair, old.broker)
        await old.kill()
        pair.cluster.memory_network.heal()
        await set_back(other, copy)
        await pair.change(new.broker, "sync-master", 0)
        await old.start()
        await trio.sleep(20)
        await pair.level(old, new, other)
        assert state(old.broker) is state(other.broker) is HAClientState.FOLLOWING
        assert (len(cut_files(old)), len(cut_files(other))) == (1, 0)
        assert await pair.caller.read(new.broker.address) == sent


async def test_end_that_readers_were_shown_waits_for_an_operator() -> None:
    """No slave had it and no producer got PUT_OK, but after `slave_timeout` readers see what this disk has."""
    async with cluster_of(1, role="sync-master") as pair:
        old, (new,) = pair.cluster.master, pair.cluster.slaves
        await settle(pair, old, new)
        pair.cluster.memory_network.partition(old.host, new.host)
        await unheard(pair, old.broker)
        await old.broker.store.flush()
        await trio.sleep(5)
        await old.stop()
        pair.cluster.memory_network.heal()
        await pair.change(new.broker, "sync-master", 0)
        await old.start()
        await trio.sleep(5)
        assert state(old.broker) is HAClientState.BEYOND
        assert "readers had been shown this log up to" in problem(old.broker)
        assert not cut_files(old)


# --- the master's own directory ----------------------------------------------------------------


@pytest.mark.parametrize("how", ENDINGS)
async def test_former_master_that_was_set_back_follows_and_gives_nothing_up(how: Ending) -> None:
    async with cluster_of(1, role="sync-master") as pair:
        old, (new,) = pair.cluster.master, pair.cluster.slaves
        sent = await settle(pair, old, new)
        copy = copy_of(old)
        sent += await pair.send(30, first=1000)
        await pair.level(old, new)
        await end(pair, old, how)
        await pair.change(new.broker, "sync-master", 0)
        await set_back(old, copy)
        await trio.sleep(5)
        sent += await pair.send(30, broker=new.broker, first=2000)
        await pair.level(old, new)
        assert state(old.broker) is HAClientState.FOLLOWING
        assert not cut_files(old)
        assert await pair.caller.read(new.broker.address) == sent


async def test_master_that_was_set_back_gets_from_its_slave_what_it_lacks() -> None:
    async with cluster_of(1, role="sync-master") as pair:
        master, (slave,) = pair.cluster.master, pair.cluster.slaves
        sent = await settle(pair, master, slave)
        copy = copy_of(master)
        sent += await pair.send(30, first=1000)
        await pair.level(master, slave)
        await set_back(master, copy)
        await trio.sleep(5)
        sent += await pair.send(30, first=2000)
        await pair.level(master, slave)
        assert await pair.caller.read(master.broker.address) == sent


@pytest.mark.parametrize("is_promoted", [False, True])
async def test_slave_keeps_what_a_master_that_was_set_back_lacks(is_promoted: bool) -> None:
    """The slave is away while the master comes back, be that the first master or a slave that was promoted."""
    async with cluster_of(1, role="sync-master", ha_return_wait=1.0) as pair:
        master, (slave,) = pair.cluster.master, pair.cluster.slaves
        await settle(pair, master, slave)
        if is_promoted:
            await master.kill()
            await pair.change(slave.broker, "sync-master", 0)
            await master.start()
            master, slave = slave, master
            await trio.sleep(5)
        copy = copy_of(master)
        await pair.send(30, broker=master.broker, first=1000)
        await pair.level(master, slave)
        await slave.stop()
        await set_back(master, copy)
        await trio.sleep(5)
        await unheard(pair, master.broker)
        await slave.start()
        await trio.sleep(20)
        assert state(slave.broker) is HAClientState.BEYOND
        assert "30 messages" in problem(slave.broker)
        assert not cut_files(slave)
