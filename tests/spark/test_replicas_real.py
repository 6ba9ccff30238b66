"""Spark jobs over a master and a slave that are processes: the master dies, or is left alone while it takes writes."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest
import trio
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import count, count_distinct, length
from pyspark.sql.functions import sum as sum_of
from tests.spark.frames import load_frame
from tests.support.commit_logs import wait_caught_up
from tests.support.ours import OurPair, our_pair_fixture
from tests.support.running_cluster import load_topic

from rocketrio import Message, open_admin, open_producer
from rocketrio.admin.topics import Served
from rocketrio.spark import register

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.spark]

QUEUES, COUNT, BODY = 2, 10_000, 1024
SETTINGS = (
    "slave_read_enable=true",
    "store.access_message_in_memory_max_bytes=1000000",
    "store.mapped_file_size_commit_log=16777216",
)
"""A master with memory for a twentieth of the topic."""
A_SAMPLE = 12.0
"""Seconds until brokers tell what they gave: they count in samples of ten."""


def load(pair: OurPair, topic: str) -> None:
    """Make a topic that both have all of."""
    load_topic(pair.master.address, topic, QUEUES, COUNT, body_size=BODY)
    wait_caught_up(pair.master.address, pair.slave.address)


pair = our_pair_fixture(settings=SETTINGS)


def _frame(spark: SparkSession, pair: OurPair, topic: str, **given: str) -> DataFrame:
    register(spark)
    return load_frame(spark, pair.name_server.address, topic, **given)


def _is_exact(frame: DataFrame) -> None:
    """Every message is there, once, and whole."""
    found = frame.groupBy("queue_id").agg(
        count("*"), count_distinct("queue_offset"), sum_of("queue_offset"), sum_of(length("body"))
    )
    expected = (COUNT, COUNT, sum(range(COUNT)), COUNT * BODY)
    assert {row[0]: tuple(row)[1:] for row in found.collect()} == dict.fromkeys(
        range(QUEUES), expected
    )


def _gave(pair: OurPair, topic: str, group: str, total: int) -> dict[int, Served]:
    """What each broker gave, by broker id, once they have counted all of it."""

    async def look() -> list[Served]:
        async with open_admin(name_servers=pair.name_server.address) as admin:
            with trio.fail_after(10 * A_SAMPLE):
                while True:
                    found = await admin.served(topic, group)
                    if sum(one.messages or 0 for one in found) >= total:
                        return found
                    await trio.sleep(0.5)

    return {one.broker_id: one for one in trio.run(look)}


def test_a_backfill_leaves_the_master_to_its_writers(spark: SparkSession, pair: OurPair) -> None:
    load(pair, "history")
    ends = ",".join(f'"{queue_id}":{COUNT - 2000}' for queue_id in range(QUEUES))
    frame = _frame(
        spark, pair, "history",
        consumerGroup="backfill", columns="queue_id,queue_offset,body", maxRecordsPerPartition="3000",
        endingOffsets=f'{{"history":{{"broker-a":{{{ends}}}}}}}',
    )  # fmt: skip
    written, is_over = 0, threading.Event()

    async def write() -> None:
        nonlocal written
        async with open_producer(name_servers=pair.name_server.address) as producer:
            while not is_over.is_set():
                await producer.send(Message("history", b"x" * BODY))
                written += 1
                await trio.sleep(0.01)  # Two cores: the job needs them too.

    writer = threading.Thread(target=trio.run, args=(write,))
    writer.start()
    try:
        rows = frame.agg(count("*"), sum_of("queue_offset")).first()
    finally:
        is_over.set()
        writer.join()
    expected = COUNT - 2000
    assert rows is not None
    assert tuple(rows) == (QUEUES * expected, QUEUES * sum(range(expected)))
    assert written > 10
    gave = _gave(pair, "history", "backfill", QUEUES * expected)
    # Of the master only this was asked: one message by queue and step of the search for what is cold.
    assert gave[0].messages is not None
    assert gave[0].messages <= QUEUES * 4
    assert gave[1].messages == QUEUES * expected


def test_a_master_killed_during_a_read_is_replaced_and_no_row_differs(
    spark: SparkSession, pair: OurPair, tmp_path: Path
) -> None:
    load(pair, "orders")
    first, gone = tmp_path / "first", tmp_path / "gone"

    def stand_still(batches: Any) -> Any:
        """Holds the first batch until the master is dead: by then the task has read a part of its range."""
        for batch in batches:
            first.touch()
            while not gone.exists():
                time.sleep(0.01)
            yield batch

    frame = _frame(
        spark, pair, "orders",
        columns="queue_id,queue_offset,body", readFrom="auto", batchRows="500", pullBatchSize="50",
        readRetries="0",  # in the same round
    )  # fmt: skip

    def kill() -> None:
        while not first.exists():
            time.sleep(0.01)
        pair.master.kill()
        gone.touch()

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        _is_exact(frame.mapInArrow(stand_still, frame.schema))
    finally:
        gone.touch()
        killer.join(30)
        pair.master.restart()
