"""Decisions of producers on a broker in memory: who sees what, how often, and what is refused."""

from typing import Any

import pytest
import trio
from tests.support.caller import bodies, caller_of, messages
from tests.support.transaction_producer import (
    COMMIT,
    GIVEN_UP,
    HALF,
    OPERATIONS,
    ROLLBACK,
    UNKNOWN,
    producing,
)
from trio.testing import MockClock

from rocketrio_broker.delay.delayed_puts import stored_message
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_broker.transaction import decisions
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.commands.transaction import ResumeCheckHalfMessageRequestHeader
from rocketrio_protocol.record.batch import encode_batch


async def test_committed_message_is_the_one_that_was_sent(autojump_clock: MockClock) -> None:
    async with producing() as producer:
        half = await producer.send(
            b"paid", properties="TAGS\x01red\x02KEYS\x01k", queue_id=2, flag=7
        )
        assert await producer.seen(queue_id=2) == []
        assert (await producer.end(half, COMMIT)).code == ResponseCode.SUCCESS
        (message,) = await producer.seen(queue_id=2)
        assert (message.body, message.flag, message.tags, message.keys) == (b"paid", 7, "red", "k")
        assert message.sys_flag & 0xC == 8
        assert message.prepared_transaction_offset == half.physical_offset
        filtered = await producer.call.pull(producer.addr, 0, queue_id=2, expression="red")
        assert filtered.code == ResponseCode.SUCCESS


async def test_rolled_back_message_is_not_delivered(autojump_clock: MockClock) -> None:
    async with producing() as producer:
        half = await producer.send(b"never")
        assert (await producer.end(half, ROLLBACK)).code == ResponseCode.SUCCESS
        assert await producer.seen() == []
        (operation,) = await producer.seen(OPERATIONS)
        assert operation.body == b"0"


async def test_undecided_transaction_stays_open(autojump_clock: MockClock) -> None:
    async with producing() as producer:
        half = await producer.send(b"later")
        assert (await producer.end(half, UNKNOWN)).code == ResponseCode.SUCCESS
        assert await producer.seen() == []
        assert await producer.seen(OPERATIONS) == []
        await producer.end(half, COMMIT)
        assert await producer.seen_bodies() == [b"later"]


@pytest.mark.parametrize("second", [COMMIT, ROLLBACK])
async def test_second_decision_changes_nothing(autojump_clock: MockClock, second: int) -> None:
    async with producing() as producer:
        half = await producer.send(b"once")
        await producer.end(half, COMMIT)
        assert (await producer.end(half, second)).code == ResponseCode.SUCCESS
        assert await producer.seen_bodies() == [b"once"]
        assert len(await producer.seen(OPERATIONS)) == 1


@pytest.mark.parametrize("restarts", [False, True])
async def test_commit_after_a_rollback_is_refused(
    autojump_clock: MockClock, restarts: bool
) -> None:
    """Its message will not come, and 0 would say that it is stored."""
    async with producing() as producer:
        half = await producer.send(b"never")
        await producer.end(half, ROLLBACK)
        if restarts:
            await producer.cluster.kill_master()
            await producer.cluster.restart_master()
            await trio.sleep(1)
        answer = await producer.end(half, COMMIT)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "rolled back before" in (answer.remark or "")
        assert await producer.seen_bodies() == []


@pytest.mark.parametrize("properties", ["", "DELAY\x012"])
async def test_commits_beyond_those_remembered_are_found_by_their_keys(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, properties: str
) -> None:
    monkeypatch.setattr(decisions, "COMMITS_REMEMBERED", 1)
    async with producing() as producer:
        halves = [await producer.send(b"%d" % number, properties=properties) for number in range(3)]
        for half in halves:
            await producer.end(half, COMMIT)
        await trio.sleep(10)
        for half in halves:
            assert (await producer.end(half, COMMIT)).code == ResponseCode.SUCCESS
        assert sorted(await producer.seen_bodies()) == [b"0", b"1", b"2"]


