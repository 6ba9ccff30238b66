"""The jobs of `RocketMQPeer.java`, done by our client in this process: each returns the seconds it took.

Columns are keys, tags and bodies: as Arrow tables that a consumer gives, and as what the Spark source reads in a task,
without Spark.
"""

import json
import time
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from typing import Any

import trio

from rocketrio import (
    ClientInstance,
    Message,
    MessageExt,
    SendResult,
    SendStatus,
    open_client,
    open_consumer,
    open_producer,
)
from rocketrio.consuming.consumer import Consumer

QUEUES = 4
COLUMNS = ("keys", "tags", "body")
LAST_ROWS = 10_000
"""A table waits to become larger, but not for these: at the end of a topic nothing more comes."""


SAFE = SendStatus.SEND_OK


def check_safe(result: SendResult) -> None:
    """Raise RuntimeError for what only a master has, where more was asked for: it would be too fast."""
    if result.status is not SAFE:
        raise RuntimeError(f"a send was answered {result.status.name}")


async def send_singles(
    name_server: str, *, topic: str, count: int, in_flight: int, size: int
) -> float:
    """Each send awaited by one of `in_flight` tasks."""
    body = bytes(size)
    left = iter(range(count))
    async with (
        open_client(name_servers=[name_server]) as client,
        open_producer(client=client) as producer,
    ):

        async def work() -> None:
            for _ in left:
                check_safe(await producer.send(Message(topic, body)))

        started = time.perf_counter()
        async with trio.open_nursery() as nursery:
            for _ in range(in_flight):
                nursery.start_soon(work)
        return time.perf_counter() - started


async def send_pipelined(name_server: str, *, topic: str, count: int, size: int) -> float:
    """Batched by the client as it goes."""
    body = bytes(size)
    async with (
        open_client(name_servers=[name_server]) as client,
        open_producer(client=client) as producer,
    ):
        started = time.perf_counter()
        async with producer.pipeline() as pipeline:
            for _ in range(count):
                await pipeline.send(Message(topic, body))
        taken = time.perf_counter() - started
        stored = pipeline.statistics().stored
        if stored != {SAFE: count}:
            raise RuntimeError(f"{count} messages were answered {stored}")
        return taken


async def send_batches(name_server: str, *, topic: str, count: int, batch: int, size: int) -> float:
    """One batch after the other."""
    body = bytes(size)
    async with (
        open_client(name_servers=[name_server]) as client,
        open_producer(client=client) as producer,
    ):
        started = time.perf_counter()
        for _ in range(count // batch):
            messages = [Message(topic, body) for _ in range(batch)]
            check_safe(await producer.send_batch(messages))
        return time.perf_counter() - started


def _consumer(
    client: ClientInstance, topic: str, *, auto_commit: bool = False
) -> AbstractAsyncContextManager[Consumer]:
    """Of a group that never read before, from the beginning."""
    group = f"bench-{time.monotonic_ns()}"
    return open_consumer(
        topic, group=group, start_from="earliest", auto_commit=auto_commit, client=client
    )


async def consume_one_by_one(name_server: str, *, topic: str, count: int) -> float:
    """The clock starts with the first message, as on the Java side."""
    async with (
        open_client(name_servers=[name_server]) as client,
        _consumer(client, topic) as consumer,
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


async def consume_batches(name_server: str, *, topic: str, count: int) -> float:
    """As many at once as are at hand."""
    async with (
        open_client(name_servers=[name_server]) as client,
        _consumer(client, topic) as consumer,
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


async def consume_by_handlers(name_server: str, *, topic: str, count: int) -> float:
    """As many handlers at a time as the library thinks right, with commits: what the Java side's listener is."""
    started = 0.0
    received = size = 0

    async def handle(message: MessageExt) -> None:
        nonlocal started, received, size
        started = started or time.perf_counter()
        size += len(message.body)
        received += 1
        if received == count:
            scope.cancel()

    async with (
        open_client(name_servers=[name_server]) as client,
        _consumer(client, topic, auto_commit=True) as consumer,
    ):
        with trio.CancelScope() as scope:
            await consumer.run(handle)
        assert size
        return time.perf_counter() - started


async def consume_columns(name_server: str, *, topic: str, count: int) -> float:
    """The clock starts with the first pull, as there are few tables."""
    import_module("pyarrow.compute")  # So that this is no part of the first table.
    async with (
        open_client(name_servers=[name_server]) as client,
        _consumer(client, topic) as consumer,
    ):
        started = time.perf_counter()
        received = size = 0
        while received < count:
            max_wait = 1.0 if count - received > LAST_ROWS else 0.0
            table = await consumer.read_arrow(columns=COLUMNS, max_wait=max_wait)
            received += table.num_rows
            size += table.nbytes
        assert size
        return time.perf_counter() - started


async def consume_columns_of_spark(name_server: str, *, topic: str, count: int) -> float:
    """All partitions one after the other, from the first pull on."""
    return await trio.to_thread.run_sync(_read_columns, name_server, topic, count)


def _read_columns(name_server: str, topic: str, count: int) -> float:
    from rocketrio.spark.source import RocketMQDataSource

    ends = -(-count // QUEUES)
    offsets = {topic: {"broker-a": {str(queue): ends for queue in range(QUEUES)}}}
    source = RocketMQDataSource(
        {
            "nameServer": name_server,
            "subscribe": topic,
            "columns": ",".join(COLUMNS),
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
