"""A Spark driver of its own, to be killed: reads a topic as a stream into Parquet files.

    python -m tests.spark.stream_job NAME_SERVER TOPIC FOLDER run        says so after its first batch, goes on
    python -m tests.spark.stream_job NAME_SERVER TOPIC FOLDER finish     reads to the end, writes what the sink holds

FOLDER keeps the checkpoint and the sink; `finish` leaves `rows.json` there: queue, offset, body of every row.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from tests.support.quick_start import quick_session

READING: str = "the driver has done its first batch"
STARTS: int = 5
"""Spark gives a Python process ten seconds to start, which a busy machine may not."""


MOST_ROWS: dict[str, int] = {"run": 400, "finish": 20_000}
"""Of a batch: many small ones while drivers are killed; what has gathered meanwhile is then read in a few."""


def main(name_server: str, topic: str, folder: str, mode: str) -> int:
    home = Path(folder)
    spark = quick_session(home / "spark")
    query = _started(spark, name_server, topic, home, mode)
    print(READING, flush=True)
    query.awaitTermination()
    rows = spark.read.parquet(str(home / "sink")).collect()
    (home / "rows.json").write_text(
        json.dumps([[row.queue_id, row.queue_offset, bytes(row.body).decode()] for row in rows])
    )
    spark.stop()
    return 0


def _started(spark: Any, name_server: str, topic: str, home: Path, mode: str) -> Any:
    frame = (
        spark.readStream.format("rocketmq")
        .option("nameServer", name_server)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(MOST_ROWS[mode]))
        .option("offsetPollIntervalMs", "50")
        .option("columns", "queue_id,queue_offset,body")
        .load()
    )
    for _ in range(STARTS):
        writer = frame.writeStream.format("parquet").option("path", str(home / "sink"))
        writer = writer.option("checkpointLocation", str(home / "checkpoint"))
        query = (writer.trigger(availableNow=True) if mode == "finish" else writer).start()
        while query.isActive and query.lastProgress is None:
            time.sleep(0.05)
        failure = query.exception()
        if failure is None or "failed to connect back" not in str(failure):
            return query
    raise TimeoutError("no Python process came up")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
