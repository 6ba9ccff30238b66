"""A topic in a cluster in memory, and reading it as a Spark task would: for tests under a virtual clock."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
from tests.support.clients import client_of, open_client
from tests.support.running_cluster import channel_pool, full_topic

from rocketrio.spark.reading import planning
from rocketrio.spark.reading.decoding import BlockDecoder
from rocketrio.spark.reading.fetch import Block, fetch_task
from rocketrio.spark.reading.options import ReadOptions, parse_read_options
from rocketrio.spark.reading.plan import ReadTask
from rocketrio.spark.reading.planning import Discovery
from rocketrio.spark.reading.questions import source_errors
from rocketrio.spark.reading.schema import arrow_schema, table_schema
from rocketrio.spark.runtime import first_cause
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.message import decode_messages
from rocketrio_protocol.remoting.ports import Dial

COUNT = 300


class Blocks:
    """Takes blocks in place of Spark's thread."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []

    async def put(self, block: Block) -> None:
        await trio.lowlevel.checkpoint()
        self.blocks.append(block)

    def rows(self) -> dict[int, list[bytes]]:
        """Bodies by queue, in the order they came."""
        found: dict[int, list[bytes]] = {}
        for block in self.blocks:
            for _, rows, body in block.pieces:
                messages = decode_messages(body)
                assert len(messages) == rows
                for message in messages:
                    found.setdefault(message.queue_id, []).append(message.body)
        return found


def batch_options(**given: str) -> ReadOptions:
    """Parse the options of a batch read; by default of `orders`, at a name server that is not asked."""
    way = {} if {"assign", "subscribePattern"} & set(given) else {"subscribe": "orders"}
    return parse_read_options({"nameServer": "h:1", **way, **given})


def read_options(cluster: EmbeddedCluster, **given: str) -> ReadOptions:
    """Parse the options of a batch read from this cluster."""
    return batch_options(**{"nameServer": ";".join(cluster.name_servers), **given})


def decoder(firsts: dict[str, dict[str, int]] | None = None, **given: str) -> BlockDecoder:
    """Make the decoder of a task with these options; `firsts` number the queues of topics for Kafka's columns."""
    options = batch_options(**given)
    return BlockDecoder(options, arrow_schema(table_schema(options)), firsts)


async def discover(options: ReadOptions, *, dial: Dial) -> Discovery:
    """As a batch read does, over a client of its own. Raises SparkSourceError."""
    with source_errors():
        async with open_client(name_servers=options.name_servers, dial=dial) as client:
            return await planning.discover(client, options)


def task_of(found: Discovery) -> ReadTask:
    return ReadTask(tuple(found.ranges), found.addresses)


async def read(cluster: EmbeddedCluster, **given: str) -> Blocks:
    options = read_options(cluster, **given)
    found = await discover(options, dial=cluster.dial)
    assert not found.losses
    return await fetch(cluster, options, task_of(found))


async def fetch(cluster: EmbeddedCluster, options: ReadOptions, task: ReadTask) -> Blocks:
    taken = Blocks()
    async with client_of(cluster) as client:
        try:
            await fetch_task(task, options, taken, client)  # type: ignore[arg-type]
        except BaseExceptionGroup as group:
            raise first_cause(group) from None
    return taken


@asynccontextmanager
async def loaded(
    *, queues: int = 2, count: int = COUNT, **settings: Any
) -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(**settings) as cluster, channel_pool(cluster.dial) as pool:
        master = cluster.master.broker.address
        await full_topic(pool, master, "orders", queues, count)
        yield cluster


def all_bodies(queues: int = 2, count: int = COUNT) -> dict[int, list[bytes]]:
    return {q: [f"{q}/{n}".encode() for n in range(count)] for q in range(queues)}
