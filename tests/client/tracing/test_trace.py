"""Traces of a client against a cluster in memory: what is traced, and that it never gets in the way."""

import logging

import pytest
import trio
from tests.support.clients import client_with_topic, open_client

from rocketrio import (
    ClientInstance,
    Message,
    MessageExt,
    TransactionState,
    open_admin,
    open_consumer,
    open_producer,
)
from rocketrio.tracing.encoding import ConsumeReturn, Traced, TransactionEnded
from rocketrio.tracing.trace import BATCH_RECORDS, KEYS_LIMIT, WAITING_LIMIT, TraceStatistics
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.errors import LocalProtocolError

TOPIC = "orders"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"


async def records(client: ClientInstance, topic: str = TRACE_TOPIC) -> list[list[str]]:
    """All records of the trace topic, as Java's reader cuts them."""
    messages: list[MessageExt] = []
    async with open_consumer(
        topic, group="console", start_from="earliest", client=client
    ) as consumer:
        with trio.move_on_after(3):
            async for message in consumer:
                messages.append(message.copy())
    messages.sort(key=lambda message: message.physical_offset)
    return [
        text.split("\x01")
        for message in messages
        for text in message.body.decode().split("\x02")[:-1]
    ]


def stats(client: ClientInstance) -> TraceStatistics:
    assert client.traces is not None
    return client.traces.statistics()


async def test_each_send_is_traced(client: ClientInstance, cluster: EmbeddedCluster) -> None:
    async with (
        client_with_topic(cluster, trace=True) as traced,
        open_producer(client=traced, group="shop") as producer,
    ):
        sent = await producer.send(Message(TOPIC, b"body", keys="k1", tags="paid"))
        batch = await producer.send_batch([Message(TOPIC, b"1"), Message(TOPIC, b"2")])
        delayed = await producer.send(Message(TOPIC, b"", delay_level=1))
    first, second, third = await records(client)
    assert first[0] == "Pub"
    assert first[2:9] == [
        "DefaultRegion", "shop", TOPIC, sent.message_id, "paid", "k1", cluster.master.broker.address,
    ]  # fmt: skip
    assert first[9] == "4"
    assert first[11:] == ["0", sent.offset_message_id, "true"]
    assert second[5] == ",".join(batch.message_ids)
    assert third[5] == delayed.message_id
    assert third[11] == "3"


