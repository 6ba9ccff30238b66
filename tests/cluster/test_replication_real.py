"""Replication between real processes that are killed with -9 while messages come in."""

import pytest
import trio
from tests.support import wire
from tests.support.commit_logs import wait_caught_up
from tests.support.load import Load, numbers_in, ready
from tests.support.ours import OurPair, our_pair_fixture

pytestmark = [pytest.mark.real, pytest.mark.slow]


pair = our_pair_fixture(scope="function")


async def loaded(load: Load) -> None:
    """Some messages under load."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        await load.continues(100)
        nursery.cancel_scope.cancel()


async def test_slave_killed_under_load_ends_with_the_same_log(pair: OurPair) -> None:
    load = Load(pair.master.address)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        for _ in range(3):
            await load.continues(200)
            pair.slave.kill()
            await load.continues(50)
            await ready(pair.slave)
        nursery.cancel_scope.cancel()
    assert await trio.to_thread.run_sync(pair.assert_same_logs) > 1 << 20


async def test_master_killed_under_load_is_followed_again(pair: OurPair) -> None:
    """What was acknowledged survives in the page cache; the slave goes on where both logs agree."""
    load = Load(pair.master.address)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        for _ in range(3):
            await load.continues(100)
            pair.master.kill()
            await ready(pair.master)
        await load.continues(100)
        nursery.cancel_scope.cancel()
    await trio.to_thread.run_sync(pair.assert_same_logs)
    lost = load.acknowledged - numbers_in(pair.slave.store)
    assert not lost


async def test_clean_stop_and_start_of_both(pair: OurPair) -> None:
    load = Load(pair.master.address)
    await loaded(load)
    await trio.to_thread.run_sync(wait_caught_up, pair.master.address, pair.slave.address)
    for broker in (pair.slave, pair.master):
        await trio.to_thread.run_sync(broker.stop)
    for broker in (pair.master, pair.slave):
        await ready(broker)
    await loaded(load)
    await trio.to_thread.run_sync(pair.assert_same_logs)
    assert wire.has_topic(pair.slave.address, "orders")
