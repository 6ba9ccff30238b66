"""Copy a topic to Parquet with Spark, read from the slave, while the master goes on taking writes.

    rocketrio-broker cluster --listen 127.0.0.1:9876 --data /tmp/rocketrio --slaves 1 &
    rocketrio produce orders --count 500000
    rocketrio produce orders --count 500000 &           # the master is busy meanwhile
    python examples/spark_backfill.py orders /tmp/orders

The name server is 127.0.0.1:9876, or what NAMESRV_ADDR says. Needs `pip install '.[spark]'` and Java 17 or later.

What is copied ends where the topic ended when the job was planned; what comes later is for the next run. At the end
the brokers say how much each of them gave: what the slave did not have yet, the master did.
"""

import os
import sys

# Spark starts its workers with the `python3` on PATH unless a setting says which interpreter has the packages.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

import trio
from pyspark.sql import SparkSession
from pyspark.sql.functions import to_date

from rocketrio import open_admin
from rocketrio.admin import Served
from rocketrio.spark import from_rocketmq

GROUP = "backfill"
"""Named in pulls, so that brokers count what was read for this; nothing is committed for it."""
A_SAMPLE = 11.0
"""Seconds: brokers count in samples of ten."""


async def shares(topic: str) -> list[Served]:
    await trio.sleep(A_SAMPLE)
    async with open_admin() as admin:
        return await admin.served(topic, GROUP)


def main(topic: str, folder: str) -> None:
    spark = SparkSession.builder.master("local[2]").appName("backfill").getOrCreate()
    messages = from_rocketmq(
        spark,
        topic,
        read_from="slave",
        consumer_group=GROUP,
        columns=["queue_id", "queue_offset", "keys", "tags", "body", "store_time"],
        max_records_per_partition=1_000_000,  # What a task writes into one file, at most.
    )
    (
        messages.withColumn("day", to_date("store_time"))
        .write.mode("overwrite")
        .partitionBy("day")
        .parquet(folder)
    )
    print(f"copied {spark.read.parquet(folder).count()} messages of {topic} to {folder}")
    spark.stop()
    for share in trio.run(shares, topic):
        role = "the slave" if share.broker_id else "the master"
        print(f"{role} at {share.address} gave {share.messages} messages, {share.bytes} bytes")


if __name__ == "__main__":
    match sys.argv[1:]:
        case [topic, folder] if not topic.startswith("-"):
            main(topic, folder)
        case _:
            sys.exit(__doc__)
