"""The lag of a stream on our broker, as the query reports it and as Apache's `mqadmin consumerProgress` prints it."""

import time
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from pyspark.sql import SparkSession

from rocketrio.spark import lag_by_queue
from rocketrio_protocol.message import MessageQueue
from tests.interop.jars import VERSIONS
from tests.interop.java_client import JavaClient
from tests.spark.conftest import spark
from tests.spark.stream_rig import PATIENCE, Reading, Start, Topic, cluster, start, topic
from tests.support.running_cluster import Running

__all__ = ["cluster", "spark", "start", "topic"]  # fixtures: pytest finds them by their names here
pytestmark = pytest.mark.interop

GROUP = "lag-of-a-stream"


@attrs.frozen
class Progress:
    """What the tool says of one queue."""

    newest: int
    committed: int
    lag: int


@pytest.fixture
def java(cluster: Running, tmp_path: Path) -> Iterator[JavaClient]:
    with JavaClient(VERSIONS[-1], cluster.name_server, tmp_path / "java") as client:
        yield client


def progress(java: JavaClient, topic: str) -> dict[MessageQueue, Progress]:
    """The queues of the topic in the tool's table, whose columns have fixed widths."""
    lines = java.mqadmin("consumerProgress", "-g", GROUP, "-n", java.name_server)
    found: dict[MessageQueue, Progress] = {}
    for line in lines.splitlines():
        words = line.split()
        if words[:1] != [topic]:
            continue
        name, broker, queue_id, newest, committed = words[:5]
        # Between offset and lag stands the client's address, where the group has members.
        lag = int(words[words.index("N/A") + 1] if "N/A" in words else words[5])
        found[MessageQueue(name, broker, int(queue_id))] = Progress(
            int(newest), int(committed), lag
        )
    return found


def until_same(reading: Reading, java: JavaClient, topic: Topic) -> dict[int, int]:
    """The lag by queue, once the query and the tool tell the same."""
    deadline = time.monotonic() + PATIENCE
    while True:
        theirs = {queue: each.lag for queue, each in progress(java, topic.name).items()}
        ours = lag_by_queue(reading.query.lastProgress)
        if ours and ours == theirs:
            return by_number(ours)
        assert time.monotonic() < deadline, (ours, theirs)
        time.sleep(0.5)


def wait_lag(reading: Reading, wanted: dict[int, int]) -> None:
    """Until the query reports this lag by queue."""
    reading.wait(lambda: by_number(lag_by_queue(reading.query.lastProgress)) == wanted)


def by_number(lags: dict[MessageQueue, int]) -> dict[int, int]:
    return {queue.queue_id: lag for queue, lag in lags.items()}


def test_an_idle_stream_has_the_same_lag_for_spark_and_for_mqadmin(
    spark: SparkSession, topic: Topic, start: Start, java: JavaClient
) -> None:
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "200")
    topic.write({0: 30, 1: 10}, queues=2)
    reading = start(
        startingOffsets="earliest",
        consumerGroup=GROUP,
        commitIntervalMs="600000",
        minOffsetsPerTrigger="20",
        maxTriggerDelay="1h",
    )
    reading.wait(lambda: len(reading.rows) == 40)
    wait_lag(reading, {0: 0, 1: 0})
    assert until_same(reading, java, topic) == {0: 0, 1: 0}
    told = progress(java, topic.name)
    assert [(each.newest, each.committed) for _, each in sorted(told.items())] == [
        (30, 30),
        (10, 10),
    ]

    topic.write({0: 4, 1: 7})  # less than a batch waits for
    wait_lag(reading, {0: 4, 1: 7})
    assert until_same(reading, java, topic) == {0: 4, 1: 7}

    topic.write({0: 9})
    reading.wait(lambda: len(reading.rows) == 60)
    wait_lag(reading, {0: 0, 1: 0})
    assert until_same(reading, java, topic) == {0: 0, 1: 0}
