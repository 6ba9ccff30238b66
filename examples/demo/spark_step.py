"""The Spark jobs of the demo, a program of its own: `spark_step.py NAME_SERVER TOPIC FOLDER` prints JSON, a line a job.

It runs apart from the demo so that the JVM it brings can be ended with its whole process group.
"""

import json
import os
import sys
from time import perf_counter
from typing import Any

BACKFILL_GROUP = "demo-backfill"
"""Named in the backfill's pulls, so that brokers count what they gave it."""
STREAM_GROUP = "demo-hours"
PER_BATCH = 100_000
LATENESS = "7 days"
"""Event times of one batch lie so far apart: queues are read side by side, cancelled flights end their days."""


def main(name_server: str, topic: str, folder: str) -> None:
    """Run the jobs one after the other in one session."""
    # Spark starts its workers with whatever `python3` is on PATH unless told otherwise.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .appName("rocketrio demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    try:
        for job in (by_airport, backfill, by_hour):
            started = perf_counter()
            value = job(spark, name_server, topic, folder)
            told = {"job": job.__name__, "seconds": perf_counter() - started, "value": value}
            print("RESULT " + json.dumps(told), flush=True)
    finally:
        spark.stop()


def by_airport(spark: Any, name_server: str, topic: str, folder: str) -> object:
    """Flights, departures and mean delay of each airport."""
    from pyspark.sql.functions import avg, col, count, from_json

    from rocketrio.spark import from_rocketmq

    messages = from_rocketmq(spark, topic, name_servers=name_server, columns=["tags", "body"])
    flight = from_json(col("body").cast("string"), "origin string, dep_delay double")
    rows = (
        messages.select(flight.alias("flight"))
        .groupBy("flight.origin")
        .agg(count("*"), count("flight.dep_delay"), avg("flight.dep_delay"))
        .collect()
    )
    return {
        origin: {"flights": flights, "departures": departures, "mean_delay": mean_delay}
        for origin, flights, departures, mean_delay in rows
    }


def backfill(spark: Any, name_server: str, topic: str, folder: str) -> object:
    """The whole topic as Parquet, read from the slave; how many rows."""
    from rocketrio.spark import from_rocketmq

    messages = from_rocketmq(
        spark,
        topic,
        name_servers=name_server,
        read_from="slave",
        consumer_group=BACKFILL_GROUP,
        columns=["queue_id", "queue_offset", "keys", "tags", "body", "store_time"],
    )
    messages.write.parquet(f"{folder}/backfill")
    return spark.read.parquet(f"{folder}/backfill").count()


def by_hour(spark: Any, name_server: str, topic: str, folder: str) -> object:
    """The hourly delays of a stream with a watermark, as Parquet; how many micro-batches it took."""
    from pyspark.sql.functions import avg, col, count, from_json, window

    from rocketrio.spark import stream_from_rocketmq

    stream = stream_from_rocketmq(
        spark,
        topic,
        name_servers=name_server,
        starting_offsets="earliest",
        max_offsets_per_trigger=PER_BATCH,
        consumer_group=STREAM_GROUP,
        columns=["body"],
    )
    fields = "origin string, dep_delay double, time_hour timestamp"
    hours = (
        stream.select(from_json(col("body").cast("string"), fields).alias("flight"))
        .select("flight.*")
        .withWatermark("time_hour", LATENESS)
        .groupBy(window("time_hour", "1 hour"), "origin")
        .agg(count("*").alias("flights"), avg("dep_delay").alias("mean_delay"))
        .select(col("window.start").alias("hour"), "origin", "flights", "mean_delay")
    )
    query = (
        hours.writeStream.format("parquet")
        .option("path", f"{folder}/hours")
        .option("checkpointLocation", f"{folder}/hours-checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sum(1 for progress in query.recentProgress if progress["numInputRows"])


if __name__ == "__main__":
    main(*sys.argv[1:])
