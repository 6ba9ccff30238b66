"""A topic that is deleted and created again while the master changes: each life has messages and offsets of its own."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from tests.cluster.members import configure_as, cut_power
from tests.support.caller import accepted
from tests.support.faulty_disk import FaultyDisk
from tests.support.pair import Pair, pair_of

from rocketrio_broker.store.log_walk import LogWalk
from rocketrio_protocol.commands.admin import (
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicInBrokerRequestHeader,
)


@asynccontextmanager
async def topic_in_use(**settings: Any) -> AsyncGenerator[Pair]:
    """A master with three messages and an offset in a topic, and a slave that has all of it."""
    async with pair_of(role="sync-master", **settings) as pair:
        await make(pair)
        await pair.send("earlier 0", "earlier 1", "earlier 2")
        await pair.caller.commit(pair.master.address, 2)
        await trio.sleep(11)
        assert offset_of(pair) == 2
        yield pair


async def make(pair: Pair) -> None:
    await pair.caller.create_topic(pair.master.address)


async def delete(pair: Pair) -> None:
    header = DeleteTopicInBrokerRequestHeader("orders")
    accepted(await pair.caller.pool.call(pair.master.address, header, timeout=30.0))


def offset_of(pair: Pair) -> int:
    """Return what the second broker has of the group."""
    return pair.slave.state.consumer_offsets.query_offset("billing", "orders", 0)


async def test_slave_that_becomes_master_before_the_first_message_has_no_old_offsets() -> None:
    async with topic_in_use() as pair:
        await delete(pair)
        await make(pair)
        await pair.first.kill()
        await pair.promote(pair.second, "async-master")
        assert offset_of(pair) == -1
        await pair.caller.send(pair.slave.address, b"later")
        assert await pair.read(pair.second) == ["later"]
        configure_as(pair.first, "slave", 2)
        returned = await pair.first.start()
        await returned.store.dispatched.wait_reached(pair.slave.store.max_physical_offset)
        for broker in (returned, pair.slave):
            assert broker.store.queue_bounds("orders", 0) == (0, 1)


async def test_slave_has_forgotten_offsets_when_the_deletion_is_answered() -> None:
    """Readers go on there when the master is gone, before anybody could copy the table of offsets."""
    async with topic_in_use() as pair:
        await delete(pair)
        assert offset_of(pair) == -1
        assert pair.slave.store.queue_bounds("orders", 0) is None


async def test_deletion_waits_for_slaves_as_messages_do_and_no_longer() -> None:
    async with topic_in_use(slave_timeout=4.0) as pair:
        pair.cluster.silence(pair.second)
        began = trio.current_time()
        await delete(pair)
        assert trio.current_time() - began == pytest.approx(4.0, abs=0.1)
        assert pair.master.store.queue_bounds("orders", 0) is None


@pytest.mark.slow
async def test_offsets_of_the_next_incarnation_survive_a_deletion_read_again() -> None:
    async with topic_in_use() as pair:
        await delete(pair)
        await make(pair)
        await pair.caller.send(pair.master.address, b"later")
        await pair.caller.commit(pair.master.address, 1)
        await trio.sleep(11)
        dispatcher = pair.slave.store.dispatcher
        dispatcher.dispatch(LogWalk(pair.slave.store.commit_log, 0).records(1 << 20))
        assert dispatcher.met.value == 2
        await trio.sleep(1)
        assert offset_of(pair) == 1


@pytest.mark.slow
@pytest.mark.parametrize("is_group", [False, True])
async def test_power_cut_of_a_slave_soon_after_a_deletion_does_not_bring_offsets_back(
    is_group: bool,
) -> None:
    """It wrote its offsets a while before, and has no master to copy them from when it is back."""
    async with topic_in_use(make_disk=FaultyDisk) as pair:
        if is_group:
            header = DeleteSubscriptionGroupRequestHeader("billing", clean_offset=True)
            accepted(await pair.caller.pool.call(pair.master.address, header))
        else:
            await delete(pair)
        await trio.sleep(2)
        await pair.first.kill()
        await cut_power(pair.second)
        await pair.second.start()
        assert offset_of(pair) == -1
