"""Read a topic as a Spark DataFrame: orders and revenue by tag.

    rocketrio-broker cluster --listen 127.0.0.1:9876 --data /tmp/rocketrio &
    python examples/produce.py
    python examples/spark_batch.py

The name server is 127.0.0.1:9876, or what NAMESRV_ADDR says. Needs `pip install '.[spark]'` and Java 17 or later.
"""

import os
import sys

# Spark starts its workers with the `python3` on PATH unless a setting says which interpreter has the packages.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, count, from_json
from pyspark.sql.functions import sum as total

NAME_SERVER = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")


def main() -> None:
    spark = SparkSession.builder.master("local[2]").appName("orders").getOrCreate()
    orders = (
        spark.read.format("rocketmq")
        .option("nameServer", NAME_SERVER)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("columns", "tags,body")  # What is not asked for is neither decoded nor copied.
        .load()
        .select("tags", from_json(col("body").cast("string"), "order INT, cents LONG").alias("o"))
    )
    by_tag = orders.groupBy("tags").agg(
        count("o.order").alias("orders"), total("o.cents").alias("cents")
    )
    for row in by_tag.orderBy("tags").collect():
        print(f"{row['tags']}: {row['orders']} orders, {row['cents'] / 100:.2f}")
    spark.stop()


if __name__ == "__main__":
    main()
