"""The jobs of `RocketMQPeer.java`, done by our client in this process: each returns the seconds it took.

Columns are what the Spark source reads in a task, without Spark: keys, tags and bodies as Arrow record batches.
"""

import json
import time
from contextlib import AbstractAsyncContextManager
from typing import Any

import trio

from rocketrio import ClientInstance, Message, open_client, open_consumer, open_producer
from rocketrio.consumer import Consumer

QUEUES = 4


async def send_singles(name_server: str, *, count: int, in_flight: int, size: int) -> float:
    """Each send awaited by one of `in_flight` tasks."""
    body = bytes(size)
    left = iter(range(count))
    async with (
        open_client(name_servers=[name_server]) as client,
        open_producer(client=client) as producer,
    ):

        async def work() -> None:
            for _ in left:
                await producer.send(Message("singles", body))

        started = time.perf_counter()
        async with trio.open_nursery() as nursery:
            for _ in range(in_flight):
                nursery.start_soon(work)
        return time.perf_counter() - started


async def send_pipelined(name_server: str, *, count: int, size: int) -> float:
    """Batched by the client as it goes."""
    body = bytes(size)
    async with (
        open_client(name_servers=[name_server]) as client,
        open_producer(client=client) as producer,
    ):
        started = time.perf_counter()
        async with producer.pipeline() as pipeline:
            for _ in range(count):
                await pipeline.send(Message("auto", body))
        return time.perf_counter() - started


async def send_batches(name_server: str, *, count: int, batch: int, size: int) -> float:
    """One batch after the other."""
    body = bytes(size)
    async with (
        open_client(name_servers=[name_server]) as client,
        open_producer(client=client) as producer,
    ):
        started = time.perf_counter()
        for _ in range(count // batch):
            await producer.send_batch([Message("batches", body) for _ in range(batch)])
        return time.perf_counter() - started


def _consumer(client: ClientInstance) -> AbstractAsyncContextManager[Consumer]:
    """Of a group that never read before, from the beginning, without commits."""
    group = f"bench-{time.monotonic_ns()}"
    return open_consumer(
        "batches", group=group, start_from="first", auto_commit=False, client=client
    )


async def consume_one_by_one(name_server: str, *, count: int) -> float:
    """The clock starts with the first message, as on the Java side."""
    async with (
        open_client(name_servers=[name_server]) as client,
        _consumer(client) as consumer,
    ):
        started = 0.0
        received = size = 0
        async for message in consumer:
            if not received:
                started = time.perf_counter()
            size += len(message.body)
            received += 1
            if received == count:
                break
        assert size
        return time.perf_counter() - started


async def consume_batches(name_server: str, *, count: int) -> float:
    """As many at once as are at hand."""
    async with (
        open_client(name_servers=[name_server]) as client,
        _consumer(client) as consumer,
    ):
        started = 0.0
        received = size = 0
        async for batch in consumer.batches():
            if not received:
                started = time.perf_counter()
            for message in batch:
                size += len(message.body)
            received += len(batch)
            if received >= count:
                break
        assert size
        return time.perf_counter() - started


async def consume_columns(name_server: str, *, count: int) -> float:
    """All partitions one after the other, from the first pull on."""
    return await trio.to_thread.run_sync(_read_columns, name_server, count)


def _read_columns(name_server: str, count: int) -> float:
    from rocketrio.spark.source import RocketMQDataSource

    ends = -(-count // QUEUES)
    offsets = {"batches": {"broker-a": {str(queue): ends for queue in range(QUEUES)}}}
    source = RocketMQDataSource(
        {
            "nameServer": name_server,
            "subscribe": "batches",
            "columns": "keys,tags,body",
            "endingOffsets": json.dumps(offsets),
        }
    )
    reader: Any = source.reader(source.schema())
    parts = reader.partitions()
    started = time.perf_counter()
    rows = sum(batch.num_rows for part in parts for batch in reader.read(part))
    taken = time.perf_counter() - started
    assert rows == QUEUES * ends, f"{rows} rows instead of {QUEUES * ends}"
    return taken
