"""Replication as a whole cluster shows it: topics, offsets and messages on the slave, and a master that comes back."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
from tests.support.caller import Caller, bodies, caller_of
from tests.support.waiting import eventually

from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_broker.ha.copy_progress import CopyProgress
from rocketrio_broker.ha.gather_offsets import GATHER_LIMIT
from rocketrio_broker.ha.missing_tail import ReturnRule
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.route import KVTable
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.commands.admin import GetBrokerRuntimeInfoRequestHeader

WAIT_LIMIT = 60.0
"""Virtual seconds until something must have happened."""


@asynccontextmanager
async def members_and_caller(slaves: int = 1) -> AsyncGenerator[tuple[EmbeddedCluster, Caller]]:
    async with EmbeddedCluster(slaves=slaves) as members, caller_of(members) as caller:
        yield members, caller


async def send_many(caller: Caller, addr: str, count: int) -> None:
    for number in range(count):
        answer = await caller.send(addr, b"message %d" % number)
        assert answer.code == ResponseCode.SUCCESS


def is_level(members: EmbeddedCluster) -> bool:
    end = members.master.broker.store.max_physical_offset
    return all(slave.broker.store.dispatched.value == end for slave in members.slaves)


async def test_slaves_serve_what_was_sent_to_the_master() -> None:
    async with members_and_caller(slaves=2) as (members, caller):
        await send_many(caller, members.master.broker.address, 20)
        await eventually(lambda: is_level(members))
        for slave in members.slaves:
            await eventually(lambda s=slave: "orders" in s.broker.state.topics.topic_config_table)  # type: ignore[misc]
            answer = await caller.pull(slave.broker.address, 0)
            assert bodies(answer) == [b"message %d" % number for number in range(20)]


async def test_offsets_committed_to_the_slave_survive_the_master_s_return() -> None:
    """32 at the master, 120 at the slave while the master is down: Apache ends at 0, ours at 120 on both."""
    async with members_and_caller() as (members, caller):
        master, slave = members.master.broker, members.slaves[0].broker
        await send_many(caller, master.address, 200)
        await caller.commit(master.address, 32)
        await eventually(lambda: is_level(members))
        await eventually(
            lambda: slave.state.consumer_offsets.query_offset("billing", "orders", 0) == 32
        )
        await members.kill_master()
        await caller.commit(slave.address, 120)
        assert await caller.committed(slave.address) == 120
        back = await members.restart_master()
        assert await caller.committed(back.address) == 120
        await trio.sleep(30)
        assert await caller.committed(back.address) == 120
        assert await caller.committed(slave.address) == 120


async def test_master_returns_though_its_slave_is_gone_too() -> None:
    """It waits for the slave, which may hold more, for a limited time only: for its log, then for its offsets."""
    async with members_and_caller() as (members, caller):
        await send_many(caller, members.master.broker.address, 3)
        await caller.commit(members.master.broker.address, 2)
        await trio.sleep(6)
        await members.kill_master()
        await members.slaves[0].kill()
        started = trio.current_time()
        back = await members.restart_master()
        assert trio.current_time() - started <= ReturnRule().wait + GATHER_LIMIT
        assert await caller.committed(back.address) == 2


async def test_slave_catches_up_with_what_was_sent_while_it_was_dead() -> None:
    async with members_and_caller() as (members, caller):
        await send_many(caller, members.master.broker.address, 10)
        await eventually(lambda: is_level(members))
        await members.slaves[0].kill()
        await send_many(caller, members.master.broker.address, 10)
        await members.slaves[0].start()
        await eventually(lambda: is_level(members))
        answer = await caller.pull(members.slaves[0].broker.address, 10)
        assert len(bodies(answer)) == 10


async def test_slave_refuses_to_store_messages_itself() -> None:
    async with members_and_caller() as (members, caller):
        await send_many(caller, members.master.broker.address, 1)
        await eventually(lambda: is_level(members))
        slave = members.slaves[0].broker
        answer = await caller.send(slave.address, b"no")
        assert answer.code != ResponseCode.SUCCESS
        assert slave.store.max_physical_offset == members.master.broker.store.max_physical_offset


async def test_brokers_report_the_state_of_their_replication() -> None:
    async with members_and_caller() as (members, caller):
        await send_many(caller, members.master.broker.address, 5)
        await eventually(lambda: is_level(members))
        await trio.sleep(1)
        master, slave = members.master.broker, members.slaves[0].broker
        (connection,) = master.statistics().ha.connections
        assert connection.bytes_behind == 0
        assert connection.slave_ack_offset == slave.store.max_physical_offset
        following = slave.statistics().slave
        assert following is not None
        assert following.log.state.value == "following"
        assert following.log.master_ha_addr == master.ha_address
        assert following.tables.master_addr == master.address
        assert following.tables.last_problem is None


@pytest.mark.slow
async def test_story_of_a_day_of_restarts() -> None:
    """Each dies in turn, under messages and commits; nothing is lost and no offset falls."""
    async with members_and_caller() as (members, caller):
        await send_many(caller, members.master.broker.address, 10)
        committed = 0
        for _ in range(6):
            await eventually(lambda: is_level(members))
            await members.kill_master()
            committed += 3
            await caller.commit(members.slaves[0].broker.address, committed)
            await members.restart_master()
            await members.slaves[0].kill()
            await send_many(caller, members.master.broker.address, 10)
            assert await caller.committed(members.master.broker.address) == committed
            await members.slaves[0].start()
        await eventually(lambda: is_level(members))
        answer = await caller.pull(members.slaves[0].broker.address, 0, max_messages=100)
        first = bodies(answer)
        assert first == bodies(
            await caller.pull(members.master.broker.address, 0, max_messages=100)
        )
        assert members.slaves[0].broker.store.queue_bounds("orders", 0) == (0, 70)


async def test_runtime_information_of_a_slave_reports_its_replication() -> None:
    async with members_and_caller() as (members, caller):
        await send_many(caller, members.master.broker.address, 3)
        await eventually(lambda: is_level(members))
        slave = members.slaves[0].broker

        async def info() -> dict[str, str]:
            header = GetBrokerRuntimeInfoRequestHeader()
            answer = await caller.pool.call(slave.address, header)
            return fastjson.loads(answer.body, KVTable, what="runtime info").table

        table = await info()
        assert table["rocketrioReplicationState"] == "following"
        assert table["rocketrioReplicationProblem"] == ""
        assert "rocketrioCopyBytes" not in table
        assert slave.slave is not None
        slave.slave.copy_watch.progress = CopyProgress(1000, 3000, 9000, 500.0)
        table = await info()
        assert table["rocketrioCopiedBytes"] == "2000"
        assert table["rocketrioCopyBytes"] == "8000"
        assert table["rocketrioCopyRate"] == "500"
        assert table["rocketrioCopySecondsLeft"] == "12"
