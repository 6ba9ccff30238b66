"""`spark.readStream.format("rocketmq")` in a real session: growth, crashes, replays, losses, lag, outages."""

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.spark.limits import needs_limits
from tests.spark.stream_rig import (
    NOW,
    PATIENCE,
    Start,
    Topic,
    cluster,
    span,
    start,
    start_query,
    topic,
)
from tests.support.further import first_of
from tests.support.running_cluster import running_cluster

from rocketrio.spark import lag_by_queue
from rocketrio.spark.streaming.reader import HAS_LIMITS

__all__ = ["cluster", "start", "topic"]  # fixtures: pytest finds them by their names here
pytestmark = [pytest.mark.spark, pytest.mark.slow]

# ------------------------------------------------------------------------------------------------ growth


def test_a_stream_follows_its_topic_and_so_does_the_lag_at_the_broker(
    topic: Topic, start: Start
) -> None:
    topic.write({0: 30, 1: 10}, queues=2)
    reading = start(startingOffsets="earliest", consumerGroup="follows", commitIntervalMs="600000")
    reading.wait(lambda: len(reading.rows) == 40)
    topic.write({1: 5})
    reading.wait(lambda: len(reading.rows) == 45)
    assert reading.rows == span(0, 0, 30) + span(1, 0, 15)
    reading.wait_idle()
    reading.wait(lambda: _broker_lags(topic, "follows") == [0, 0])
    lag = lag_by_queue(reading.query.lastProgress)
    assert sorted(lag.values()) == _broker_lags(topic, "follows")
    batches = max(reading.batches)
    reading.wait_idle()
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
    assert reading.rows == span(0, 0, 5) + span(1, 0, 7)


def test_a_topic_that_a_pattern_finds_later_is_read_whole(topic: Topic, start: Start) -> None:
    reading = start(subscribePattern=f"{topic.name}.*", discoveryIntervalMs="200")
    topic.write({0: 5}, queues=1)
    reading.wait(lambda: reading.rows == span(0, 0, 5))


# -------------------------------------------------------------------------------------- crashes, replays


def test_a_crash_in_batch_0_of_a_start_at_the_end_loses_nothing(topic: Topic, start: Start) -> None:
    topic.write({0: 100}, queues=1)
    assert start(NOW, startingOffsets="latest").ended().rows == []
    shutil.rmtree(topic.checkpoint / "commits")  # as if it had died before the first commit
    topic.write({0: 50})
    after = start(NOW, startingOffsets="latest").ended()
    assert after.batches[0] == []
    if not HAS_LIMITS:  # AvailableNow is one batch there: the old one.
        after = start(NOW, startingOffsets="latest").ended()
    assert after.rows == span(0, 100, 150)


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
    assert again.rows == span(0, 30, 36)


# ------------------------------------------------------------------------------------------------ losses


@pytest.mark.parametrize(
    ("fails", "count"), first_of(1, [pytest.param(True, 8), pytest.param(False, 80)])
)
def test_topic_created_again_is_a_loss(topic: Topic, start: Start, fails: bool, count: int) -> None:
    topic.write({0: 50}, queues=1)
    given = {"startingOffsets": "earliest", "failOnDataLoss": str(fails).lower()}
    assert len(start(NOW, **given).ended().rows) == 50
    topic.delete()
    topic.write({0: count}, queues=1)
    reading = start(NOW, **given)
    if fails:
        with pytest.raises(
            PySparkException, match=r"ROCKETMQ_OFFSET_OUT_OF_RANGE.* was read to before 50"
        ):
            reading.ended()
        return
    assert reading.ended().rows == span(0, 0, count)
    topic.write({0: 4})
    assert start(NOW, **given).ended().rows == span(0, count, count + 4)


def test_a_deleted_topic_ends_a_query_that_must_not_lose(topic: Topic, start: Start) -> None:
    topic.write({0: 5}, queues=1)
    reading = start(startingOffsets="earliest", discoveryIntervalMs="200")
    reading.wait(lambda: len(reading.rows) == 5)
    topic.delete()
    with pytest.raises(
        PySparkException, match=r"ROCKETMQ_OFFSET_OUT_OF_RANGE.* (is gone|was deleted):"
    ):
        reading.ended()


# ----------------------------------------------------------------------------------------------- outages


def test_query_that_no_broker_answers_goes_on_and_can_be_stopped(
    spark: SparkSession, tmp_path: Path, topic: Topic
) -> None:
    with running_cluster(tmp_path / "mortal") as mortal:
        topic.cluster = mortal
        topic.write({0: 5}, queues=1)
        reading = start_query(
            spark, topic,
            startingOffsets="earliest", consumerGroup="mortal", offsetFailureTimeoutMs="3600000",
        )  # fmt: skip
        reading.wait(lambda: len(reading.rows) == 5)
    _hang_up(mortal.master, times=2)
    assert reading.query.isActive, "an outage is ridden out"
    spark.conf.set("spark.sql.streaming.stopTimeout", f"{PATIENCE:.0f}s")  # stop() fails after it
    try:
        reading.query.stop()
    finally:
        spark.conf.unset("spark.sql.streaming.stopTimeout")


def _hang_up(address: str, times: int) -> None:
    """Answer that many connections by closing them, in place of a broker that is gone."""
    host, port = address.rsplit(":", 1)
    with socket.create_server((host, int(port))) as listener:
        listener.settimeout(PATIENCE)
        for _ in range(times):
            listener.accept()[0].close()


def test_an_outage_longer_than_allowed_ends_the_query(
    spark: SparkSession, tmp_path: Path, topic: Topic
) -> None:
    with running_cluster(tmp_path / "mortal") as mortal:
        topic.cluster = mortal
        topic.write({0: 5}, queues=1)
        reading = start_query(
            spark, topic, startingOffsets="earliest", offsetFailureTimeoutMs="2000"
        )
        reading.wait(lambda: len(reading.rows) == 5)
    with pytest.raises(
        PySparkException, match=r"ROCKETMQ_BROKER_UNREACHABLE.*offsetFailureTimeoutMs=2000"
    ):
        reading.ended()


# ----------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("given", "said"),
    [
        pytest.param(
            {"endingOffsets": "latest"},
            "endingoffsets is an option of a batch read",
            marks=pytest.mark.long,
        ),
        ({"maxOffsetsPerTriger": "5"}, "did you mean maxOffsetsPerTrigger"),
        pytest.param(
            {"maxOffsetsPerTrigger": "-5"},
            "maxOffsetsPerTrigger='-5' is not a whole number",
            marks=pytest.mark.long,
        ),
        ({"subscribe": "nothing"}, "ROCKETMQ_TOPIC_NOT_FOUND"),
        ({"nameServer": "127.0.0.1:1"}, "ROCKETMQ_BROKER_UNREACHABLE"),
    ],
)
def test_what_is_wrong_reaches_the_user(
    start: Start, topic: Topic, given: dict[str, str], said: str
) -> None:
    topic.write({}, queues=1)
    with pytest.raises(PySparkException) as error:
        start(**given).ended()
    assert said in str(error.value)


def test_a_batch_refuses_the_options_of_a_stream(spark: SparkSession, topic: Topic) -> None:
    reader = spark.read.format("rocketmq").option("nameServer", topic.cluster.name_server)
    reader = reader.option("subscribe", topic.name).option("maxOffsetsPerTrigger", "5")
    with pytest.raises(
        PySparkException, match="maxoffsetspertrigger is an option of a streaming read"
    ):
        reader.load().count()
