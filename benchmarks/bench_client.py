"""The client against a broker in a process of its own: messages a second, and CPU µs a message on the client's side.

    send      awaited sends with 1, 16 and 64 in flight; batches of 100; the pipeline
    consume   one by one, by handlers, in batches, as Arrow tables, of what the pipeline has stored

All of them with bodies of 128 B and of 1 KiB. `hold` is the least that there should be,
`aim` what we work towards, messages a second.
`--name-server HOST:PORT` measures another cluster, Apache's for example; `--count N` messages a figure.
`bench_peers.py` does the same work beside the Java client.
"""

import argparse
import json
import os
import time
from importlib import import_module

import trio
from processes import cluster

from rocketrio import (
    ClientInstance,
    Message,
    MessageExt,
    Producer,
    open_client,
    open_consumer,
    open_producer,
)
from rocketrio.admin.admin import open_admin
from rocketrio.consuming.frames import COLUMNS

COUNT = 200_000
SINGLES_DIVISOR = 10
"""Awaited sends cost more: a tenth of the messages is enough."""
BATCH = 100
LAST_ROWS = 10_000
BODIES = ("body", "queue_id", "queue_offset")
SIZES = {128: 1, 1024: 2}
"""Of the bodies, and what part of the messages there are of them."""
GOALS = {
    "send_64": (15_000, 30_000),
    "send_batch": (120_000, 300_000),
    "pipeline": (100_000, 300_000),
    "consume": (150_000, 400_000),
    "consume_batches": (500_000, 1_000_000),
    "read_arrow": (750_000, 1_500_000),
}
"""What to hold and what to aim at, messages a second, with the smallest of the bodies."""


class Figure:
    """Measures a block, and prints its line."""

    def __init__(self, name: str, size: int, count: int, **details: object) -> None:
        self.name, self.count = name, count
        self.details: dict[str, object] = {"size": size, **details}
        goal = GOALS.get(name)
        if goal is not None and size == min(SIZES):
            self.details |= {"hold": goal[0], "aim": goal[1]}

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
            "load_average": round(os.getloadavg()[0], 1),
        }
        print(json.dumps(line), flush=True)


async def send_awaited(
    producer: Producer, topic: str, size: int, in_flight: int, count: int
) -> None:
    body = bytes(size)
    left = iter(range(count))

    async def work() -> None:
        for _ in left:
            await producer.send(Message(topic, body))

    with Figure(f"send_{in_flight}", size, count):
        async with trio.open_nursery() as nursery:
            for _ in range(in_flight):
                nursery.start_soon(work)


async def send_batches(producer: Producer, topic: str, size: int, count: int) -> None:
    body = bytes(size)
    with Figure("send_batch", size, count, batch=BATCH):
        for _ in range(count // BATCH):
            await producer.send_batch([Message(topic, body) for _ in range(BATCH)])


async def send_pipelined(producer: Producer, topic: str, size: int, count: int) -> None:
    body = bytes(size)
    with Figure("pipeline", size, count):
        async with producer.pipeline() as pipeline:
            for _ in range(count):
                await pipeline.send(Message(topic, body))


async def consume(client: ClientInstance, topic: str, size: int, count: int) -> None:
    async with open_consumer(topic, group="one", start_from="earliest", client=client) as consumer:
        received = 0
        with Figure("consume", size, count):
            async for message in consumer:
                assert len(message.body) == size
                received += 1
                if received == count:
                    break
    async with open_consumer(topic, group="many", start_from="earliest", client=client) as consumer:
        received = 0
        with Figure("consume_batches", size, count):
            async for batch in consumer.batches():
                received += len(batch)
                if received >= count:
                    break
    await run_handlers(client, topic, size, count)
    for columns in (COLUMNS, BODIES):
        async with open_consumer(
            topic, group=f"columns-{len(columns)}", start_from="earliest", client=client
        ) as consumer:
            received = 0
            with Figure("read_arrow", size, count, columns=len(columns)):
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

    async with open_consumer(topic, group="run", start_from="earliest", client=client) as consumer:
        with Figure("run", size, count), trio.CancelScope() as scope:
            await consumer.run(handle)


async def measure(name_server: str, count: int) -> None:
    # Imported at the first table, which takes half a second.
    for module in ("pyarrow.compute", "rocketrio_protocol.columns.decode"):
        import_module(module)
    async with open_client(name_servers=[name_server]) as client:
        for size, part in SIZES.items():
            others, pipelined = f"bench-{size}-others", f"bench-{size}"
            async with open_admin(client=client) as admin:
                for topic in (others, pipelined):
                    await admin.create_topic(topic)
            of_size = count // part
            async with open_producer(client=client) as producer:
                for in_flight in (1, 16, 64):
                    singles = of_size // SINGLES_DIVISOR
                    await send_awaited(producer, others, size, in_flight, singles)
                await send_batches(producer, others, size, of_size)
                await send_pipelined(producer, pipelined, size, of_size)
            await consume(client, pipelined, size, of_size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name-server", help="measure this cluster instead of one of our own")
    parser.add_argument("--count", type=int, default=COUNT)
    chosen = parser.parse_args()
    if chosen.name_server:
        trio.run(measure, chosen.name_server, chosen.count)
        return
    with cluster() as own:
        trio.run(measure, own.name_server, chosen.count)


if __name__ == "__main__":
    main()
