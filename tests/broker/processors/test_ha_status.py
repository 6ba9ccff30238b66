"""What a broker says of its replication, by virtual clock."""

import pytest
import trio
from tests.support.pair import pair_of
from trio.testing import MockClock

from rocketrio_broker.store.refusals import Refuser
from rocketrio_protocol.ha.stream import encode_report

SLAVE_HOST = "10.0.0.11"


async def test_master_status_has_each_slave(autojump_clock: MockClock) -> None:
    async with pair_of() as pair:
        await pair.send("x" * 5000)
        await pair.reported()
        await trio.sleep(2)
        status = await pair.caller.status(pair.master.address)
        end = pair.master.store.max_physical_offset
        assert (status.master, status.master_commit_log_max_offset) == (True, end)
        assert status.in_sync_slave_nums == 1
        [slave] = status.ha_connection_info
        assert (slave.slave_ack_offset, slave.diff, slave.in_sync) == (end, 0, True)
        assert (slave.transfer_from_where, slave.rocketrio_bytes_sent) == (end, end)
        assert (slave.rocketrio_broker_id, slave.rocketrio_seconds_behind) == (1, 0)
        assert slave.rocketrio_report_age is not None
        assert 0 < slave.rocketrio_report_age <= 5
        own = status.rocketrio
        assert own is not None
        assert (own.role, own.broker_id, own.refusal) == ("async-master", 0, None)
        assert (own.max_offset, own.live_slaves, own.in_sync_slaves) == (end, 1, None)
        assert own.last_problem is None


async def test_slave_status_has_its_master_and_the_address_known_there(
    autojump_clock: MockClock,
) -> None:
    async with pair_of(ha_acknowledge="disk") as pair:
        await pair.code_of_send()
        await pair.reported()
        [seen] = (await pair.caller.status(pair.master.address)).ha_connection_info
        await trio.sleep(1)
        status = await pair.caller.status(pair.slave.address)
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
        own = status.rocketrio
        assert own is not None
        assert (own.role, own.broker_id, own.refusal) == ("slave", 1, None)


async def test_status_of_a_lagging_slave_has_bytes_and_seconds(
    autojump_clock: MockClock,
) -> None:
    async with pair_of() as pair:
        await pair.code_of_send()
        await pair.reported()
        before = pair.master.store.max_physical_offset
        pair.part(pair.first, SLAVE_HOST)
        await pair.send("missed")
        await trio.sleep(7)
        await pair.send("missed later")
        [slave] = (await pair.caller.status(pair.master.address)).ha_connection_info
        assert slave.diff == pair.master.store.max_physical_offset - before > 0
        assert slave.rocketrio_seconds_behind == pytest.approx(7, abs=0.1)
        assert slave.rocketrio_report_age is not None
        assert slave.rocketrio_report_age > 6
        await trio.sleep(30)
        status = await pair.caller.status(pair.master.address)
        assert (status.ha_connection_info, status.in_sync_slave_nums) == ([], 0)
        problem = (
            await pair.caller.status(pair.slave.address)
        ).ha_client_runtime_info.rocketrio_last_problem
        assert problem


async def test_status_has_what_the_last_synchronous_put_waited_for(
    autojump_clock: MockClock,
) -> None:
    async with pair_of(role="sync-master") as pair:
        await pair.code_of_send()
        await pair.reported()
        [slave] = (await pair.caller.status(pair.master.address)).ha_connection_info
        pair.network.delay(pair.first.host, SLAVE_HOST, 0.25)
        await pair.code_of_send()
        own = await pair.caller.own_status(pair.master.address)
        assert own.in_sync_slaves == 1
        assert (own.shown_offset, own.shown_by) == (own.max_offset, "slaves")
        last = own.last_wait
        assert last is not None
        assert (last.status, last.slave, last.flush_seconds) == ("PUT_OK", slave.addr, None)
        assert last.slave_seconds == pytest.approx(0.5, abs=0.01)
        assert own.answered["PUT_OK"] >= 1
        assert last.end_offset == pair.master.store.max_physical_offset
        pair.part(pair.first, SLAVE_HOST)
        await pair.code_of_send()
        own = await pair.caller.own_status(pair.master.address)
        assert own.last_wait is not None
        assert own.last_wait.status == "FLUSH_SLAVE_TIMEOUT"
        assert own.answered["FLUSH_SLAVE_TIMEOUT"] == 1


async def test_refused_slave_is_a_problem_until_one_of_its_host_follows(
    autojump_clock: MockClock,
) -> None:
    async with pair_of(0) as pair:
        await pair.code_of_send()
        end = pair.master.store.max_physical_offset
        host = pair.network.host(SLAVE_HOST)
        liar = await host.dial(pair.master.ha_address)
        await liar.send_all(encode_report(end))
        await trio.sleep(1)
        await liar.send_all(encode_report(end + 1000))
        await trio.sleep(1)
        assert f"bytes up to {end + 1000}" in str(
            (await pair.caller.own_status(pair.master.address)).last_problem
        )
        await (await host.dial(pair.master.ha_address)).send_all(encode_report(end))
        await trio.sleep(1)
        assert (await pair.caller.own_status(pair.master.address)).last_problem is None


async def test_status_has_the_reason_why_writes_are_refused(autojump_clock: MockClock) -> None:
    async with pair_of(0) as pair:
        pair.master.store.refusals.refuse(Refuser.STANDING, "another broker is master")
        assert (
            await pair.caller.own_status(pair.master.address)
        ).refusal == "another broker is master"
        await pair.change(pair.first, "slave", 3)
        own = await pair.caller.own_status(pair.master.address)
        assert (own.role, own.broker_id, own.refusal) == ("slave", 3, None)


async def test_rate_is_measured_since_the_last_request_a_second_ago(
    autojump_clock: MockClock,
) -> None:
    async with pair_of() as pair:
        await pair.code_of_send()
        await pair.reported()
        await trio.sleep(10)
        for broker in (pair.master, pair.slave):
            await pair.caller.status(broker.address)
        start, before = trio.current_time(), pair.master.store.max_physical_offset
        await pair.send("x" * 10_000)
        await trio.sleep_until(start + 2)
        expected = (pair.master.store.max_physical_offset - before) / 2
        [slave] = (await pair.caller.status(pair.master.address)).ha_connection_info
        client = (await pair.caller.status(pair.slave.address)).ha_client_runtime_info
        assert slave.transferred_byte_in_second == pytest.approx(expected, rel=0.02)
        assert client.transferred_byte_in_second == pytest.approx(expected, rel=0.02)
        await pair.code_of_send()
        [again] = (await pair.caller.status(pair.master.address)).ha_connection_info
        assert again.transferred_byte_in_second == slave.transferred_byte_in_second
