"""Spark on a master and a slave of Apache: the tests of batches, streams and writes once more, shortened.

The session is that of tests/spark: one of a process. The reader without Spark is in test_spark_reader.py.
"""

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
import trio
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, concat, lit

from rocketrio import open_admin
from rocketrio.admin.topics import Served
from rocketrio.cluster.api import ClientAPI
from rocketrio.spark import from_rocketmq, lag_by_queue, stream_from_rocketmq
from rocketrio_protocol.errors import Error
from rocketrio_protocol.message import MessageQueue
from tests.interop.apache import METADATA_TIMEOUT, ApacheBroker, apache_cluster
from tests.interop.jars import VERSIONS
from tests.spark.conftest import spark
from tests.support import wire
from tests.support.running_cluster import channel_pool, create_topic, full_topic, numbered
from tests.support.waiting import wait_until

__all__ = ["spark"]  # a fixture: pytest finds it by its name here
pytestmark = pytest.mark.interop

QUEUES, COUNT = 2, 400
TOPIC_NUMBERS = itertools.count()
LIMIT = 200
"""Seconds for a query, and for Apache's slave: it copies the list of topics once a minute."""


@attrs.frozen
class ApachePair:
    """Apache's name server, master and slave."""

    name_server: str
    master: ApacheBroker
    slave: ApacheBroker


@pytest.fixture(scope="module", params=VERSIONS)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApachePair]:
    folder = tmp_path_factory.mktemp("apache")
    with apache_cluster(request.param, folder, slave=True) as cluster:
        assert cluster.slave is not None
        yield ApachePair(cluster.name_server.address, cluster.master, cluster.slave)


@pytest.fixture(scope="module")
def topic(pair: ApachePair) -> str:
    """A topic with messages, all of which both brokers serve."""
    name = f"orders-{next(TOPIC_NUMBERS)}"

    async def load() -> None:
        async with channel_pool() as pool:
            api = ClientAPI(pool)
            await full_topic(pool, pair.master.address, name, QUEUES, COUNT)
            with trio.fail_after(LIMIT):
                for addr in (pair.master.address, pair.slave.address):
                    for queue_id in range(QUEUES):
                        queue = MessageQueue(name, "broker-a", queue_id)
                        while await _end(api, addr, queue) < COUNT:  # noqa: ASYNC110
                            await trio.sleep(0.2)

    trio.run(load)
    # 5.3.3's slave tells the ends of queues whose topic it has not copied yet, and refuses to be read.
    wait_until(
        lambda: wire.has_topic(pair.slave.address, name),
        f"the slave knows {name}",
        METADATA_TIMEOUT,
    )
    return name


async def _end(api: ClientAPI, addr: str, queue: MessageQueue) -> int:
    try:
        return await api.max_offset(addr, queue)
    except Error:  # the slave does not know the topic yet
        return -1


def _bodies(frame: DataFrame) -> Counter[bytes]:
    return Counter(bytes(row.body) for row in frame.select("body").collect())


def _loaded() -> Counter[bytes]:
    return Counter(message.body for q in range(QUEUES) for message in numbered(q, COUNT))


def test_a_batch_is_the_whole_topic(spark: SparkSession, pair: ApachePair, topic: str) -> None:
    frame = from_rocketmq(spark, topic, name_servers=pair.name_server, min_partitions=3)
    assert _bodies(frame) == _loaded()
    row = frame.where("queue_id = 1 AND queue_offset = 7").first()
    assert row is not None
    assert (row.keys, row.tags, row.properties["number"]) == ("key-1-7", "odd", "7")


def test_bounds_columns_and_tags(spark: SparkSession, pair: ApachePair, topic: str) -> None:
    frame = from_rocketmq(
        spark,
        topic,
        name_servers=pair.name_server,
        starting_offsets={topic: {"broker-a": {0: 10, 1: -2}}},
        ending_offsets={topic: {"broker-a": {0: 30, 1: 4}}},
        sub_expression="odd",
        columns=["queue_id", "queue_offset"],
    )
    found = sorted((row.queue_id, row.queue_offset) for row in frame.collect())
    assert found == [(0, n) for n in range(11, 30, 2)] + [(1, 1), (1, 3)]


