"""What a broker says of its replication, by virtual clock."""

from typing import Any

import attrs
import pytest
import trio
from tests.support.caller import Caller, caller_of
from tests.support.pair import Pair
from trio.testing import MockClock

from rocketrio_broker.broker import Broker
from rocketrio_broker.embedded import MASTER_HOST, EmbeddedCluster
from rocketrio_broker.store.refusals import Refuser
from rocketrio_protocol.commands.admin import (
    GetBrokerHAStatusRequestHeader,
)
from rocketrio_protocol.ha.status import HARuntimeInfo, OwnStatus
from rocketrio_protocol.ha.stream import encode_report

SLAVE_HOST = "10.0.0.11"
LIMIT = 60.0


async def status_of(call: Caller, broker: Broker) -> HARuntimeInfo:
    answer = await call.pool.call(broker.address, GetBrokerHAStatusRequestHeader())
    assert answer.code == 0, answer.remark
    return HARuntimeInfo.from_json(answer.body)


def own_of(status: HARuntimeInfo) -> OwnStatus:
    assert status.rocketrio is not None
    return status.rocketrio


@attrs.define
class LevelPair(Pair):
    async def send(self, body: bytes = b"x", **fields: Any) -> int:
        answer = await self.caller.send(self.master.address, body, **fields)
        return answer.code

    async def wait_level(self) -> HARuntimeInfo:
        with trio.fail_after(LIMIT):
            while True:
                status = await status_of(self.caller, self.master)
                if status.ha_connection_info and not any(c.diff for c in status.ha_connection_info):
                    return status
                await trio.sleep(0.01)


