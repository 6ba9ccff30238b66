"""Both ends of replication together: stores in memory, a network with faults, virtual time."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
from tests.support.clocks import SettableClock
from tests.support.replication import (
    FILE_SIZE,
    MASTER,
    OTHER_SLAVE,
    SLAVE,
    Master,
    Slave,
    assert_same_logs,
    fill,
    log_bytes,
    master,
    slave,
)
from tests.support.stores import body_of, opened, read_all
from trio.testing import wait_all_tasks_blocked

from rocketrio_broker.ha.client import HAClientState
from rocketrio_broker.ha.config import HAConfig
from rocketrio_broker.ha.history import FIRST_ADDRESS
from rocketrio_broker.ha.service import HAService
from rocketrio_broker.testing.kill_switch import KillSwitch
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_broker.testing.memory_network import MemoryNetwork

CATCH_UP_LIMIT = 60.0
"""Virtual seconds."""


@asynccontextmanager
async def pair(
    *, messages: int = 0, config: HAConfig | None = None
) -> AsyncGenerator[tuple[Master, Slave]]:
    """A master with some messages, and a slave of it."""
    async with (
        master(messages=messages, config=config) as leader,
        slave(leader.network, config=config) as follower,
    ):
        yield leader, follower


async def level(leader: Master, *followers: Slave) -> None:
    """Wait until the slaves have, and have dispatched, what the master has; then compare everything."""
    end = leader.store.max_physical_offset
    with trio.fail_after(CATCH_UP_LIMIT):
        for follower in followers:
            await follower.store.dispatched.wait_reached(end)
    await wait_all_tasks_blocked()
    for follower in followers:
        assert_same_logs(leader.store, follower.store)


async def test_slave_copies_a_log_of_many_files_to_the_byte() -> None:
    async with pair(messages=1000) as (leader, follower):
        assert leader.store.max_physical_offset > 8 * FILE_SIZE
        await level(leader, follower)
        (connection,) = leader.service.connections
        assert connection.statistics().bytes_behind == 0


async def test_slave_has_a_message_at_once() -> None:
    async with pair() as (leader, follower):
        await trio.sleep(2.5)
        end = fill(leader.store, 1)
        await follower.wait_end(end)
        assert trio.current_time() == 2.5


async def test_two_slaves_follow_one_master() -> None:
    async with (
        pair(messages=300) as (leader, first),
        slave(leader.network, host=OTHER_SLAVE) as second,
    ):
        fill(leader.store, 300)
        await level(leader, first, second)
        assert len(leader.service.connections) == 2


@pytest.mark.slow
async def test_idle_pair_stays_connected() -> None:
    async with pair(messages=3) as (leader, follower):
        await trio.sleep(600)
        assert follower.client.statistics().connection_count == 1
        assert len(leader.service.connections) == 1


async def test_slave_continues_after_a_broken_connection() -> None:
    async with pair(messages=100) as (leader, follower):
        await level(leader, follower)
        for _ in range(5):
            leader.network.cut(MASTER, SLAVE)
            fill(leader.store, 50)
            await level(leader, follower)
        assert follower.client.statistics().connection_count == 6


async def test_both_ends_give_a_silent_network_up_and_catch_up_when_it_heals() -> None:
    async with pair(messages=10) as (leader, follower):
        await level(leader, follower)
        leader.network.partition(MASTER, SLAVE)
        fill(leader.store, 200)
        await trio.sleep(21)
        assert leader.service.connections == []
        assert follower.client.state is not HAClientState.FOLLOWING
        leader.network.heal()
        await level(leader, follower)


@pytest.mark.parametrize("seed", range(6))
async def test_cuts_at_any_moment_lose_and_double_nothing(seed: int) -> None:
    """Small transfers, so that a cut falls into every part of the exchange."""
    config = HAConfig(transfer_batch_size=700 + seed, reconnect_pause=0.01)
    async with pair(config=config) as (leader, follower):
        for step in range(40):
            fill(leader.store, 1 + (step * 7 + seed) % 9)
            for _ in range((step * 3 + seed) % 11):
                await trio.lowlevel.checkpoint()
            leader.network.cut(MASTER, SLAVE)
            await trio.sleep(0.005)
        await level(leader, follower)


async def test_slave_killed_in_the_middle_of_a_record_continues() -> None:
    """The torn record is cut off when the slave starts again, and asked for once more."""
    disk, switch = MemoryDisk(), KillSwitch()
    async with master(messages=30) as leader:
        log = log_bytes(leader.store)
        async with opened(switch.disk(disk)) as half:
            half.begin_replication()
            half.append_raw(0, log[: len(log) - 50])
            await wait_all_tasks_blocked()
            torn = half.dispatched.value
            assert torn < half.max_physical_offset
            switch.kill()
        async with slave(leader.network, disk=disk) as follower:
            assert follower.store.max_physical_offset == torn
            fill(leader.store, 20)
            await level(leader, follower)


async def test_slave_stopped_and_started_asks_for_what_is_missing() -> None:
    disk = MemoryDisk()
    async with master(messages=200) as leader:
        async with slave(leader.network, disk=disk) as follower:
            await level(leader, follower)
        middle = leader.store.max_physical_offset
        compared = middle - FIRST_ADDRESS
        fill(leader.store, 200)
        async with slave(leader.network, disk=disk) as follower:
            await level(leader, follower)
            (connection,) = leader.service.connections
            sent = connection.statistics().bytes_sent
            assert sent == leader.store.max_physical_offset - middle + compared


async def test_slave_follows_a_master_that_restarts() -> None:
    network, disk = MemoryNetwork(), MemoryDisk()
    async with slave(network) as follower:
        for _ in range(3):
            async with master(network=network, disk=disk, messages=50) as leader:
                await level(leader, follower)
            await trio.sleep(3)
        assert follower.client.statistics().connection_count == 3


async def test_master_that_comes_back_shorter_is_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It lost its tail in a power cut: the slave keeps what it has, and says so."""
    caplog.set_level(logging.INFO)
    network = MemoryNetwork()
    async with slave(network) as follower:
        async with master(network=network, messages=50) as leader:
            await level(leader, follower)
            copied = log_bytes(follower.store)
        async with master(network=network, messages=40):
            await trio.sleep(60)
            assert log_bytes(follower.store) == copied
            assert follower.store.max_physical_offset == len(copied)
            assert follower.client.state is HAClientState.AHEAD
        assert "this slave's is equal up to there and has 1970 bytes more" in caplog.text
        assert caplog.text.count("waiting for the master") == 1


