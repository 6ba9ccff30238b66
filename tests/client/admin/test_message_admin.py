"""What happened to one message, what groups have done with it, and its delivery to a chosen member."""

from datetime import UTC, datetime

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from tests.support.clients import client_of, open_admin

from rocketrio import (
    GIVE_UP,
    ClientInstance,
    ConsumeLater,
    Message,
    MessageExt,
    open_consumer,
    open_producer,
)
from rocketrio.admin.message_status import GroupAnswers, Track, judged
from rocketrio.admin.message_trace import Reported, trace_steps
from rocketrio.tracing.decoding import decode_trace
from rocketrio.tracing.encoding import (
    ConsumeBegun,
    ConsumeEnded,
    ConsumeReturn,
    MessageKind,
    Published,
    Traced,
    TransactionEnded,
)
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.bodies.heartbeat import SubscriptionData
from rocketrio_protocol.bodies.stats import Connection, ConsumerConnection
from rocketrio_protocol.errors import BrokerError, ConsumerNotOnlineError, GroupNotExistError

# ---------------------------------------------------------------------------------------- the trace

TIMES = st.integers(1, 9)
TRACED = st.sampled_from([Traced("orders", "A"), Traced("orders", "B"), Traced("orders", "A,B")])
HOSTS = st.sampled_from(["10.0.0.1:1", "10.0.0.2:2"])
RECORDS = st.one_of(
    st.builds(
        lambda traced, time, ok: Published(
            traced, time, "R", "shop", "b:1", 1, 1, MessageKind.NORMAL, "OFF", ok
        ),
        TRACED,
        TIMES,
        st.booleans(),
    ),
    st.builds(
        lambda traced, time, count: ConsumeBegun(traced, time, "R", "billing", "REQ", count),
        TRACED,
        TIMES,
        st.integers(0, 2),
    ),
    st.builds(
        lambda traced, time, result: ConsumeEnded(traced, time, "", "REQ", 3, result),
        TRACED,
        st.integers(0, 9),
        st.sampled_from(ConsumeReturn),
    ),
    st.builds(
        lambda traced, time: TransactionEnded(
            traced, time, "R", "shop", "b:1", "TX", "COMMIT_MESSAGE", False
        ),
        TRACED,
        TIMES,
    ),
)


@given(st.lists(st.builds(Reported, RECORDS, HOSTS), max_size=8))
def test_steps_are_of_the_message_in_the_order_of_time(reported: list[Reported]) -> None:
    mine = [one for one in reported if one.record.message.message_id != "B"]
    steps = trace_steps("A", reported)
    assert steps == trace_steps("A", mine)
    assert len(steps) <= len(mine)
    assert bool(steps) == bool(mine)
    known = [step.time for step in steps if step.time is not None]
    assert known == sorted(known)
    assert [step.time for step in steps if step.time is None] == [
        step.time for step in steps[len(known) :]
    ]


def test_end_without_time_and_group_takes_them_from_its_beginning() -> None:
    message = Traced("", "A")
    begun = ConsumeBegun(message, 1000, "R", "billing", "REQ", 0)
    ended = ConsumeEnded(message, 0, "", "REQ", 30, ConsumeReturn.SUCCESS)
    steps = trace_steps("A", [Reported(ended, "h:1"), Reported(begun, "h:1")])
    assert [(step.what, step.group) for step in steps] == [
        ("delivered", "billing"),
        ("handled", "billing"),
    ]
    assert steps[1].time == datetime.fromtimestamp(1.03, UTC)
    [alone] = trace_steps("A", [Reported(ended, "h:1")])
    assert (alone.time, alone.group) == (None, None)


@pytest.mark.parametrize("number", [1_700_000_000_000_000, 2**63 - 1, -(2**63), 10**20, 0, -1])
def test_record_with_a_number_that_is_no_time_is_a_step_without_one(number: int) -> None:
    body = f"Pub\1{number}\1R\1g\1t\1MID\1\1\1a:1\0015\0013\0010\1OFFID\1true\2"
    decoded = decode_trace(body)
    assert decoded.damaged == 0
    ended = ConsumeEnded(Traced("t", "MID"), number, "g", "REQ", number, ConsumeReturn.SUCCESS)
    records = [*decoded.records, ended]
    steps = trace_steps("MID", [Reported(record, "h:1") for record in records])
    assert [(step.what, step.time) for step in steps] == [("sent", None), ("handled", None)]


async def test_trace_of_a_dead_letter_has_its_whole_life(cluster: EmbeddedCluster) -> None:
    failures = 0

    async def handle(message: MessageExt) -> None:
        nonlocal failures
        failures += 1
        raise ConsumeLater(GIVE_UP if failures > 1 else None)

    async with client_of(cluster, trace=True) as client, open_admin(client=client) as admin:
        await admin.create_topic("orders", queues=1)
        async with (
            open_producer(client=client, group="shop") as producer,
            open_consumer("orders", group="billing", client=client) as consumer,
        ):
            sent = await producer.send(Message("orders", b"x", keys="k"))
            with trio.move_on_after(60):
                await consumer.run(handle)
        await trio.sleep(5)
        trace = await admin.message_trace(sent.message_id)
        assert [(step.what, step.group) for step in trace.steps] == [
            ("sent", "shop"),
            ("delivered", "billing"),
            ("failed", "billing"),
            ("retried", "billing"),
            ("delivered", "billing"),
            ("failed", "billing"),
            ("dead", "billing"),
        ]
        assert (trace.topic, trace.trace_topic) == ("orders", "RMQ_SYS_TRACE_TOPIC")
        assert (trace.damaged, trace.is_cut, trace.problems) == (0, False, [])
        assert trace.steps[4].result == "redelivery 1"
        nothing = await admin.message_trace("0" * 32)
        assert (nothing.steps, nothing.topic) == ([], None)