async def test_second_decision_after_a_restart_changes_nothing(autojump_clock: MockClock) -> None:
    async with producing() as producer:
        half = await producer.send(b"once")
        await producer.end(half, COMMIT)
        await producer.cluster.kill_master()
        await producer.cluster.restart_master()
        await producer.end(half, COMMIT)
        assert await producer.seen_bodies() == [b"once"]


@pytest.mark.slow
async def test_late_commit_of_a_copied_half_message_decides_the_copy(
    autojump_clock: MockClock,
) -> None:
    async with producing() as producer:
        half = await producer.send(b"late")
        await trio.sleep(100)
        assert len(producer.asked) >= 2
        await producer.end(half, COMMIT)
        await producer.end(half, COMMIT)
        asked = len(producer.asked)
        await trio.sleep(100)
        assert len(producer.asked) == asked
        assert await producer.seen_bodies() == [b"late"]


async def test_committed_message_with_a_level_is_delayed_from_then_on(
    autojump_clock: MockClock,
) -> None:
    async with producing() as producer:
        half = await producer.send(b"delayed", properties="DELAY\x012")
        await trio.sleep(20)
        assert await producer.seen() == []
        await producer.end(half, COMMIT)
        await trio.sleep(4.9)
        assert await producer.seen() == []
        await trio.sleep(0.2)
        assert await producer.seen_bodies() == [b"delayed"]


@pytest.mark.parametrize(
    ("fields", "remark"),
    [
        ({"producer_group": "others"}, "producer group wrong"),
        ({"tran_state_table_offset": 1}, "table offset wrong"),
        ({"commit_log_offset": 7}, "prepared transaction message failed"),
        ({"commit_log_offset": 1 << 40}, "prepared transaction message failed"),
        ({"commit_log_offset": 0}, "prepared transaction message failed"),
        ({"msg_id": "KEY0077"}, "KEY0077 is lost"),
    ],
)
async def test_wrong_names_are_refused(
    autojump_clock: MockClock, fields: dict[str, Any], remark: str
) -> None:
    async with producing() as producer:
        await producer.call.send(producer.addr, b"an ordinary message at address 0")
        half = await producer.send(b"x")
        answer = await producer.end(half, COMMIT, **fields)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert remark in (answer.remark or "")
        assert await producer.seen(OPERATIONS) == []


@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
async def test_decision_on_a_lost_message_leaves_the_one_in_its_place_alone(
    autojump_clock: MockClock, decision: int
) -> None:
    async with producing(slaves=1) as producer:
        cluster, call = producer.cluster, producer.call
        slave = cluster.slaves[0].broker
        await trio.sleep(3)
        cluster.memory_network.partition(cluster.master.host, cluster.slaves[0].host)
        lost = await producer.send(b"lost")
        await cluster.kill_master()
        assert (await call.change_role(slave.address, "async-master", 0)).code == 0
        producer.other_addr = slave.address
        half = await producer.send(b"kept")
        assert half.physical_offset == lost.physical_offset
        answer = await producer.end(lost, decision)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert f"{lost.key} is lost" in (answer.remark or "")
        assert (await producer.end(half, COMMIT)).code == ResponseCode.SUCCESS
        assert bodies(await call.pull(slave.address, 0)) == [b"kept"]


async def test_clients_that_name_no_message_or_its_place_are_understood(
    autojump_clock: MockClock,
) -> None:
    async with producing() as producer:
        half = await producer.send(b"first")
        assert (await producer.end(half, COMMIT, msg_id="")).code == ResponseCode.SUCCESS
        half = await producer.send(b"second")
        stored = stored_message(producer.cluster.master.broker.store, half.physical_offset)
        assert stored is not None
        answer = await producer.end(half, COMMIT, msg_id=stored.offset_message_id)
        assert answer.code == ResponseCode.SUCCESS
        assert await producer.seen_bodies() == [b"first", b"second"]


