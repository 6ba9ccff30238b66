"""The demo's Spark job, a program of its own: `python spark_step.py NAME_SERVER TOPIC` prints JSON by airport.

It runs apart from the demo so that the JVM it brings can be ended with its whole process group.
"""

import json
import os
import sys


def main(name_server: str, topic: str) -> None:
    """Read the topic as a DataFrame and print flights, departures and mean delay by airport."""
    # Spark starts its workers with whatever `python3` is on PATH unless told otherwise.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import avg, col, count, from_json

    spark = (
        SparkSession.builder.master("local[2]")
        .appName("rocketrio demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    try:
        messages = (
            spark.read.format("rocketmq")
            .option("nameServer", name_server)
            .option("subscribe", topic)
            .option("columns", "tags,body")
            .load()
        )
        flight = from_json(col("body").cast("string"), "origin string, dep_delay double")
        rows = (
            messages.select(flight.alias("flight"))
            .groupBy("flight.origin")
            .agg(count("*"), count("flight.dep_delay"), avg("flight.dep_delay"))
            .collect()
        )
    finally:
        spark.stop()
    found = {
        origin: {"flights": flights, "departures": departures, "mean_delay": mean_delay}
        for origin, flights, departures, mean_delay in rows
    }
    print("RESULT " + json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
