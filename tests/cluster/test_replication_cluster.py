"""Replication as a whole cluster shows it: topics, offsets and messages on the slave, and a master that comes back."""

import pytest
import trio
from tests.support.pair import pair_of
from tests.support.waiting import eventually

from rocketrio_broker.ha.copy_progress import CopyProgress
from rocketrio_broker.ha.gather_offsets import GATHER_LIMIT
from rocketrio_broker.ha.missing_tail import ReturnRule
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.route import KVTable
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.commands.admin import GetBrokerRuntimeInfoRequestHeader


async def test_slaves_serve_what_was_sent_to_the_master() -> None:
    async with pair_of(2) as pair:
        sent = await pair.send_many(20)
        await pair.level()
        for slave in pair.cluster.slaves:
            topics = slave.broker.state.topics.topic_config_table
            await eventually(lambda topics=topics: "orders" in topics)  # type: ignore[misc]
            assert await pair.read(slave) == sent


async def test_master_returns_though_its_slave_is_gone_too() -> None:
    """It waits for the slave, which may hold more, for a limited time only: for its log, then for its offsets."""
    async with pair_of() as pair:
        await pair.send_many(3)
        await pair.caller.commit(pair.master.address, 2)
        await trio.sleep(6)
        await pair.first.kill()
        await pair.second.kill()
        started = trio.current_time()
        back = await pair.first.start()
        assert trio.current_time() - started <= ReturnRule().wait + GATHER_LIMIT
        assert await pair.caller.committed(back.address) == 2


async def test_slave_refuses_to_store_messages_itself() -> None:
    async with pair_of() as pair:
        await pair.send_many(1)
        await pair.level()
        slave = pair.slave
        assert await pair.code_of_send(at=pair.second) != ResponseCode.SUCCESS
        assert slave.store.max_physical_offset == pair.master.store.max_physical_offset


@pytest.mark.slow
async def test_story_of_a_day_of_restarts() -> None:
    """Each dies in turn, under messages and commits; nothing is lost and no offset falls."""
    async with pair_of() as pair:
        await pair.send_many(10)
        committed = 0
        for _ in range(6):
            await pair.level()
            await pair.first.kill()
            committed += 3
            await pair.caller.commit(pair.slave.address, committed)
            await pair.first.start()
            await pair.second.kill()
            await pair.send_many(10)
            assert await pair.caller.committed(pair.master.address) == committed
            await pair.second.start()
        await pair.level()
        assert pair.slave.store.queue_bounds("orders", 0) == (0, 70)


async def test_runtime_information_of_a_slave_reports_its_replication() -> None:
    async with pair_of() as pair:
        await pair.send_many(3)
        await pair.level()
        slave = pair.slave

        async def info() -> dict[str, str]:
            header = GetBrokerRuntimeInfoRequestHeader()
            answer = await pair.caller.pool.call(slave.address, header)
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
