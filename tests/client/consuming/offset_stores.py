"""An offset store whose topic is known, and what brokers hold for its group."""

import trio

from rocketrio import ClientInstance, Message, MessageQueue, open_producer
from rocketrio.cluster.api import Offset
from rocketrio.consuming.offset_store import RemoteBrokerOffsetStore

QUEUE = MessageQueue("orders", "broker-a", 0)


async def new_store(client: ClientInstance) -> RemoteBrokerOffsetStore:
    """A group that has committed nothing, on a queue with a hundred messages."""
    async with open_producer(client=client) as producer:
        await producer.send(Message("orders", b""))  # It makes the topic.
        await producer.send_batch([Message("orders", b"")] * 100, queue=QUEUE)
    await trio.sleep(2)
    await client.topic_route("orders")
    return RemoteBrokerOffsetStore(client, "g")


async def at(store: RemoteBrokerOffsetStore, addr: str) -> Offset:
    return await store.client.api.query_consumer_offset(addr, "g", QUEUE, zero_if_young=False)


async def read(store: RemoteBrokerOffsetStore) -> Offset:
    return (await store.read_offset(QUEUE, zero_if_young=False)).offset


async def commit(store: RemoteBrokerOffsetStore, offset: int) -> None:
    store.update_offset(QUEUE, offset)
    await store.persist(QUEUE)


async def seek(store: RemoteBrokerOffsetStore, offset: int) -> None:
    store.reset_offset(QUEUE, offset)
    await store.persist(QUEUE)