async def test_slave_refuses_to_decide_a_transaction(autojump_clock: MockClock) -> None:
    async with producing(slaves=1) as producer:
        half = await producer.send(b"x")
        await trio.sleep(1)
        slave = producer.cluster.slaves[0].broker
        end = slave.store.max_physical_offset
        answer = await producer.end(half, COMMIT, addr=slave.address)
        assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE
        assert slave.store.max_physical_offset == end


async def test_commit_is_answered_when_slaves_have_it(autojump_clock: MockClock) -> None:
    async with producing(slaves=1, role="sync-master") as producer:
        await trio.sleep(1)
        half = await producer.send(b"x")
        assert (await producer.end(half, COMMIT)).code == ResponseCode.SUCCESS
        # What it has; its readers see it with the master's next word.
        queues = producer.cluster.slaves[0].broker.store.queues()
        assert queues["orders"][0].max_offset == 1
        assert queues[OPERATIONS][0].max_offset == 1
        other = await producer.send(b"y")
        await producer.cluster.slaves[0].kill()
        late = await producer.end(other, COMMIT)
        assert (late.code, (late.remark or "")[:6]) == (ResponseCode.SLAVE_NOT_AVAILABLE, "stored")


async def test_broker_with_transactions_off_refuses_them(autojump_clock: MockClock) -> None:
    async with (
        EmbeddedCluster(reject_transaction_message=True) as cluster,
        caller_of(cluster) as call,
    ):
        addr = cluster.master.broker.address
        answer = await call.send(addr, b"x", properties="TRAN_MSG\x01true", sys_flag=4)
        assert answer.code == ResponseCode.NO_PERMISSION
        assert cluster.master.broker.store.queue_bounds(HALF, 0) is None


async def test_given_up_message_is_checked_again_on_request_of_an_operator(
    autojump_clock: MockClock,
) -> None:
    async with producing(transaction_check_max=1) as producer:
        await producer.send(b"revived")
        await trio.sleep(100)
        (given_up,) = await producer.seen(GIVEN_UP)
        assert len(producer.asked) == 1
        producer.decide = lambda _: COMMIT
        header = ResumeCheckHalfMessageRequestHeader(given_up.offset_message_id)
        assert (await producer.call.pool.call(producer.addr, header)).code == ResponseCode.SUCCESS
        await trio.sleep(61)
        assert await producer.seen_bodies() == [b"revived"]
        for wrong in ("7F", "", producer.asked[0][0].offset_msg_id):
            header = ResumeCheckHalfMessageRequestHeader(wrong)
            answer = await producer.call.pool.call(producer.addr, header)
            assert answer.code == ResponseCode.SYSTEM_ERROR


async def test_mark_on_a_resent_message_begins_no_transaction(autojump_clock: MockClock) -> None:
    """Clients before 4.6.1 leave it on what they resend to a retry topic."""
    async with EmbeddedCluster() as cluster, caller_of(cluster) as call:
        addr = cluster.master.broker.address
        properties = "TRAN_MSG\x01true\x02PGROUP\x01p\x02DELAY\x011"
        answer = await call.send(
            addr,
            b"again",
            topic="%RETRY%billing",
            properties=properties,
            sys_flag=4,
            reconsume_times=1,
        )
        assert answer.code == ResponseCode.SUCCESS
        await trio.sleep(1.1)
        found = await call.pull(addr, 0, topic="%RETRY%billing")
        assert bodies(found) == [b"again"]
        assert messages(found)[0].sys_flag & 0xC == 0


async def test_batch_with_the_transaction_mark_is_refused(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as call:
        addr = cluster.master.broker.address
        body = encode_batch([(0, b"x", b"")])
        for fields in ({"properties": "TRAN_MSG\x01true"}, {"sys_flag": 4}):
            answer = await call.send(addr, body, batch=True, **fields)
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert cluster.master.broker.store.max_physical_offset == 0
