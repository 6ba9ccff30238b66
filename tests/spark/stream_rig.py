"""A topic, a query that notes what each of its batches reads, and the checkpoint between them: for tests of streams."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import spark_partition_id
from pyspark.sql.streaming.query import StreamingQuery
from tests.support.running_cluster import (
    Running,
    cluster_fixture,
    create_topic,
    load_queue,
    numbered,
)

from rocketrio import open_admin
from rocketrio_protocol.remoting.pool import ChannelPool

PATIENCE = 120.0
"""Seconds that anything may take where many share a machine; on a quiet one all of it is there within one."""
STARTS = 5
"""Of one query, at most."""
NOW = {"availableNow": True}


cluster = cluster_fixture()


@attrs.define
class Topic:
    """A topic of its own for each test, and the checkpoint of its query."""

    cluster: Running
    name: str
    home: Path

    def write(
        self, counts: dict[int, int], *, queues: int | None = None, body_size: int = 0
    ) -> None:
        """Send `count` messages into each queue; with `queues` the topic is made first, or enlarged."""

        async def write(pool: ChannelPool, running: Running) -> None:
            if queues is not None:
                await create_topic(pool, running.master, self.name, queues)
            for queue_id, count in counts.items():
                messages = numbered(queue_id, count, body_size=body_size)
                await load_queue(pool, running.master, self.name, queue_id, messages)

        self.cluster.fill(write)

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
    """A query that notes the rows of each batch, and is started again if Spark gave up on a Python process."""

    query: StreamingQuery
    begin: Callable[[], StreamingQuery]
    batches: dict[int, list[tuple[int, int]]]
    """Queue and offset of each row, by the number of the batch."""
    tasks: dict[int, int]
    _starts: int = 1

    @property
    def rows(self) -> list[tuple[int, int]]:
        return sorted(row for rows in self.batches.values() for row in rows)

    def wait(self, claim: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not claim():
            failure = self.query.exception()
            assert failure is None or self.goes_on_after(failure), failure
            assert time.monotonic() < deadline, (self.query.status, self.batches)
            time.sleep(0.05)

    def wait_idle(self) -> None:
        """Until the query has found nothing new to do three times."""
        for _ in range(3):
            last = self._told()
            self.wait(lambda last=last: self._told() != last)  # type: ignore[misc]

    def _told(self) -> str:
        progress = self.query.lastProgress
        return "" if progress is None else str(progress["timestamp"])

    def ended(self) -> "Reading":
        while True:
            try:
                assert self.query.awaitTermination(int(PATIENCE)), self.query.status
            except StreamingQueryException as failure:
                if not self.goes_on_after(failure):
                    raise
            else:
                return self

    def goes_on_after(self, failure: Exception) -> bool:
        """Whether only a Python process was late, at its start or in any batch: then the query is started again.

        Spark gives one ten seconds to start, which a busy machine may not. The batch in work is then repeated.
        """
        if "failed to connect back" not in str(failure) or self._starts == STARTS:
            return False
        self._starts += 1
        self.query = self.begin()
        return True


def start_query(
    spark: SparkSession, topic: Topic, trigger: dict[str, Any] | None = None, **given: str
) -> Reading:
    options = {"nameServer": topic.cluster.name_server, "columns": "queue_id,queue_offset", **given}
    if "subscribePattern" not in options:
        options.setdefault("subscribe", topic.name)
    frame = spark.readStream.format("rocketmq").options(**options).load()
    batches: dict[int, list[tuple[int, int]]] = {}
    tasks: dict[int, int] = {}

    def note(batch: DataFrame, number: int) -> None:
        rows = batch.select(
            "queue_id", "queue_offset", spark_partition_id().alias("task")
        ).collect()
        batches[number] = [(row.queue_id, row.queue_offset) for row in rows]
        tasks[number] = len({row.task for row in rows})

    writer = frame.writeStream.foreachBatch(note).option(
        "checkpointLocation", str(topic.checkpoint)
    )
    if trigger is not None:
        writer = writer.trigger(**trigger)
    reading = Reading(writer.start(), writer.start, batches, tasks)
    while True:
        while reading.query.isActive and reading.query.lastProgress is None and not batches:
            time.sleep(0.02)
        failure = reading.query.exception()
        if failure is None or not reading.goes_on_after(failure):
            return reading


Start = Callable[..., Reading]


@pytest.fixture
def start(spark: SparkSession, topic: Topic) -> Iterator[Start]:
    started: list[Reading] = []

    def begin(trigger: dict[str, Any] | None = None, **given: str) -> Reading:
        started.append(start_query(spark, topic, trigger, **given))
        return started[-1]

    yield begin
    for reading in started:
        reading.query.stop()


def span(queue_id: int, first: int, end: int) -> list[tuple[int, int]]:
    """Rows of one queue."""
    return [(queue_id, offset) for offset in range(first, end)]
