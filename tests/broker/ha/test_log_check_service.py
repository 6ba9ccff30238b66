"""Checks in the background of whole clusters on a virtual clock: when, how fast, and what a slave compares."""

import pytest
import trio
from tests.support.caller import Caller, caller_of
from trio.testing import MockClock

from rocketrio_broker.broker import Broker
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_broker.ha.log_check_service import DIGEST_LIMIT, FIRST_AFTER, PASS_EVERY
from rocketrio_protocol.bodies.log_check import LogCheckStatus
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.commands.admin import (
    CheckLogRequestHeader,
    DeleteTopicInBrokerRequestHeader,
    GetLogDigestRequestHeader,
)


async def status(
    call: Caller, broker: Broker, *, start: bool = False, rate: int | None = None
) -> LogCheckStatus:
    answer = await call.pool.call(broker.address, CheckLogRequestHeader(start=start, rate=rate))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return LogCheckStatus.from_json(answer.body)


async def fill(call: Caller, broker: Broker, count: int = 40) -> None:
    for _ in range(count):
        await call.send(broker.address, bytes(50_000))


@pytest.mark.slow
async def test_slave_finds_in_the_background_where_it_differs(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as call:
        master, slave = cluster.master.broker, cluster.slaves[0].broker
        await fill(call, master)
        await trio.sleep(2)
        assert (await status(call, slave)).number == 0
        # A byte of the properties of a record in the middle: nothing but the master's log tells.
        middle = slave.store.queue_entries("orders", 0, 20, 1)[0]
        address = middle[0] + middle[1] - 1
        file = slave.store.commit_log.files.file_at(address)
        assert file is not None
        file.mapping[address - file.start_offset] ^= 1
        await trio.sleep(FIRST_AFTER + 10)
        found = await status(call, slave)
        assert (found.number, found.is_running, found.problem_count) == (1, False, 1)
        assert found.master_addr == master.address
        assert found.compared_bytes == found.end - found.begin > 2_000_000
        assert (
            found.problems[0].physical_offset <= address < found.problems[0].physical_offset + 4096
        )
        assert (await status(call, master)).problem_count == 0
        assert caplog.text.count("log check found") == 1
        # It stands until a pass finds nothing any more.
        file.mapping[address - file.start_offset] ^= 1
        found = await status(call, slave, start=True)
        assert found.is_running
        await trio.sleep(5)
        found = await status(call, slave)
        assert (found.number, found.is_running, found.problem_count) == (2, False, 0)


@pytest.mark.parametrize("role", ["master", "slave"])
async def test_queue_that_is_lost_while_the_broker_runs_is_named_unless_its_topic_is_deleted(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, role: str
) -> None:
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as call:
        master, slave = cluster.master.broker, cluster.slaves[0].broker
        await call.create_topic(master.address)
        await fill(call, master, 5)
        await trio.sleep(15)
        broker = master if role == "master" else slave
        broker.store.queue_table.delete_queue(broker.store.queues()["orders"][0])
        await status(call, broker, start=True)
        await trio.sleep(3)
        found = await status(call, broker)
        assert [one.problem for one in found.problems] == [
            "5 messages of queue 0 of orders, from 0 to 4, have no entry, so consumers do not get them"
        ]
        assert "log check found physical_offset=0 problem=5 messages of queue 0" in caplog.text
        deletion = DeleteTopicInBrokerRequestHeader("orders")
        assert (await call.pool.call(master.address, deletion)).code == ResponseCode.SUCCESS
        await trio.sleep(15)
        await status(call, broker, start=True)
        await trio.sleep(3)
        assert (await status(call, broker)).problem_count == 0


async def test_pass_keeps_to_its_rate(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as call:
        broker = cluster.master.broker
        await fill(call, broker, 30)
        size = broker.store.max_physical_offset
        await status(call, broker, start=True, rate=100_000)
        await trio.sleep(10)
        now = await status(call, broker)
        assert now.is_running
        assert 700_000 <= now.position <= 1_400_000
        await trio.sleep(8)
        now = await status(call, broker)
        assert (now.is_running, now.position, now.master_addr) == (False, size, None)
        # One that is asked for while another runs begins again from the start.
        await status(call, broker, start=True, rate=100_000)
        await trio.sleep(1)
        await status(call, broker, start=True)
        await trio.sleep(1)
        now = await status(call, broker)
        assert (now.number, now.is_running, now.position) == (3, False, size)


async def test_rate_0_checks_only_on_demand(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster(log_check_rate=0) as cluster, caller_of(cluster) as call:
        broker = cluster.master.broker
        await call.send(broker.address, b"x")
        await trio.sleep(3 * FIRST_AFTER)
        assert (await status(call, broker)).number == 0
        await status(call, broker, start=True)
        await trio.sleep(1)
        assert (await status(call, broker)).number == 1
    assert PASS_EVERY > FIRST_AFTER


async def test_digests_cover_bounded_parts_that_exist(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as call:
        broker = cluster.master.broker
        await call.send(broker.address, b"x")
        end = broker.store.max_physical_offset
        for start, stop in ((0, end + 1), (5, 0), (0, DIGEST_LIMIT + 1), (-5, 1)):
            answer = await call.pool.call(broker.address, GetLogDigestRequestHeader(start, stop))
            assert (answer.code, "digest" in answer.ext_fields) == (ResponseCode.SUCCESS, False)
        answer = await call.pool.call(broker.address, GetLogDigestRequestHeader(0, end))
        assert len(answer.ext_fields["digest"]) == 32
        answer = await call.pool.call(broker.address, CheckLogRequestHeader(start=True, rate=0))
        assert answer.code == ResponseCode.INVALID_PARAMETER
