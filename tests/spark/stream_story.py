"""A cluster in memory, a producer that writes, and a stream that reads, under a virtual clock."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
from tests.support.clients import client_of, open_admin
from tests.support.running_cluster import channel_pool, create_topic, load_queue, numbered

from rocketrio.admin.admin import Admin
from rocketrio.client import ClientInstance
from rocketrio.spark.reading.offsets import OffsetTable
from rocketrio.spark.streaming.driver import Limit, StreamDriver
from rocketrio.spark.streaming.options import parse_stream_options
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.remoting.pool import ChannelPool


def queue(number: int, topic: str = "orders") -> MessageQueue:
    return MessageQueue(topic, "broker-a", number)


@attrs.define
class Story:
    """A cluster, a producer that writes, and a stream that reads."""

    cluster: EmbeddedCluster
    pool: ChannelPool
    client: ClientInstance
    admin: Admin

    @property
    def master(self) -> str:
        return self.cluster.master.broker.address

    async def write(self, queue_id: int, count: int, topic: str = "orders") -> None:
        await load_queue(self.pool, self.master, topic, queue_id, numbered(queue_id, count))

    async def topic(self, queues: int, topic: str = "orders") -> None:
        await create_topic(self.pool, self.master, topic, queues)

    def stream(self, **given: str) -> StreamDriver:
        way = (
            {}
            if {"subscribe", "assign", "subscribePattern"} & set(given)
            else {"subscribe": "orders"}
        )
        servers = ";".join(self.cluster.name_servers)
        return StreamDriver(parse_stream_options({"nameServer": servers, **way, **given}))

    async def latest(
        self, stream: StreamDriver, start: OffsetTable, limit: Limit | None = None
    ) -> dict[int, int]:
        end = await stream.latest(self.client, start, limit or Limit())
        return {queue.queue_id: offset for queue, offset in end.items()}


@asynccontextmanager
async def a_story(*, queues: int = 2, count: int = 0, **settings: Any) -> AsyncIterator[Story]:
    async with (
        EmbeddedCluster(**settings) as cluster,
        channel_pool(cluster.dial) as pool,
        client_of(cluster) as client,
        open_admin(name_servers=cluster.name_servers, dial=cluster.dial) as admin,
    ):
        story = Story(cluster, pool, client, admin)
        await story.topic(queues)
        for queue_id in range(queues if count else 0):
            await story.write(queue_id, count)
        yield story