async def test_retries_are_found_without_any_trace(client: ClientInstance) -> None:
    async def handle(message: MessageExt) -> None:
        raise ConsumeLater(GIVE_UP)

    async with open_admin(client=client) as admin:
        await admin.create_topic("orders", queues=1)
        async with (
            open_producer(client=client) as producer,
            open_consumer("orders", group="billing", client=client) as consumer,
        ):
            sent = await producer.send(Message("orders", b"x"))
            with trio.move_on_after(10):
                await consumer.run(handle)
        trace = await admin.message_trace(sent.message_id, topic="orders")
        assert trace.trace_topic is None
        assert [(step.what, step.group) for step in trace.steps] == [("dead", "billing")]


# --------------------------------------------------------------------------------------- the status


def members(
    consume_type: str = "CONSUME_PASSIVELY",
    model: str = "CLUSTERING",
    tags: tuple[str, ...] = (),
) -> ConsumerConnection:
    subscription = SubscriptionData("orders", " || ".join(tags) or "*", list(tags))
    connection = Connection("c", "10.0.0.9:1", "JAVA", 407)
    return ConsumerConnection([connection], {"orders": subscription}, consume_type, model)


async def _stored(client: ClientInstance) -> MessageExt:
    async with open_admin(client=client) as admin, open_producer(client=client) as producer:
        await admin.create_topic("orders", queues=1)
        await producer.send(Message("orders", b"first"))
        sent = await producer.send(Message("orders", b"x", tags="red"))
        return await admin.view_message(sent.offset_message_id)


async def test_status_is_apaches_status_with_a_reason(client: ClientInstance) -> None:
    message = await _stored(client)
    assert (message.broker_name, message.queue_offset) == ("broker-a", 1)
    for answers, status, why in (
        (GroupAnswers(members(), 2), Track.CONSUMED, "committed up to 2"),
        (GroupAnswers(members(), 1), Track.NOT_CONSUME_YET, "the message is at 1"),
        (GroupAnswers(members(), None), Track.NOT_CONSUME_YET, "nothing is committed"),
        (GroupAnswers(members(tags=("red", "blue")), 2), Track.CONSUMED, ""),
        (GroupAnswers(members(tags=("blue",)), 2), Track.CONSUMED_BUT_FILTERED, "tag is 'red'"),
        (GroupAnswers(members("CONSUME_ACTIVELY"), 2), Track.PULL, "pull when they like"),
        (GroupAnswers(members(model="BROADCASTING"), 2), Track.CONSUME_BROADCASTING, "each member"),
        (GroupAnswers(None, 2), Track.NOT_ONLINE, "no members; queue 0 of broker-a is committed"),
        (GroupAnswers(members(), 2, "it is silent"), Track.UNKNOWN, "it is silent"),
    ):
        found = judged("billing", message, answers)
        assert (found.status, why in found.why) == (status, True), found


async def test_status_of_each_group_that_reads_the_topic(
    cluster: EmbeddedCluster, client: ClientInstance
) -> None:
    message = await _stored(client)
    async with open_admin(client=client) as admin:
        for group in ("billing", "shipping"):
            async with open_consumer(
                "orders", group=group, start_from="earliest", client=client
            ) as consumer:
                for _ in range(2 if group == "billing" else 1):
                    await consumer.receive()
                await consumer.commit()
                online = await admin.message_status(message, group=group)
        assert [one.status for one in online] == [Track.NOT_CONSUME_YET]
        assert [one.committed_offset for one in online] == [1]
        found = await admin.message_status(message)
        assert [(one.group, one.status, one.committed_offset) for one in found] == [
            ("billing", Track.NOT_ONLINE, 2),
            ("shipping", Track.NOT_ONLINE, 1),
        ]
        with pytest.raises(GroupNotExistError):
            await admin.message_status(message, group="nobody")
        async with open_consumer("orders", group="billing", client=client):
            [billing] = await admin.message_status(message, group="billing")
            assert billing.status is Track.CONSUMED


# ------------------------------------------------------------------------------------- the delivery


async def test_message_is_delivered_to_the_member_that_was_named(client: ClientInstance) -> None:
    message = await _stored(client)
    handled: list[bytes] = []

    async def handle(message: MessageExt) -> None:
        handled.append(message.body)
        if len(handled) == 4:
            raise ValueError("no")

    async with open_admin(client=client) as admin:
        async with open_consumer(
            "orders", group="billing", start_from="earliest", client=client
        ) as consumer:
            with pytest.raises(BrokerError):  # It has no handler yet.
                await admin.deliver(message, "billing", client.client_id)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(consumer.run, handle)
                await trio.sleep(5)
                result = await admin.deliver(message, "billing", client.client_id)
                assert result.consume_result == "CR_SUCCESS"
                result = await admin.deliver(message, "billing", client.client_id)
                assert result.consume_result == "CR_THROW_EXCEPTION"
                nursery.cancel_scope.cancel()
        assert handled == [b"first", b"x", b"x", b"x"]
        with pytest.raises(ConsumerNotOnlineError):
            await admin.deliver(message, "billing", client.client_id)