def test_a_filter_of_sql92_runs_on_apaches_broker(
    spark: SparkSession, pair: ApachePair, topic: str
) -> None:
    frame = from_rocketmq(
        spark,
        topic,
        name_servers=pair.name_server,
        sub_expression="number BETWEEN 5 AND 7",
        sub_expression_type="SQL92",
        columns=["queue_id", "queue_offset"],
    )
    found = sorted((row.queue_id, row.queue_offset) for row in frame.collect())
    assert found == [(q, n) for q in range(QUEUES) for n in (5, 6, 7)]


def test_a_backfill_is_served_by_apaches_slave(
    spark: SparkSession, pair: ApachePair, topic: str
) -> None:
    frame = from_rocketmq(
        spark, topic, name_servers=pair.name_server, read_from="slave", consumer_group="backfill"
    )
    assert _bodies(frame) == _loaded()

    async def shares() -> list[Served]:
        async with open_admin(name_servers=[pair.name_server]) as admin:
            return await admin.served(topic, "backfill")

    # Apache tells what came between two of its samples, every ten seconds: the first read may be in the first one.
    deadline = time.monotonic() + LIMIT
    while not (shared := trio.run(shares))[1].messages:
        assert time.monotonic() < deadline, shared
        time.sleep(3)
        assert frame.count() == QUEUES * COUNT
    master, slave = shared
    # A sample may end in the middle of a read.
    assert not master.messages
    assert slave.messages


def test_a_stream_is_read_once_over_two_runs(
    spark: SparkSession, pair: ApachePair, topic: str, tmp_path: Path
) -> None:
    stream = stream_from_rocketmq(
        spark,
        topic,
        name_servers=pair.name_server,
        starting_offsets={topic: {"broker-a": {0: 100, 1: -2}}},
        max_offsets_per_trigger=300,
        consumer_group="board",
        columns=["queue_id", "queue_offset", "body"],
    )
    for _ in range(2):
        query = (
            stream.writeStream.format("parquet")
            .option("path", str(tmp_path / "rows"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(LIMIT), query.status
    expected = Counter(m.body for q in range(QUEUES) for m in numbered(q, COUNT)[100 * (q == 0) :])
    assert _bodies(spark.read.parquet(str(tmp_path / "rows"))) == expected
    assert set(lag_by_queue(query.lastProgress).values()) <= {0}

    async def committed() -> list[object]:
        async with channel_pool() as pool:
            api = ClientAPI(pool)
            return [
                await api.query_consumer_offset(
                    pair.master.address, "board", MessageQueue(topic, "broker-a", q)
                )
                for q in range(QUEUES)
            ]

    assert trio.run(committed) == [COUNT] * QUEUES


def test_rows_are_written_in_batches_and_by_a_stream(
    spark: SparkSession, pair: ApachePair, tmp_path: Path
) -> None:
    name = f"written-{next(TOPIC_NUMBERS)}"

    async def make() -> None:
        async with channel_pool() as pool:
            await create_topic(pool, pair.master.address, name, QUEUES)

    trio.run(make)
    options = {"nameServer": pair.name_server, "topic": name}
    rows = spark.range(500).select(concat(lit("b"), col("id").cast("string")).alias("body"))
    rows.write.format("rocketmq").options(**options).mode("append").save()
    rows.select(concat(lit("s"), "body").alias("body")).write.parquet(str(tmp_path / "source"))
    query = (
        spark.readStream.schema("body string")
        .parquet(str(tmp_path / "source"))
        .writeStream.format("rocketmq")
        .options(**options)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(LIMIT), query.status
    frame = from_rocketmq(spark, name, name_servers=pair.name_server, columns=["body"])
    expected = Counter(f"{letter}{n}".encode() for letter in ("b", "sb") for n in range(500))
    assert _bodies(frame) == expected
