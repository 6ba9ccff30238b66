"""A job whose tasks fail on the way, in a session that repeats them: run by test_write_failures.py.

python -m tests.spark.failing_write NAME_SERVER once|always FOLDER
"""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable

import trio
from pyspark import TaskContext
from pyspark.sql import SparkSession
from tests.support.quick_start import JAVA_OPTIONS, quick_home

from rocketrio import open_admin

ROWS = 1000
FAILING_ROW = 900


def session() -> SparkSession:
    quick_home(Path(sys.argv[3]) / "spark")
    return (
        SparkSession.builder.master("local[2,2]")  # two slots, two attempts
        .config("spark.ui.enabled", "false")
        .config("spark.driver.extraJavaOptions", JAVA_OPTIONS)
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )


def fail(batches: Iterator[Any]) -> Iterator[Any]:
    """Let partition 1 fail near its end, in its first attempt or in each."""
    task = TaskContext.get()
    assert task is not None
    is_failing = task.partitionId() == 1 and (HOW == "always" or task.attemptNumber() == 0)
    sent = 0
    for batch in batches:
        yield batch
        sent += batch.num_rows
        if is_failing and sent >= FAILING_ROW:
            while not MAY_FAIL.exists():
                time.sleep(PAUSE)
            raise RuntimeError("a fault of the job's own")


HOW = sys.argv[2]
MAY_FAIL = Path(sys.argv[3]) / "may-fail"
PAUSE = 0.1


def let_fail(spark: SparkSession) -> None:
    """Once the other task is over, and of this one something is stored."""
    tracker = spark.sparkContext.statusTracker()
    while True:
        time.sleep(PAUSE)
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        is_over = any(stage is not None and stage.numCompletedTasks for stage in stages)
        if is_over and trio.run(stored) > ROWS:
            return MAY_FAIL.touch()


async def stored() -> int:
    """Messages in the topic."""
    async with open_admin(name_servers=[sys.argv[1]]) as admin:
        topic = await admin.topic("failing")
    return sum(queue.max_offset or 0 for queue in topic.queues)


def main() -> int:
    spark = session()
    # Large enough that no buffer on the way holds all of them back.
    body = "concat(id, repeat(' ', 1000)) AS body"
    frame = spark.range(0, 2 * ROWS, numPartitions=2).selectExpr(body)
    writer = frame.mapInArrow(fail, frame.schema).write.format("rocketmq").mode("append")
    Thread(target=let_fail, args=[spark], daemon=True).start()
    try:
        writer.options(
            nameServer=sys.argv[1], topic="failing", dedupProperties="true", maxInFlight="2"
        ).save()
    except Exception as error:
        print("failed", "a fault of the job's own" in str(error))
    else:
        print("written")
    spark.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
