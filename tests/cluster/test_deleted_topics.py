"""A topic that is deleted and created again while the master changes: each life has messages and offsets of its own."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from tests.support.caller import accepted, bodies, caller_of
from tests.support.faulty_disk import FaultyDisk
from tests.support.pair import Pair

from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_broker.store.log_walk import LogWalk
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.commands.admin import (
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicInBrokerRequestHeader,
)


@attrs.define
class DeletingPair(Pair):
    async def make(self) -> None:
        await self.caller.create_topic(self.master.address)

    async def delete(self) -> None:
        answer = await self.caller.pool.call(
            self.master.address, DeleteTopicInBrokerRequestHeader("orders"), timeout=30.0
        )
        assert answer.code == ResponseCode.SUCCESS

    async def promote(self) -> None:
        """Kill the master and have the slave take its place."""
        await self.cluster.kill_master()
        accepted(await self.caller.change_role(self.slave.address, "async-master", 0))


@asynccontextmanager
async def pair(**settings: object) -> AsyncGenerator[DeletingPair]:
    """A master with three messages and an offset in a topic, and a slave that has all of it."""
    async with (
        EmbeddedCluster(slaves=1, role="sync-master", **settings) as cluster,  # type: ignore[arg-type]
        caller_of(cluster) as call,
    ):
        two = DeletingPair(cluster, call)
        await trio.sleep(1)
        await two.make()
        for number in range(3):
            await call.send(two.master.address, b"earlier %d" % number)
        await call.commit(two.master.address, 2)
        await trio.sleep(11)
        assert two.slave.state.consumer_offsets.query_offset("billing", "orders", 0) == 2
        yield two


async def test_slave_that_becomes_master_before_the_first_message_has_no_old_offsets() -> None:
    async with pair() as two:
        await two.delete()
        await two.make()
        await two.promote()
        assert two.slave.state.consumer_offsets.query_offset("billing", "orders", 0) == -1
        await two.caller.send(two.slave.address, b"later")
        assert bodies(await two.caller.pull(two.slave.address, 0)) == [b"later"]
        two.cluster.master.config = attrs.evolve(
            two.cluster.master.config, role="slave", broker_id=2
        )
        returned = await two.cluster.master.start()
        await returned.store.dispatched.wait_reached(two.slave.store.max_physical_offset)
        for broker in (returned, two.slave):
            assert broker.store.queue_bounds("orders", 0) == (0, 1)


async def test_slave_has_forgotten_offsets_when_the_deletion_is_answered() -> None:
    """Readers go on there when the master is gone, before anybody could copy the table of offsets."""
    async with pair() as two:
        await two.delete()
        offsets = two.slave.state.consumer_offsets
        assert offsets.query_offset("billing", "orders", 0) == -1
        assert two.slave.store.queue_bounds("orders", 0) is None


async def test_deletion_waits_for_slaves_as_messages_do_and_no_longer() -> None:
    async with pair(slave_timeout=4.0) as two:
        two.cluster.memory_network.silence(two.cluster.slaves[0].host)
        began = trio.current_time()
        await two.delete()
        assert trio.current_time() - began == pytest.approx(4.0, abs=0.1)
        assert two.master.store.queue_bounds("orders", 0) is None


async def test_offsets_of_the_next_incarnation_survive_a_deletion_read_again() -> None:
    async with pair() as two:
        await two.delete()
        await two.make()
        await two.caller.send(two.master.address, b"later")
        await two.caller.commit(two.master.address, 1)
        await trio.sleep(11)
        state, dispatcher = two.slave.state, two.slave.store.dispatcher
        dispatcher.dispatch(LogWalk(two.slave.store.commit_log, 0).records(1 << 20))
        assert dispatcher.met.value == 2
        await trio.sleep(1)
        assert state.consumer_offsets.query_offset("billing", "orders", 0) == 1


@pytest.mark.parametrize("is_group", [False, True])
async def test_power_cut_of_a_slave_soon_after_a_deletion_does_not_bring_offsets_back(
    is_group: bool,
) -> None:
    """It wrote its offsets a while before, and has no master to copy them from when it is back."""
    async with pair(make_disk=FaultyDisk) as two:
        if is_group:
            header = DeleteSubscriptionGroupRequestHeader("billing", clean_offset=True)
            answer = await two.caller.pool.call(two.master.address, header)
            assert answer.code == ResponseCode.SUCCESS
        else:
            await two.delete()
        await trio.sleep(2)
        member = two.cluster.slaves[0]
        disk = member.disk
        assert isinstance(disk, FaultyDisk)
        await two.cluster.kill_master()
        await member.kill()
        member.disk = disk.after_cut(seed=1, kept=0.0)
        await member.start()
        assert member.broker.state.consumer_offsets.query_offset("billing", "orders", 0) == -1
