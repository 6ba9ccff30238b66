"""Two jobs whose tasks fail on the way, in a session that repeats them: run by test_write_failures.py.

    python -m tests.spark.failing_write NAME_SERVER FOLDER

In the topic `once` a task fails in its first attempt; in the topic `always` it fails in each.
"""

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import trio
from pyspark import TaskContext
from pyspark.sql import SparkSession
from tests.support.quick_start import quick_session

from rocketrio import open_admin

ROWS = 1000
FAILING_ROW = 900
PAUSE = 0.1


def failing(topic: str, may_fail: Path) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return a function that lets partition 1 fail near its end."""

    def fail(batches: Iterator[Any]) -> Iterator[Any]:
        task = TaskContext.get()
        assert task is not None
        is_failing = task.partitionId() == 1 and (topic == "always" or task.attemptNumber() == 0)
        sent = 0
        for batch in batches:
            yield batch
            sent += batch.num_rows
            if is_failing and sent >= FAILING_ROW:
                while not may_fail.exists():
                    time.sleep(PAUSE)
                raise RuntimeError("a fault of the job's own")

    return fail


def let_fail(spark: SparkSession, name_server: str, topic: str, may_fail: Path) -> None:
    """Once the other task is over, and of this one something is stored."""
    tracker = spark.sparkContext.statusTracker()
    while True:
        time.sleep(PAUSE)
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        is_over = any(stage is not None and stage.numCompletedTasks for stage in stages)
        if is_over and trio.run(stored, name_server, topic) > ROWS:
            return may_fail.touch()


async def stored(name_server: str, topic: str) -> int:
    """Messages in the topic."""
    async with open_admin(name_servers=[name_server]) as admin:
        found = await admin.topic(topic)
    return sum(queue.max_offset or 0 for queue in found.queues)


def write(spark: SparkSession, name_server: str, topic: str, may_fail: Path) -> None:
    # Large enough that no buffer on the way holds all of them back.
    body = "concat(id, repeat(' ', 1000)) AS body"
    frame = spark.range(0, 2 * ROWS, numPartitions=2).selectExpr(body)
    frame = frame.mapInArrow(failing(topic, may_fail), frame.schema)
    writer = frame.write.format("rocketmq").mode("append")
    Thread(target=let_fail, args=[spark, name_server, topic, may_fail], daemon=True).start()
    try:
        writer.options(
            nameServer=name_server, topic=topic, dedupProperties="true", maxInFlight="2"
        ).save()
    except Exception as error:
        print(topic, "failed", "a fault of the job's own" in str(error))
    else:
        print(topic, "written")


def main(name_server: str, folder: Path) -> int:
    settings = {
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
        "spark.log.level": "OFF",
    }
    # Two slots, two attempts.
    spark = quick_session(folder / "spark", settings, master="local[2,2]")
    for topic in ("once", "always"):
        write(spark, name_server, topic, folder / f"{topic}-may-fail")
    spark.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], Path(sys.argv[2])))
