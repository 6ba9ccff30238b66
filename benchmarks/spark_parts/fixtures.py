"""What the Spark benchmarks measure on: topics full of messages, a producer that writes meanwhile, a session."""

import json
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import trio

from rocketrio import Message, open_producer
from rocketrio_protocol.commands.admin import CreateTopicRequestHeader
from rocketrio_protocol.commands.send import SendBatchMessageRequestHeader
from rocketrio_protocol.record.batch import encode_batch
from rocketrio_protocol.remoting.pool import ChannelPool, check, open_channel_pool
from rocketrio_protocol.remoting.tcp import dial_tcp

QUEUES = 2
BATCH = 250


def report(name: str, value: float, unit: str, **params: object) -> None:
    """One figure."""
    rounded = round(value, 2) if value < 100 else round(value)
    print(json.dumps({"name": name, "value": rounded, "unit": unit, "params": params}), flush=True)


async def fill(addr: str, topic: str, rows: int, body_size: int) -> None:
    """Put messages with keys, tags and a unique key into a new topic."""
    async with open_channel_pool(dial_tcp) as pool:
        header = CreateTopicRequestHeader(
            topic, "TBW102", QUEUES, QUEUES, perm=6, topic_filter_type="SINGLE_TAG", order=False
        )
        check(await pool.call(addr, header, timeout=30), "no topic")
        async with trio.open_nursery() as nursery:
            for queue_id in range(QUEUES):
                nursery.start_soon(
                    _fill_queue, pool, addr, topic, queue_id, rows // QUEUES, body_size
                )


async def _fill_queue(
    pool: ChannelPool, addr: str, topic: str, queue_id: int, rows: int, body_size: int
) -> None:
    header = SendBatchMessageRequestHeader(
        "bench", topic, "TBW102", 4, queue_id, 0, 1_700_000_000_000, 0, properties="", batch=True
    )
    entries = []
    for number in range(BATCH):
        message = Message(topic, b"x" * body_size, keys=f"order-{number:08d}", tags="red")
        properties = message.encoded_properties(unique_key=f"7F00000100002A139A5505D0{number:08X}")
        entries.append((0, message.body, properties.encode()))
    body = encode_batch(entries)
    for _ in range(rows // BATCH):
        check(await pool.call(addr, header, body, timeout=30), "not stored")


class Writer:
    """A producer that sends to the topic all the time."""

    def __init__(self, name_server: str, topic: str, body_size: int) -> None:
        self.sent = 0
        self._over = threading.Event()
        self._thread = threading.Thread(
            target=trio.run, args=(self._run, name_server, topic, body_size)
        )

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    async def _run(self, name_server: str, topic: str, body_size: int) -> None:
        message = Message(topic, b"x" * body_size)
        async with open_producer(name_servers=name_server) as producer:
            while not self._over.is_set():
                await producer.send(message)
                self.sent += 1
                await trio.sleep(0.001)  # Two cores: the read needs them too.


@contextmanager
def session(settings: Mapping[str, str] | None = None) -> Iterator[Any]:
    """A Spark session of two slots, with these settings too, whose workers run this interpreter."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.log.level", "ERROR")
        .config(map=dict(settings or {}))
        .getOrCreate()
    )
    try:
        yield spark
    finally:
        spark.stop()
