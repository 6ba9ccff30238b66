"""`spark.readStream.format("rocketmq")` in a real session: triggers, limits, crashes, replays, losses, lag, outages."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import spark_partition_id
from pyspark.sql.streaming.query import StreamingQuery
from tests.spark.load import (
    Running,
    channel_pool,
    create_topic,
    load_queue,
    numbered,
    running_cluster,
)

from rocketrio import open_admin
from rocketrio.spark import lag_by_queue
from rocketrio.spark.streaming.reader import HAS_LIMITS

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PATIENCE = 120.0
"""Seconds that anything may take where many share a machine; on a quiet one all of it is there within one."""
NOW = {"availableNow": True}
needs_limits = pytest.mark.skipif(not HAS_LIMITS, reason="PySpark 4.2 has limits and AvailableNow")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@attrs.define
class Topic:
    """A topic of its own for each test, and the checkpoint of its query."""

    cluster: Running
    name: str
    home: Path

    def write(
        self, counts: dict[int, int], *, queues: int | None = None, body_size: int = 0
    ) -> None:
        """So many messages into each queue; with `queues` the topic is made first, or enlarged."""

        async def write() -> None:
            async with channel_pool() as pool:
                if queues is not None:
                    await create_topic(pool, self.cluster.master, self.name, queues)
                for queue_id, count in counts.items():
                    messages = numbered(queue_id, count, body_size=body_size)
                    await load_queue(pool, self.cluster.master, self.name, queue_id, messages)

        trio.run(write)

    def delete(self) -> None:
        async def delete() -> None:
            async with open_admin(name_servers=self.cluster.name_server) as admin:
                await admin.delete_topic(self.name)

        trio.run(delete)

    @property
    def checkpoint(self) -> Path:
        return self.home / "checkpoint"


@pytest.fixture
def topic(cluster: Running, tmp_path: Path, request: pytest.FixtureRequest) -> Topic:
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    return Topic(cluster, name[:100], tmp_path)


@attrs.define
class Reading:
    """A query that notes the rows of each batch."""

    query: StreamingQuery
    batches: dict[int, list[tuple[int, int]]]
    """Queue and offset of each row, by the number of the batch."""
    tasks: dict[int, int]

    @property
    def rows(self) -> list[tuple[int, int]]:
        return sorted(row for rows in self.batches.values() for row in rows)

    def wait(self, claim: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not claim():
            assert self.query.exception() is None, self.query.exception()
            assert time.monotonic() < deadline, (self.query.status, self.batches)
            time.sleep(0.05)

    def ended(self) -> "Reading":
        assert self.query.awaitTermination(int(PATIENCE)), self.query.status
        return self


def _start(
    spark: SparkSession, topic: Topic, trigger: dict[str, Any] | None = None, **given: str
) -> Reading:
    options = {"nameServer": topic.cluster.name_server, "columns": "queueId,queueOffset", **given}
    if "subscribePattern" not in options:
        options.setdefault("subscribe", topic.name)
    frame = spark.readStream.format("rocketmq").options(**options).load()
    batches: dict[int, list[tuple[int, int]]] = {}
    tasks: dict[int, int] = {}

    def note(batch: DataFrame, number: int) -> None:
        rows = batch.select("queueId", "queueOffset", spark_partition_id().alias("task")).collect()
        batches[number] = [(row.queueId, row.queueOffset) for row in rows]
        tasks[number] = len({row.task for row in rows})

    writer = frame.writeStream.foreachBatch(note).option(
        "checkpointLocation", str(topic.checkpoint)
    )
    if trigger is not None:
        writer = writer.trigger(**trigger)
    for _ in range(5):
        query = writer.start()
        # Spark gives a Python process ten seconds to start, which a busy machine may not.
        while query.isActive and query.lastProgress is None and not batches:
            time.sleep(0.02)
        if "failed to connect back" not in str(query.exception()):
            break
    return Reading(query, batches, tasks)


@pytest.fixture
def start(spark: SparkSession, topic: Topic) -> Iterator[Callable[..., Reading]]:
    started: list[Reading] = []

    def begin(trigger: dict[str, Any] | None = None, **given: str) -> Reading:
        started.append(_start(spark, topic, trigger, **given))
        return started[-1]

    yield begin
    for reading in started:
        reading.query.stop()


Start = Callable[..., Reading]


def _span(queue_id: int, first: int, end: int) -> list[tuple[int, int]]:
    return [(queue_id, offset) for offset in range(first, end)]


# ------------------------------------------------------------------------------------------------ growth


def test_a_stream_follows_its_topic_and_so_does_the_lag_at_the_broker(
    spark: SparkSession, topic: Topic, start: Start
) -> None:
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "200")
    topic.write({0: 30, 1: 10}, queues=2)
    reading = start(startingOffsets="earliest", consumerGroup="follows", commitIntervalMs="600000")
    reading.wait(lambda: len(reading.rows) == 40)
    topic.write({1: 5})
    reading.wait(lambda: len(reading.rows) == 45)
    assert reading.rows == _span(0, 0, 30) + _span(1, 0, 15)
    told = len(reading.query.recentProgress)
    reading.wait(lambda: len(reading.query.recentProgress) > told)
    reading.wait(lambda: _broker_lags(topic, "follows") == [0, 0])
    lag = lag_by_queue(reading.query.lastProgress)
    assert sorted(lag.values()) == _broker_lags(topic, "follows")
    batches = max(reading.batches)
    time.sleep(1)
    assert max(reading.batches) == batches, "nothing new is no batch"
    assert not [rows for number, rows in reading.batches.items() if number and not rows]


def _broker_lags(topic: Topic, group: str) -> list[int]:
    command = [
        str(Path(sys.executable).with_name("rocketrio")), "offsets", topic.name, "--group", group,
        "--namesrv", topic.cluster.name_server, "--json",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return sorted(-1 if row["lag"] is None else row["lag"] for row in json.loads(done.stdout))


@needs_limits
def test_small_queues_share_a_task(topic: Topic, start: Start) -> None:
    topic.write(dict.fromkeys(range(16), 20), queues=16)
    reading = start(NOW, startingOffsets="earliest").ended()
    assert len(reading.rows) == 320
    assert reading.tasks == {0: 0, 1: 1}


def test_a_queue_added_while_it_runs_is_read_from_its_first_message(
    topic: Topic, start: Start
) -> None:
    topic.write({0: 3}, queues=1)
    reading = start(startingOffsets="earliest", discoveryIntervalMs="200")
    reading.wait(lambda: len(reading.rows) == 3)
    topic.write({0: 2, 1: 7}, queues=2)
    reading.wait(lambda: len(reading.rows) == 12)
    assert reading.rows == _span(0, 0, 5) + _span(1, 0, 7)


def test_a_topic_that_a_pattern_finds_later_is_read_whole(topic: Topic, start: Start) -> None:
    reading = start(subscribePattern=f"{topic.name}.*", discoveryIntervalMs="200")
    topic.write({0: 5}, queues=1)
    reading.wait(lambda: reading.rows == _span(0, 0, 5))


# ------------------------------------------------------------------------------------- limits, triggers


@needs_limits
def test_available_now_reads_in_limited_batches_ends_and_goes_on_exactly(
    topic: Topic, start: Start
) -> None:
    topic.write({0: 90, 1: 10}, queues=2)
    first = start(NOW, startingOffsets="earliest", maxOffsetsPerTrigger="40").ended()
    assert [len(rows) for rows in first.batches.values()] == [0, 40, 40, 20]
    assert first.rows == _span(0, 0, 90) + _span(1, 0, 10)
    topic.write({1: 4})
    second = start(NOW, startingOffsets="earliest").ended()
    assert second.rows == _span(1, 10, 14)
    assert start(NOW, startingOffsets="earliest").ended().batches == {}, "nothing from start to end"


@needs_limits
def test_bytes_limit_batches_too(topic: Topic, start: Start) -> None:
    topic.write({0: 100}, queues=1, body_size=1000)
    reading = start(NOW, startingOffsets="earliest", maxBytesPerTrigger="30000").ended()
    assert len(reading.rows) == 100
    assert 4 <= len([rows for rows in reading.batches.values() if rows]) <= 6


@needs_limits
def test_a_batch_waits_for_enough_messages_or_long_enough(topic: Topic, start: Start) -> None:
    topic.write({0: 5}, queues=1)
    given = {"startingOffsets": "earliest", "minOffsetsPerTrigger": "50"}
    reading = start(**given, maxTriggerDelay="1h")
    reading.wait(lambda: len(reading.rows) == 5)
    topic.write({0: 10})
    time.sleep(1)
    assert len(reading.rows) == 5
    topic.write({0: 40})
    reading.wait(lambda: len(reading.rows) == 55)
    reading.query.stop()
    impatient = start(**given, maxTriggerDelay="100ms")
    topic.write({0: 1})
    impatient.wait(lambda: impatient.rows[-1:] == [(0, 55)])
    topic.write({0: 1})
    impatient.wait(lambda: impatient.rows[-1:] == [(0, 56)])


@needs_limits
def test_once_reads_everything_at_once_from_a_stable_start(topic: Topic, start: Start) -> None:
    topic.write({0: 20}, queues=1)
    reading = start({"once": True}, startingOffsets="earliest", maxOffsetsPerTrigger="3").ended()
    assert reading.batches == {0: _span(0, 0, 20)}


# -------------------------------------------------------------------------------------- crashes, replays


@needs_limits
def test_a_crash_in_batch_0_of_a_start_at_the_end_loses_nothing(topic: Topic, start: Start) -> None:
    topic.write({0: 100}, queues=1)
    assert start(NOW, startingOffsets="latest").ended().rows == []
    shutil.rmtree(topic.checkpoint / "commits")  # as if it had died before the first commit
    topic.write({0: 50})
    after = start(NOW, startingOffsets="latest").ended()
    assert after.rows == _span(0, 100, 150)
    assert after.batches[0] == []


@needs_limits
def test_a_batch_that_was_planned_and_not_committed_is_replayed_as_it_was(
    topic: Topic, start: Start
) -> None:
    topic.write({0: 30, 1: 30}, queues=2)
    first = start(NOW, startingOffsets="earliest", maxOffsetsPerTrigger="20").ended()
    last = max(first.batches)
    for name in (str(last), f".{last}.crc"):
        (topic.checkpoint / "commits" / name).unlink(missing_ok=True)
    topic.write({0: 6})
    again = start(NOW, startingOffsets="earliest").ended()
    assert sorted(again.batches.pop(last)) == sorted(first.batches[last])
    assert again.rows == _span(0, 30, 36)


# ------------------------------------------------------------------------------------------------ losses


@needs_limits
@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_made_anew_is_a_loss(topic: Topic, start: Start, fails: bool) -> None:
    topic.write({0: 50}, queues=1)
    given = {"startingOffsets": "earliest", "failOnDataLoss": str(fails).lower()}
    assert len(start(NOW, **given).ended().rows) == 50
    topic.delete()
    topic.write({0: 8}, queues=1)
    reading = start(NOW, **given)
    if fails:
        with pytest.raises(
            PySparkException, match=r"ROCKETMQ_OFFSET_OUT_OF_RANGE.* was cut or made anew"
        ):
            reading.query.awaitTermination(int(PATIENCE))
        return
    assert reading.ended().rows == []
    topic.write({0: 4})
    assert start(NOW, **given).ended().rows == _span(0, 8, 12)


def test_a_deleted_topic_ends_a_query_that_must_not_lose(topic: Topic, start: Start) -> None:
    topic.write({0: 5}, queues=1)
    reading = start(startingOffsets="earliest", discoveryIntervalMs="200")
    reading.wait(lambda: len(reading.rows) == 5)
    topic.delete()
    with pytest.raises(PySparkException, match=r"ROCKETMQ_OFFSET_OUT_OF_RANGE.* is gone"):
        reading.query.awaitTermination(int(PATIENCE))


# ----------------------------------------------------------------------------------------------- outages


def test_stopping_is_prompt_while_no_broker_answers(
    spark: SparkSession, tmp_path: Path, topic: Topic
) -> None:
    with running_cluster(tmp_path / "mortal") as mortal:
        topic.cluster = mortal
        topic.write({0: 5}, queues=1)
        reading = _start(spark, topic, startingOffsets="earliest", consumerGroup="mortal")
        reading.wait(lambda: len(reading.rows) == 5)
    time.sleep(2)
    assert reading.query.isActive, "an outage is ridden out"
    stopped = time.monotonic()
    reading.query.stop()
    assert time.monotonic() - stopped < 10


def test_an_outage_longer_than_allowed_ends_the_query(
    spark: SparkSession, tmp_path: Path, topic: Topic
) -> None:
    with running_cluster(tmp_path / "mortal") as mortal:
        topic.cluster = mortal
        topic.write({0: 5}, queues=1)
        reading = _start(spark, topic, startingOffsets="earliest", offsetFailureTimeoutMs="2000")
        reading.wait(lambda: len(reading.rows) == 5)
    with pytest.raises(
        PySparkException, match=r"ROCKETMQ_BROKER_UNREACHABLE.*offsetFailureTimeoutMs=2000"
    ):
        reading.query.awaitTermination(int(PATIENCE))


# ----------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"endingOffsets": "latest"}, "endingoffsets is an option of a batch read"),
        ({"maxOffsetsPerTriger": "5"}, "did you mean maxOffsetsPerTrigger"),
        ({"maxOffsetsPerTrigger": "-5"}, "maxOffsetsPerTrigger='-5' is not a whole number"),
        ({"subscribe": "nothing"}, "ROCKETMQ_TOPIC_NOT_FOUND"),
        ({"nameServer": "127.0.0.1:1"}, "ROCKETMQ_BROKER_UNREACHABLE"),
    ],
)
def test_what_is_wrong_reaches_the_user(
    start: Start, topic: Topic, given: dict[str, str], said: str
) -> None:
    topic.write({}, queues=1)
    with pytest.raises(PySparkException) as error:
        start(**given).query.awaitTermination(int(PATIENCE))
    assert said in str(error.value)


def test_a_batch_refuses_the_options_of_a_stream(spark: SparkSession, topic: Topic) -> None:
    reader = spark.read.format("rocketmq").option("nameServer", topic.cluster.name_server)
    reader = reader.option("subscribe", topic.name).option("maxOffsetsPerTrigger", "5")
    with pytest.raises(
        PySparkException, match="maxoffsetspertrigger is an option of a streaming read"
    ):
        reader.load().count()
