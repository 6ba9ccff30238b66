"""A topic of numbered messages, and what tests of consumers ask again and again."""

from typing import Any

import trio

from rocketrio import (
    ClientInstance,
    Consumer,
    Message,
    MessageExt,
    MessageQueue,
    open_admin,
    open_consumer,
    open_producer,
)
from rocketrio.consuming.pull import PullAPIWrapper
from rocketrio.consuming.pull_result import PullStatus

TOPIC = "orders"


async def make_topic(
    client: ClientInstance, topic: str = TOPIC, *, queues: int = 1, **settings: Any
) -> None:
    """Create a topic at every master."""
    async with open_admin(client=client) as admin:
        await admin.create_topic(topic, queues=queues, **settings)


async def messages_of(client: ClientInstance, queue: MessageQueue) -> list[MessageExt]:
    """Return all messages that a queue has."""
    wrapper = PullAPIWrapper(client, "looking")
    found: list[MessageExt] = []
    offset = 0
    while True:
        result = await wrapper.pull_kernel(queue, offset, suspend_timeout=0)
        if result.status is not PullStatus.FOUND:
            return found
        found += result.messages()
        offset = result.next_begin_offset


async def send(client: ClientInstance, count: int, *, start: int = 0, queues: int = 4) -> None:
    """Send numbered bodies; the number modulo `queues` is the queue."""
    await make_topic(client, queues=queues)
    await client.refresh_topic_route(TOPIC)
    async with open_producer(client=client) as producer, producer.pipeline() as pipeline:
        for number in range(start, start + count):
            queue = MessageQueue(TOPIC, "broker-a", number % queues)
            tags = "even" if number % 2 == 0 else "odd"
            await pipeline.send(Message(TOPIC, b"%d" % number, tags=tags), queue=queue)


async def fill(
    client: ClientInstance, count: int, *, queues: int = 1, read: int | None = None
) -> None:
    """Send numbered bodies, and make a group `billing`, which may have committed this offset in each queue."""
    await send(client, count, queues=queues)
    async with open_admin(client=client) as admin:
        await admin.create_group("billing")
        if read is not None:
            every = [MessageQueue(TOPIC, "broker-a", number) for number in range(queues)]
            await admin.reset_offsets("billing", dict.fromkeys(every, read))


async def receive(consumer: Consumer, count: int) -> list[int]:
    return [int((await consumer.receive()).body) for _ in range(count)]


async def committed(consumer: Consumer) -> dict[int, object]:
    return {queue.queue_id: await consumer.committed_offset(queue) for queue in consumer.assignment}


async def total_committed(consumer: Consumer) -> int:
    offsets = await committed(consumer)
    return sum(offset for offset in offsets.values() if isinstance(offset, int))


async def take(consumer: Consumer, taken: list[int], pause: float) -> None:
    """Note the numbers that a consumer is handed, with a pause after each."""
    async for message in consumer:
        taken.append(int(message.body))
        await trio.sleep(pause)


async def delivered(client: ClientInstance, within: float) -> list[bytes]:
    """Return all that a new consumer of the first queue gets in this time."""
    queue = MessageQueue(TOPIC, "broker-a", 0)
    found: list[bytes] = []
    async with open_consumer(
        TOPIC,
        group="looking",
        queues=[queue],
        start_from="earliest",
        auto_commit=False,
        client=client,
    ) as consumer:
        with trio.move_on_after(within):
            async for message in consumer:
                found.append(message.body)
    return found