async def test_handled_messages_are_traced(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async with client_with_topic(cluster, trace=True) as traced:
        async with open_producer(client=client) as producer:
            sent = await producer.send(Message(TOPIC, b"x", keys="k"))

        async def broken_once(message: MessageExt) -> None:
            await trio.sleep(0.5)
            if not message.reconsume_times:
                raise OSError("no database")

        async with open_consumer(
            TOPIC, group="billing", start_from="earliest", client=traced
        ) as consumer:
            with trio.move_on_after(30):
                await consumer.run(broken_once)
    begun, ended, begun_again, done = await records(client)
    request_id = begun[4]
    assert begun[0] == "SubBefore"
    assert begun[2:] == ["DefaultRegion", "billing", request_id, sent.message_id, "0", "k"]
    failed = str(int(ConsumeReturn.EXCEPTION))
    assert ended[:7] == ["SubAfter", request_id, sent.message_id, "500", "false", "k", failed]
    assert ended[8] == "billing"
    assert begun_again[4] == done[1] != request_id
    assert begun_again[6] == "1"
    assert done[4:7] == ["true", "k", "0"]


async def test_decisions_of_transactions_are_traced(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async def check(message: MessageExt) -> TransactionState:
        await trio.lowlevel.checkpoint()
        return TransactionState.ROLLBACK

    async with (
        client_with_topic(cluster, trace=True) as traced,
        open_producer(client=traced, group="shop", check_transaction=check) as producer,
    ):
        async with producer.transaction(Message(TOPIC, b"x", keys="k")) as transaction:
            pass
        async with producer.transaction(Message(TOPIC, b"x")) as other:
            other.leave_open()
        await trio.sleep(120)
    half, decided, _, by_check = await records(client)
    assert (half[0], half[11]) == ("Pub", "1")
    assert decided[0] == "EndTransaction"
    assert decided[3:6] == ["shop", TOPIC, transaction.message_id]
    assert decided[9:] == ["2", transaction.message_id, "COMMIT_MESSAGE", "false"]
    assert by_check[9:] == ["2", other.message_id, "ROLLBACK_MESSAGE", "true"]


async def test_names_of_a_namespace_are_short_in_traces(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async with (
        client_with_topic(cluster, trace=True, namespace="ns") as traced,
        open_producer(client=traced, group="shop") as producer,
    ):
        await producer.send(Message(TOPIC, b""))
    [record] = await records(client)
    assert record[3:5] == ["shop", TOPIC]


async def test_traces_can_have_a_topic_of_their_own(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async with (
        client_with_topic(cluster, trace="my-traces") as traced,
        open_producer(client=traced) as producer,
    ):
        await producer.send(Message(TOPIC, b""))
        await producer.send(Message("my-traces", b"not mine"))
    assert len([each for each in await records(client, "my-traces") if each[0] == "Pub"]) == 1
    with pytest.raises(LocalProtocolError):
        async with open_client(trace="no topic"):
            pass


async def test_traces_leave_in_the_background_and_can_be_found_by_key(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async with (
        client_with_topic(cluster, trace=True) as traced,
        open_producer(client=traced) as producer,
    ):
        results = [await producer.send(Message(TOPIC, b"", keys=f"k{n}")) for n in range(150)]
        assert 0 < stats(traced).waiting < 150  # A full batch has left.
        await trio.sleep(2)
        assert stats(traced) == TraceStatistics(sent=150, dropped=0, waiting=0)
        async with open_admin(client=client) as admin:
            found = await admin.query_message(TRACE_TOPIC, results[70].message_id)
        assert len(found) == 1


async def test_too_many_records_are_dropped_and_nothing_waits(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with client_with_topic(cluster, trace=True) as traced:
        assert traced.traces is not None
        message = Traced(TOPIC, "ID")
        for _ in range(WAITING_LIMIT + 10):
            traced.traces.add(TransactionEnded(message, 0, "r", "g", "a", "t", "UNKNOW", False))
        assert stats(traced) == TraceStatistics(sent=0, dropped=10, waiting=WAITING_LIMIT)
        await trio.sleep(3)
        assert stats(traced) == TraceStatistics(sent=WAITING_LIMIT, dropped=10, waiting=0)
    assert caplog.text.count("traces dropped") == 1
    assert WAITING_LIMIT > BATCH_RECORDS


@pytest.mark.usefixtures("slave")
async def test_traces_that_cannot_be_sent_fail_nothing(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with client_with_topic(cluster, trace=True) as traced:
        async with open_producer(client=traced) as producer:
            with caplog.at_level(logging.WARNING, "rocketrio.trace"):
                await producer.send(Message(TOPIC, b""))
                for member in (*cluster.slaves, cluster.master):
                    await member.stop()
                await trio.sleep(30)
        assert stats(traced).dropped == 1
        assert "cannot be sent" in caplog.text


async def test_more_keys_than_a_message_holds_are_left_out(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async with (
        client_with_topic(cluster, trace=True) as traced,
        open_producer(client=traced) as producer,
    ):
        for _ in range(3):
            await producer.send(Message(TOPIC, b"", keys="k" * (KEYS_LIMIT - 100)))
        await trio.sleep(2)
        assert stats(traced) == TraceStatistics(sent=3, dropped=0, waiting=0)


async def test_nothing_is_traced_unless_asked_for(client: ClientInstance) -> None:
    assert client.traces is None
    async with open_producer(client=client) as producer:
        assert producer._sender.traces is None