async def test_master_status_has_each_slave(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as call:
        pair = LevelPair(cluster, call)
        await pair.send(b"x" * 5000)
        status = await pair.wait_level()
        await trio.sleep(2)
        status = await status_of(call, pair.master)
        end = pair.master.store.max_physical_offset
        assert (status.master, status.master_commit_log_max_offset) == (True, end)
        assert status.in_sync_slave_nums == 1
        [slave] = status.ha_connection_info
        assert (slave.slave_ack_offset, slave.diff, slave.in_sync) == (end, 0, True)
        assert (slave.transfer_from_where, slave.rocketrio_bytes_sent) == (end, end)
        assert (slave.rocketrio_broker_id, slave.rocketrio_seconds_behind) == (1, 0)
        assert slave.rocketrio_report_age is not None
        assert 0 < slave.rocketrio_report_age <= 5
        own = own_of(status)
        assert (own.role, own.broker_id, own.refusal) == ("async-master", 0, None)
        assert (own.max_offset, own.live_slaves, own.in_sync_slaves) == (end, 1, None)
        assert own.last_problem is None


async def test_slave_status_has_its_master_and_the_address_known_there(
    autojump_clock: MockClock,
) -> None:
    await trio.sleep(1)
    async with (
        EmbeddedCluster(slaves=1, ha_acknowledge="disk") as cluster,
        caller_of(cluster) as call,
    ):
        pair = LevelPair(cluster, call)
        await pair.send()
        [seen] = (await pair.wait_level()).ha_connection_info
        await trio.sleep(1)
        status = await status_of(call, pair.slave)
        client = status.ha_client_runtime_info
        assert not status.master
        assert client.master_addr == pair.master.ha_address
        assert client.rocketrio_local_addr == seen.addr
        assert client.max_offset == pair.slave.store.max_physical_offset > 0
        assert (client.rocketrio_state, client.rocketrio_acknowledges) == ("following", "disk")
        assert client.rocketrio_state_id == "following"
        assert client.rocketrio_last_problem is None
        assert client.rocketrio_verified_offset == client.max_offset
        assert client.rocketrio_level_age is not None
        assert client.rocketrio_level_age < 6
        now = pair.slave.state.wall_clock.now_ms()
        assert now - 6000 < client.last_read_timestamp <= now
        assert now - 6000 < client.last_write_timestamp <= now
        own = own_of(status)
        assert (own.role, own.broker_id, own.refusal) == ("slave", 1, None)


async def test_status_of_a_lagging_slave_has_bytes_and_seconds(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as call:
        pair = LevelPair(cluster, call)
        await pair.send()
        await pair.wait_level()
        before = pair.master.store.max_physical_offset
        cluster.memory_network.partition(MASTER_HOST, SLAVE_HOST)
        await pair.send(b"missed")
        await trio.sleep(7)
        await pair.send(b"missed later")
        [slave] = (await status_of(call, pair.master)).ha_connection_info
        assert slave.diff == pair.master.store.max_physical_offset - before > 0
        assert slave.rocketrio_seconds_behind == pytest.approx(7, abs=0.1)
        assert slave.rocketrio_report_age is not None
        assert slave.rocketrio_report_age > 6
        await trio.sleep(30)
        status = await status_of(call, pair.master)
        assert (status.ha_connection_info, status.in_sync_slave_nums) == ([], 0)
        problem = (await status_of(call, pair.slave)).ha_client_runtime_info.rocketrio_last_problem
        assert problem


async def test_status_has_what_the_last_synchronous_put_waited_for(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedCluster(slaves=1, role="sync-master") as cluster, caller_of(cluster) as call:
        pair = LevelPair(cluster, call)
        await pair.send()
        [slave] = (await pair.wait_level()).ha_connection_info
        cluster.memory_network.delay(MASTER_HOST, SLAVE_HOST, 0.25)
        await pair.send()
        own = own_of(await status_of(call, pair.master))
        assert own.in_sync_slaves == 1
        assert (own.shown_offset, own.shown_by) == (own.max_offset, "slaves")
        last = own.last_wait
        assert last is not None
        assert (last.status, last.slave, last.flush_seconds) == ("PUT_OK", slave.addr, None)
        assert last.slave_seconds == pytest.approx(0.5, abs=0.01)
        assert own.answered["PUT_OK"] >= 1
        assert last.end_offset == pair.master.store.max_physical_offset
        cluster.memory_network.partition(MASTER_HOST, SLAVE_HOST)
        await pair.send()
        own = own_of(await status_of(call, pair.master))
        assert own.last_wait is not None
        assert own.last_wait.status == "FLUSH_SLAVE_TIMEOUT"
        assert own.answered["FLUSH_SLAVE_TIMEOUT"] == 1


async def test_refused_slave_is_a_problem_until_one_of_its_host_follows(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as call:
        pair = LevelPair(cluster, call)
        await pair.send()
        end = pair.master.store.max_physical_offset
        host = cluster.memory_network.host(SLAVE_HOST)
        liar = await host.dial(pair.master.ha_address)
        await liar.send_all(encode_report(end))
        await trio.sleep(1)
        await liar.send_all(encode_report(end + 1000))
        await trio.sleep(1)
        assert f"bytes up to {end + 1000}" in str(
            own_of(await status_of(call, pair.master)).last_problem
        )
        await (await host.dial(pair.master.ha_address)).send_all(encode_report(end))
        await trio.sleep(1)
        assert own_of(await status_of(call, pair.master)).last_problem is None


async def test_status_has_the_reason_why_writes_are_refused(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as call:
        pair = LevelPair(cluster, call)
        pair.master.store.refusals.refuse(Refuser.STANDING, "another broker is master")
        assert own_of(await status_of(call, pair.master)).refusal == "another broker is master"
        await call.change_role(pair.master.address, "slave", 3)
        own = own_of(await status_of(call, pair.master))
        assert (own.role, own.broker_id, own.refusal) == ("slave", 3, None)


async def test_rate_is_measured_since_the_last_request_a_second_ago(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as call:
        pair = LevelPair(cluster, call)
        await pair.send()
        await pair.wait_level()
        await trio.sleep(10)
        for broker in (pair.master, pair.slave):
            await status_of(call, broker)
        start, before = trio.current_time(), pair.master.store.max_physical_offset
        await pair.send(b"x" * 10_000)
        await trio.sleep_until(start + 2)
        expected = (pair.master.store.max_physical_offset - before) / 2
        [slave] = (await status_of(call, pair.master)).ha_connection_info
        client = (await status_of(call, pair.slave)).ha_client_runtime_info
        assert slave.transferred_byte_in_second == pytest.approx(expected, rel=0.02)
        assert client.transferred_byte_in_second == pytest.approx(expected, rel=0.02)
        await pair.send()
        [again] = (await status_of(call, pair.master)).ha_connection_info
        assert again.transferred_byte_in_second == slave.transferred_byte_in_second
