"""Triggers and limits of streams in a real session; what the triggers of PySpark 4.0 and 4.1 do without limits."""

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.spark.limits import needs_limits
from tests.spark.stream_rig import NOW, Start, Topic, cluster, span, start, topic
from tests.support.further import first_of

from rocketrio.spark.streaming.reader import HAS_LIMITS

__all__ = ["cluster", "start", "topic"]  # fixtures: pytest finds them by their names here
pytestmark = [pytest.mark.spark, pytest.mark.slow]

older = pytest.mark.skipif(HAS_LIMITS, reason="of PySpark 4.0 and 4.1")


# ------------------------------------------------------------------------------------- limits, triggers


@needs_limits
def test_available_now_reads_in_limited_batches_and_continues_exactly(
    topic: Topic, start: Start
) -> None:
    topic.write({0: 90, 1: 10}, queues=2)
    first = start(NOW, startingOffsets="earliest", maxOffsetsPerTrigger="40").ended()
    assert [len(rows) for rows in first.batches.values()] == [0, 40, 40, 20]
    assert first.rows == span(0, 0, 90) + span(1, 0, 10)
    topic.write({1: 4})
    second = start(NOW, startingOffsets="earliest").ended()
    assert second.rows == span(1, 10, 14)
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
    reading.wait_idle()
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
    assert reading.batches == {0: span(0, 0, 20)}


# ----------------------------------------------------------------------------- PySpark 4.0 and 4.1


@pytest.mark.parametrize(
    "trigger", [NOW, pytest.param({"once": True}, marks=pytest.mark.long)], ids=str
)
def test_one_batch_reads_everything_and_the_next_run_continues_exactly(
    topic: Topic, start: Start, trigger: dict[str, bool]
) -> None:
    topic.write({0: 90, 1: 10}, queues=2)
    first = start(trigger, startingOffsets="earliest").ended()
    assert [len(rows) for rows in first.batches.values() if rows] == [100]
    assert first.rows == span(0, 0, 90) + span(1, 0, 10)
    topic.write({1: 4})
    assert start(trigger, startingOffsets="earliest").ended().rows == span(1, 10, 14)
    assert start(trigger, startingOffsets="earliest").ended().batches == {}


def test_one_batch_from_the_end_notes_where_the_next_run_starts(topic: Topic, start: Start) -> None:
    topic.write({0: 9}, queues=1)
    assert start({"once": True}, startingOffsets="latest").ended().batches == {0: []}
    topic.write({0: 2})
    assert start({"once": True}, startingOffsets="latest").ended().rows == span(0, 9, 11)


@older
def test_several_batches_of_available_now_are_refused(
    spark: SparkSession, topic: Topic, start: Start
) -> None:
    topic.write({0: 9}, queues=1)
    name = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"
    spark.conf.set(name, "true")
    try:
        with pytest.raises(PySparkException, match=r"needs PySpark 4\.2"):
            start(NOW, startingOffsets="earliest").ended()
    finally:
        spark.conf.unset(name)


@older
@pytest.mark.parametrize(
    "option", first_of(1, ["maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger"])
)
def test_limits_are_refused_by_what_cannot_keep_them(
    topic: Topic, start: Start, option: str
) -> None:
    topic.write({}, queues=1)
    with pytest.raises(PySparkException, match=rf"{option}.* need PySpark 4\.2"):
        start(startingOffsets="earliest", **{option: "5"}).ended()
