"""The metrics beside the spans."""

from collections.abc import Awaitable, Callable

import pytest
import trio
from tests.client.otel.conftest import TOPIC, Instrument
from tests.support.clients import client_with_topic

from rocketrio import Message, MessageExt, open_consumer, open_producer
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.errors import LocalProtocolError

OPERATIONS = "messaging.client.operation.duration"
HANDLERS = "messaging.process.duration"


async def handled(
    cluster: EmbeddedCluster, handler: Callable[[MessageExt], Awaitable[None]], count: int
) -> None:
    """Send some messages in a batch and handle them."""
    async with client_with_topic(cluster) as client:
        async with open_producer(client=client) as producer:
            await producer.send_batch([Message(TOPIC, b"%d" % number) for number in range(count)])
        async with (
            open_consumer(TOPIC, group="g", start_from="earliest", client=client) as consumer,
            trio.open_nursery() as nursery,
        ):
            left = count

            async def handle(message: MessageExt) -> None:
                nonlocal left
                left -= 1
                if not left:
                    nursery.cancel_scope.deadline = trio.current_time() + 1
                await handler(message)

            await consumer.run(handle)


async def test_sent_messages_and_durations_have_operation_and_topic(
    cluster: EmbeddedCluster, instrument: Instrument
) -> None:
    spans = instrument()
    async with client_with_topic(cluster) as client, open_producer(client=client) as producer:
        await producer.send(Message(TOPIC, b"1"))
        await producer.send_batch([Message(TOPIC, b"2"), Message(TOPIC, b"3")])
        with pytest.raises(LocalProtocolError):
            await producer.send(Message(TOPIC, b"4", delay_level=99))
    sent = {
        point.attributes.get("error.type"): point
        for point in spans.points("messaging.client.sent.messages")
    }
    assert sent[None].value == 3
    assert dict(sent[None].attributes) == {
        "messaging.system": "rocketmq", "messaging.operation.name": "send",
        "messaging.operation.type": "send", "messaging.destination.name": TOPIC,
    }  # fmt: skip
    assert len(sent) == 2
    (fine,) = [point for point in spans.points(OPERATIONS) if "error.type" not in point.attributes]
    assert fine.count == 2
    assert fine.explicit_bounds[0] == 0.005


async def test_consumed_messages_and_handlers_have_their_group(
    cluster: EmbeddedCluster, instrument: Instrument
) -> None:
    spans = instrument()
    async with client_with_topic(cluster) as client:
        async with open_producer(client=client) as producer:
            await producer.send_batch([Message(TOPIC, b"%d" % number) for number in range(3)])
        async with open_consumer(
            TOPIC, group="g", start_from="earliest", client=client
        ) as consumer:
            assert len(await consumer.receive_batch(3)) == 3
    (consumed,) = spans.points("messaging.client.consumed.messages")
    assert consumed.value == 3
    assert consumed.attributes["messaging.consumer.group.name"] == "g"

    async def work(message: MessageExt) -> None:
        await trio.lowlevel.checkpoint()

    await handled(cluster, work, 2)
    points = spans.points(HANDLERS)
    assert sum(point.count for point in points) >= 2
    assert {point.attributes["messaging.operation.type"] for point in points} == {"process"}


async def test_handler_that_raises_is_an_error_of_its_type(
    cluster: EmbeddedCluster, instrument: Instrument
) -> None:
    spans = instrument()

    async def work(message: MessageExt) -> None:
        raise ZeroDivisionError

    await handled(cluster, work, 1)
    (point,) = spans.points(HANDLERS)
    assert (point.count, point.attributes["error.type"]) == (1, "ZeroDivisionError")
    (nack,) = [
        point
        for point in spans.points(OPERATIONS)
        if point.attributes["messaging.operation.name"] == "nack"
    ]
    assert nack.count == 1
