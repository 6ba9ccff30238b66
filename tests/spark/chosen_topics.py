"""Topics for tests of which messages a read takes: two tags with one hash, and two halves with a time between."""

import trio
from tests.support.running_cluster import (
    Running,
    channel_pool,
    create_topic,
    full_topic,
    load_queue,
    numbered,
)

from rocketrio.connect import open_client
from rocketrio.consuming.pull import PullAPIWrapper
from rocketrio_protocol.message import Message, MessageQueue
from rocketrio_protocol.record.java_hash import tags_code
from rocketrio_protocol.remoting.pool import ChannelPool


async def load_twins(pool: ChannelPool, cluster: Running) -> None:
    """`twins`: ten messages of each of the tags Aa and BB, which have one hash."""
    assert tags_code("Aa") == tags_code("BB")
    await create_topic(pool, cluster.master, "twins", 1)
    twins = [Message("", b"%d" % n, tags="Aa" if n % 2 else "BB") for n in range(20)]
    await load_queue(pool, cluster.master, "twins", 0, twins)


async def load_timed(cluster: Running) -> int:
    """`timed`: 50 messages in both queues, and later 50 more in queue 0; a time in between, in epoch milliseconds."""
    async with channel_pool() as pool, open_client(name_servers=[cluster.name_server]) as client:
        await full_topic(pool, cluster.master, "timed", 2, 50)
        await trio.sleep(0.05)
        queue = MessageQueue("timed", "broker-a", 1)
        result = await PullAPIWrapper(client, "x").pull_kernel(queue, 49, suspend_timeout=0)
        await load_queue(pool, cluster.master, "timed", 0, numbered(0, 50))
        return result.messages()[0].store_time_ms + 1
