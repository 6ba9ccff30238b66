"""A member whose directory is an older copy of itself: nothing that its log lacks then is cut off where it still is.

A backup, a snapshot of a volume, a machine that was set back: such a broker does not know what it acknowledged since.
"""

from typing import Literal

import pytest
import trio
from tests.cluster.members import copy_of, cut_files, cut_power, problem, set_back, state
from tests.cluster.stores import unflushed_pair

from rocketrio_broker.embedded import Member
from rocketrio_broker.ha.client import HAClientState
from rocketrio_broker.store.acknowledged import SYNC_PERIOD

Ending = Literal["stop", "kill", "power cut"]
ENDINGS: tuple[Ending, ...] = ("stop", "kill", "power cut")


async def end(member: Member, how: Ending) -> None:
    match how:
        case "stop":
            await member.stop()
        case "kill":
            await member.kill()
        case "power cut":
            await cut_power(member, kept=0.5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "copied", "acknowledge"),
    [
        ("stop", "while it ran", "disk"),
        ("stop", "while it was down", "memory"),
        ("kill", "while it ran", "memory"),
        ("kill", "while it was down", "disk"),
        ("power cut", "while it ran", "disk"),
        ("power cut", "while it was down", "memory"),
    ],
)
async def test_returning_master_keeps_what_a_slave_set_back_had_acknowledged(
    how: Ending, copied: str, acknowledge: str
) -> None:
    async with unflushed_pair(role="sync-master", ha_acknowledge=acknowledge) as pair:
        old, new = pair.members
        before = await pair.settle()
        if copied == "while it was down":
            await new.stop()
        copy = copy_of(new)
        if not new.is_running:
            await new.start()
            await trio.sleep(2)
        after = await pair.send_many(200, first=1000)
        await old.broker.store.flush()
        await trio.sleep(SYNC_PERIOD)
        end_of_log = old.broker.store.max_physical_offset
        await end(old, how)
        await set_back(new, copy)
        await pair.promote(new)
        await old.start()
        await trio.sleep(20)
        assert state(old) is HAClientState.BEYOND
        assert not cut_files(old)
        told = problem(old)
        assert "200 messages" in told
        assert f"slave {new.broker.address} had acknowledged this log up to {end_of_log}" in told
        # The operator makes the one master that has them.
        await pair.change(new, "slave", 1)
        await pair.promote(old)
        await trio.sleep(5)  # Its gate is as old as its checkpoint.
        assert await pair.read(old) == before + after


@pytest.mark.slow
async def test_master_that_a_slave_set_back_replaced_keeps_what_the_other_slave_had_too() -> None:
    async with unflushed_pair(2, role="sync-master", ha_return_wait=1.0) as pair:
        old, new, other = pair.members
        await pair.settle()
        copy = copy_of(new)
        await pair.send_many(10, first=1000)
        await pair.level(old, new, other)
        await other.stop()
        await old.kill()
        await set_back(new, copy)
        await pair.promote(new)
        await old.start()
        await trio.sleep(20)
        assert state(old) is HAClientState.BEYOND
        for slave in (new.broker.address, "10.0.0.12:10911"):
            assert f"slave {slave} had acknowledged" in problem(old)
        assert not cut_files(old)


@pytest.mark.slow
async def test_successor_that_has_all_is_followed_although_the_other_slave_was_set_back() -> None:
    async with unflushed_pair(2, role="sync-master") as pair:
        old, new, other = pair.members
        sent = await pair.settle()
        copy = copy_of(other)
        sent += await pair.send_many(10, first=1000)
        await pair.level(old, new, other)
        pair.part(old, new.host, other.host)
        await pair.send_unheard(at=old)
        await old.kill()
        pair.network.heal()
        await set_back(other, copy)
        await pair.promote(new)
        await old.start()
        await trio.sleep(20)
        await pair.level(old, new, other)
        assert state(old) is state(other) is HAClientState.FOLLOWING
        assert (len(cut_files(old)), len(cut_files(other))) == (1, 0)
        assert await pair.read(new) == sent


@pytest.mark.slow
async def test_end_that_readers_were_shown_waits_for_an_operator() -> None:
    """No slave had it and no producer got PUT_OK, but after `slave_timeout` readers see what this disk has."""
    async with unflushed_pair(role="sync-master") as pair:
        old, new = pair.members
        await pair.settle()
        pair.part(old, new.host)
        await pair.send_unheard(at=old)
        await old.broker.store.flush()
        await trio.sleep(5)
        await old.stop()
        pair.network.heal()
        await pair.promote(new)
        await old.start()
        await trio.sleep(5)
        assert state(old) is HAClientState.BEYOND
        assert "readers had been shown this log up to" in problem(old)
        assert not cut_files(old)


# --- the master's own directory ----------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("how", ENDINGS)
async def test_former_master_that_was_set_back_follows_and_gives_nothing_up(how: Ending) -> None:
    async with unflushed_pair(role="sync-master") as pair:
        old, new = pair.members
        sent = await pair.settle()
        copy = copy_of(old)
        sent += await pair.send_many(30, first=1000)
        await pair.level(old, new)
        await end(old, how)
        await pair.promote(new)
        await set_back(old, copy)
        await trio.sleep(5)
        sent += await pair.send_many(30, at=new, first=2000)
        await pair.level(old, new)
        assert state(old) is HAClientState.FOLLOWING
        assert not cut_files(old)
        assert await pair.read(new) == sent


async def test_master_that_was_set_back_gets_from_its_slave_what_it_lacks() -> None:
    async with unflushed_pair(role="sync-master") as pair:
        master, slave = pair.members
        sent = await pair.settle()
        copy = copy_of(master)
        sent += await pair.send_many(30, first=1000)
        await pair.level(master, slave)
        await set_back(master, copy)
        await trio.sleep(5)
        sent += await pair.send_many(30, first=2000)
        await pair.level(master, slave)
        assert await pair.read(master) == sent


@pytest.mark.slow
@pytest.mark.parametrize("is_promoted", [False, True])
async def test_slave_keeps_what_a_master_that_was_set_back_lacks(is_promoted: bool) -> None:
    """The slave is away while the master comes back, be that the first master or a slave that was promoted."""
    async with unflushed_pair(role="sync-master", ha_return_wait=1.0) as pair:
        master, slave = pair.members
        await pair.settle()
        if is_promoted:
            await master.kill()
            await pair.promote(slave)
            await master.start()
            master, slave = slave, master
            await trio.sleep(5)
        copy = copy_of(master)
        await pair.send_many(30, at=master, first=1000)
        await pair.level(master, slave)
        await slave.stop()
        await set_back(master, copy)
        await trio.sleep(5)
        await pair.send_unheard(at=master)
        await slave.start()
        await trio.sleep(20)
        assert state(slave) is HAClientState.BEYOND
        assert "30 messages" in problem(slave)
        assert not cut_files(slave)
