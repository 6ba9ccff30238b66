"""The client against a broker in a process of its own: messages a second, and CPU µs a message on the client's side.

    send      awaited sends with 1, 16 and 64 in flight; batches of 100; the pipeline
    consume   one by one, by handlers, in batches, as Arrow tables; 128 B and 1 KiB, of what was stored before

`--name-server HOST:PORT` measures another cluster, Apache's for example; `--count N` messages a figure.
Held against performance.md: 64 in flight 15 k/s, batches of 100 120 k/s, pipelined 100 k/s, consumed one by one
150 k/s, in batches 500 k/s, as columns 750 k/s.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trio

from rocketrio import (
    ClientInstance,
    Message,
    MessageExt,
    Producer,
    open_client,
    open_consumer,
    open_producer,
)
from rocketrio.admin import open_admin
from rocketrio.frames import COLUMNS, table_of

COUNT = 200_000
SINGLES_DIVISOR = 10
"""Awaited sends cost more: a tenth of the messages is enough."""
BATCH = 100
LAST_ROWS = 10_000
BODIES = ("body", "queue_id", "queue_offset")


@contextmanager
def own_cluster() -> Iterator[str]:
    """A name server and a master in one process; the name server's address."""
    with tempfile.TemporaryDirectory() as data:
        command = [
            str(Path(sys.executable).parent / "rocketrio-broker"), "cluster",
            "--listen", "127.0.0.1:0", "--data", data, "--slaves", "0", "--log-level", "error",
        ]  # fmt: skip
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            for line in process.stdout:
                fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
                if fields.get("role") == "namesrv":
                    address = fields["address"]
                if fields.get("role") == "master":
                    break
            yield address
        finally:
            process.terminate()
            process.wait()


class Figure:
    """Measures a block, and prints its line."""

    def __init__(self, name: str, count: int, **details: object) -> None:
        self.name, self.count, self.details = name, count, details

    def __enter__(self) -> None:
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            return
        wall, cpu = time.perf_counter() - self.wall, time.process_time() - self.cpu
        line = {
            "name": f"client.{self.name}",
            "value": round(self.count / wall),
            "unit": "messages/s",
            "cpu_us": round(cpu / self.count * 1e6, 2),
            "count": self.count,
            **self.details,
        }
        print(json.dumps(line), flush=True)


async def send_awaited(producer: Producer, in_flight: int, count: int) -> None:
    body = bytes(128)
    left = iter(range(count))

    async def work() -> None:
        for _ in left:
            await producer.send(Message("bench-singles", body))

    with Figure("send", count, in_flight=in_flight):
        async with trio.open_nursery() as nursery:
            for _ in range(in_flight):
                nursery.start_soon(work)


async def send_batches(producer: Producer, count: int) -> None:
    body = bytes(128)
    with Figure("send_batch", count, batch=BATCH):
        for _ in range(count // BATCH):
            await producer.send_batch([Message("bench-batches", body) for _ in range(BATCH)])


async def send_pipelined(producer: Producer, topic: str, size: int, count: int) -> None:
    body = bytes(size)
    with Figure("pipeline", count, size=size):
        async with producer.pipeline() as pipeline:
            for _ in range(count):
                await pipeline.send(Message(topic, body))


async def consume(client: ClientInstance, topic: str, size: int, count: int) -> None:
    async with open_consumer(topic, group="one", start_from="first", client=client) as consumer:
        received = 0
        with Figure("consume", count, size=size):
            async for message in consumer:
                assert len(message.body) == size
                received += 1
                if received == count:
                    break
    async with open_consumer(topic, group="many", start_from="first", client=client) as consumer:
        received = 0
        with Figure("consume_batches", count, size=size):
            async for batch in consumer.batches():
                received += len(batch)
                if received >= count:
                    break
    await run_handlers(client, topic, size, count)
    for columns in (COLUMNS, BODIES):
        async with open_consumer(
            topic, group=f"columns-{len(columns)}", start_from="first", client=client
        ) as consumer:
            received = 0
            with Figure("read_arrow", count, size=size, columns=len(columns)):
                while received < count:
                    # At the very end nothing comes that would be worth waiting for.
                    max_wait = 1.0 if count - received > LAST_ROWS else 0.0
                    table = await consumer.read_arrow(columns=columns, max_wait=max_wait)
                    received += table.num_rows


async def run_handlers(client: ClientInstance, topic: str, size: int, count: int) -> None:
    """20 handlers that do nothing: what `run` costs."""
    received = 0

    async def handle(message: MessageExt) -> None:
        nonlocal received
        assert len(message.body) == size
        received += 1
        if received == count:
            scope.cancel()

    async with open_consumer(topic, group="run", start_from="first", client=client) as consumer:
        with Figure("run", count, size=size), trio.CancelScope() as scope:
            await consumer.run(handle)


async def measure(name_server: str, count: int) -> None:
    table_of([], COLUMNS)  # Imports Arrow, which takes half a second.
    async with open_client(name_servers=[name_server]) as client:
        async with open_admin(client=client) as admin:
            for topic in ("bench-singles", "bench-batches", "bench-128", "bench-1024"):
                await admin.create_topic(topic)
        async with open_producer(client=client) as producer:
            for in_flight in (1, 16, 64):
                await send_awaited(producer, in_flight, count // SINGLES_DIVISOR)
            await send_batches(producer, count)
            await send_pipelined(producer, "bench-128", 128, count)
            await send_pipelined(producer, "bench-1024", 1024, count // 2)
        await consume(client, "bench-128", 128, count)
        await consume(client, "bench-1024", 1024, count // 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name-server", help="measure this cluster instead of one of our own")
    parser.add_argument("--count", type=int, default=COUNT)
    chosen = parser.parse_args()
    if chosen.name_server:
        trio.run(measure, chosen.name_server, chosen.count)
        return
    with own_cluster() as name_server:
        trio.run(measure, name_server, chosen.count)


if __name__ == "__main__":
    main()
