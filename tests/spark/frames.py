"""Topics as data frames, with the options that a test gives."""

from collections import Counter

from pyspark.sql import DataFrame, SparkSession


def load_frame(
    spark: SparkSession, name_server: str, subscribe: str | None, **given: str
) -> DataFrame:
    way = {} if subscribe is None else {"subscribe": subscribe}
    options = {"nameServer": name_server, **way, **given}
    return spark.read.format("rocketmq").options(**options).load()


def queue_counts(frame: DataFrame) -> dict[int, int]:
    """Return how many rows each queue has."""
    return Counter(row.queue_id for row in frame.select("queue_id").collect())
