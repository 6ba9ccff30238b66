"""Hourly departure delays by airport, kept up from the stream of flights: event time, watermark, exactly once.

    rocketrio-broker cluster --listen 127.0.0.1:9876 --data /tmp/rocketrio &
    python examples/demo/flights.py 60000 | rocketrio produce flights
    python examples/spark_hourly_delays.py /tmp/delays          # and again after more flights were sent

The name server is 127.0.0.1:9876, or what NAMESRV_ADDR says. Needs `pip install '.[demo]'` and Java 17 or later.

A run takes what came since the last one and ends; with `trigger(processingTime="10 seconds")` it would go on. The
checkpoint knows how far it came, and Parquet files are listed in a log of their own: an hour is written once, however
often a run dies. An hour is written when it is over: when flights were seen that were due a watermark later. The
group's offsets are committed, so that `rocketrio offsets flights --group hourly-delays` shows what is left to do.
"""

import os
import sys

# Spark starts its workers with the `python3` on PATH unless a setting says which interpreter has the packages.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import avg, col, count, date_format, from_json, window
from pyspark.sql.functions import max as largest

from rocketrio.spark import stream_from_rocketmq

LATENESS = "7 days"
"""How much later than others a flight may come: cancelled ones do at the end of their day, and a run over a long
backlog has read a day or three further in one queue than in another."""
PER_BATCH = 20_000


def hourly(flights: DataFrame) -> DataFrame:
    """From messages to one row an hour and airport."""
    columns = "origin STRING, dep_delay DOUBLE, time_hour TIMESTAMP"
    return (
        flights.select(from_json(col("body").cast("string"), columns).alias("flight"))
        .select("flight.*")
        .withWatermark("time_hour", LATENESS)
        .groupBy(window("time_hour", "1 hour"), "origin")
        .agg(
            count("*").alias("flights"),
            count("dep_delay").alias("departures"),
            avg("dep_delay").alias("mean_delay"),
            largest("dep_delay").alias("worst_delay"),
        )
        .select(col("window.start").alias("hour"), "origin", "flights", "departures",
                "mean_delay", "worst_delay")
    )  # fmt: skip


def main(folder: str) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("hourly delays")
        .config("spark.sql.shuffle.partitions", "2")  # Of three airports, 200 would be empty tasks.
        .config("spark.sql.session.timeZone", "America/New_York")
        .getOrCreate()
    )
    flights = stream_from_rocketmq(
        spark,
        "flights",
        starting_offsets="earliest",
        consumer_group="hourly-delays",
        max_offsets_per_trigger=PER_BATCH,
        columns=["body"],
    )
    query = (
        hourly(flights)
        .writeStream.format("parquet")
        .option("path", f"{folder}/hours")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    hours = spark.read.parquet(f"{folder}/hours")
    print(f"{hours.count()} hours are over")
    late = hours.orderBy(col("mean_delay").desc_nulls_last(), "hour", "origin").limit(3)
    for row in late.withColumn("when", date_format("hour", "d MMMM, HH:mm")).collect():
        print(
            f"{row.when} {row.origin}: {row.departures} of {row.flights} left,"
            f" {row.mean_delay:.0f} minutes late"
        )
    spark.stop()


if __name__ == "__main__":
    match sys.argv[1:]:
        case [folder] if not folder.startswith("-"):
            main(folder)
        case _:
            sys.exit(__doc__)
