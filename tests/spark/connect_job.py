"""What a Spark Connect client does: `python connect_job.py REMOTE NAME_SERVER FOLDER KIND ...` prints JSON by kind.

A program of its own, since one process has either a Connect session or one with a JVM. It has no rocketrio, except for
the kind `helper`: only the server needs that, and so whatever a test here reads or writes was done over there.
"""

import json
import sys

if __name__ == "__main__" and "helper" not in sys.argv:
    for name in ("rocketrio", "rocketrio_protocol", "pyspark_rocketmq"):
        sys.modules[name] = None  # type: ignore[assignment]  # an import of it fails

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, concat, length, lit
from pyspark.sql.functions import sum as sum_of

LIMIT = 240
"""Seconds for a streaming query to come to its end."""


def read(spark: SparkSession, cluster: dict[str, str], topic: str, folder: str) -> object:
    frame = _read(spark, cluster, topic)
    return [list(row) for row in _sums(frame)]


def helper(spark: SparkSession, cluster: dict[str, str], topic: str, folder: str) -> object:
    from rocketrio.spark import from_rocketmq, register

    register(spark)
    frame = from_rocketmq(
        spark, topic, name_servers=cluster["nameServer"], columns=["queue_id", "body"]
    )
    return [list(row) for row in _sums(frame)]


def wrong(spark: SparkSession, cluster: dict[str, str], topic: str, folder: str) -> object:
    try:
        spark.read.format("rocketmq").options(**cluster).option("subscribed", topic).load().count()
    except Exception as error:  # whatever class Connect makes of it
        return str(error)
    return None


def stream(spark: SparkSession, cluster: dict[str, str], topic: str, folder: str) -> object:
    frame = (
        spark.readStream.format("rocketmq")
        .options(**cluster)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .options(**({"maxOffsetsPerTrigger": "250"} if pyspark.__version__ >= "4.2" else {}))
        .option("columns", "queue_id,body")
        .load()
    )
    query = (
        frame.writeStream.format("parquet")
        .option("path", f"{folder}/rows")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(LIMIT), query.status
    return [list(row) for row in _sums(spark.read.parquet(f"{folder}/rows"))]


def write(spark: SparkSession, cluster: dict[str, str], topic: str, folder: str) -> object:
    rows = spark.range(10).select(concat(lit("w"), col("id").cast("string")).alias("body"))
    rows.write.format("rocketmq").options(**cluster).option("topic", topic).mode("append").save()
    return _bodies(_read(spark, cluster, topic))


def stream_write(spark: SparkSession, cluster: dict[str, str], topic: str, folder: str) -> object:
    spark.range(10).select(concat(lit("s"), col("id").cast("string")).alias("body")).write.parquet(
        f"{folder}/source"
    )
    query = (
        spark.readStream.schema("body string")
        .parquet(f"{folder}/source")
        .writeStream.format("rocketmq")
        .options(**cluster)
        .option("topic", topic)
        .option("checkpointLocation", f"{folder}/write-checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(LIMIT), query.status
    return _bodies(_read(spark, cluster, topic))


def _read(spark: SparkSession, cluster: dict[str, str], topic: str) -> DataFrame:
    reader = spark.read.format("rocketmq").options(**cluster).option("subscribe", topic)
    return reader.option("columns", "queue_id,body").load()


def _sums(frame: DataFrame) -> list[tuple[int, int]]:
    sums = frame.groupBy("queue_id").agg(sum_of(length("body")).alias("bytes")).orderBy("queue_id")
    return [(row.queue_id, row.bytes) for row in sums.collect()]


def _bodies(frame: DataFrame) -> list[str]:
    return sorted(bytes(row.body).decode() for row in frame.collect())


KINDS = {
    "read": (read, "orders"),
    "helper": (helper, "orders"),
    "wrong": (wrong, "orders"),
    "stream": (stream, "orders"),
    "write": (write, "written"),
    "stream-write": (stream_write, "streamed"),
}
"""What each does, and with which topic."""


def main(remote: str, name_server: str, folder: str, *kinds: str) -> None:
    spark = SparkSession.builder.remote(remote).getOrCreate()
    results: dict[str, object] = {}
    try:
        for kind in kinds:
            work, topic = KINDS[kind]
            try:
                results[kind] = work(spark, {"nameServer": name_server}, topic, folder)
            except Exception as error:
                results[kind] = f"failed: {error!r}"
        print("RESULT " + json.dumps(results))
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