async def test_slow_slave_does_not_hold_the_other_back() -> None:
    async with pair() as (leader, quick):
        stuck = await leader.raw_slave(OTHER_SLAVE)
        await stuck.report(0)
        fill(leader.store, 4000)
        await level(leader, quick)
        assert trio.current_time() < 1.0
        behind = {
            c.addr.split(":")[0]: c.bytes_behind for c in leader.service.statistics().connections
        }
        assert behind[SLAVE] == 0
        assert behind[OTHER_SLAVE] == leader.store.max_physical_offset


async def test_slave_of_a_slave_has_the_same_log() -> None:
    """Every broker serves its log, whatever its role."""
    async with pair(messages=100) as (leader, first):
        listener = await leader.network.host(SLAVE).listen(f"{SLAVE}:10912")
        async with trio.open_nursery() as nursery:
            await nursery.start(HAService(first.store, listener, wall_clock=SettableClock()).run)
            async with slave(
                leader.network, host=OTHER_SLAVE, master_addr=f"{SLAVE}:10912"
            ) as second:
                fill(leader.store, 100)
                await level(leader, first, second)
            nursery.cancel_scope.cancel()


async def test_messages_are_readable_on_the_slave_in_order() -> None:
    async with pair(messages=64) as (leader, follower):
        await level(leader, follower)
        bodies = [body_of(record) for record in read_all(follower.store, "orders")]
        assert bodies == [number.to_bytes(4) * 25 for number in range(64)]
