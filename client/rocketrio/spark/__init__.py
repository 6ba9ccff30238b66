"""Reads RocketMQ topics as Spark DataFrames: `from_rocketmq(spark, "orders")` or `spark.read.format("rocketmq")`."""

from rocketrio.spark.frames import from_rocketmq, stream_from_rocketmq
from rocketrio.spark.registration import register
from rocketrio.spark.repeats import drop_repeated_rows, drop_repeats, handle_once
from rocketrio.spark.streaming.progress import lag_by_queue

__all__ = [
    "drop_repeated_rows",
    "drop_repeats",
    "from_rocketmq",
    "handle_once",
    "lag_by_queue",
    "register",
    "stream_from_rocketmq",
]
