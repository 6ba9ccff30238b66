"""A topic of numbered messages, and what tests of consumers ask again and again."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.clients import open_client

from rocketrio import ClientInstance, Consumer, Message, MessageQueue, open_admin, open_producer
from rocketrio_broker.embedded import CLIENT_HOST, EmbeddedCluster

TOPIC = "orders"


@asynccontextmanager
async def another_client(
    cluster: EmbeddedCluster, *, host: str = CLIENT_HOST, namespace: str = ""
) -> AsyncIterator[ClientInstance]:
    async with open_client(
        name_servers=cluster.name_servers,
        dial=cluster.dial_from(host),
        wall_clock=cluster.wall_clock,
        namespace=namespace,
    ) as client:
        yield client


async def send(client: ClientInstance, count: int, *, start: int = 0, queues: int = 4) -> None:
    """Numbered bodies; the number modulo `queues` is the queue."""
    async with open_admin(client=client) as admin:
        await admin.create_topic(TOPIC, queues=queues)
    await client.refresh_topic_route(TOPIC)
    async with open_producer(client=client) as producer, producer.pipeline() as pipeline:
        for number in range(start, start + count):
            queue = MessageQueue(TOPIC, "broker-a", number % queues)
            tags = "even" if number % 2 == 0 else "odd"
            await pipeline.send(Message(TOPIC, b"%d" % number, tags=tags), queue=queue)


async def receive(consumer: Consumer, count: int) -> list[int]:
    return [int((await consumer.receive()).body) for _ in range(count)]


async def committed(consumer: Consumer) -> dict[int, object]:
    return {queue.queue_id: await consumer.committed_offset(queue) for queue in consumer.assignment}


async def total_committed(consumer: Consumer) -> int:
    offsets = await committed(consumer)
    return sum(offset for offset in offsets.values() if isinstance(offset, int))
