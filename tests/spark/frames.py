"""Topics as data frames, with the options that a test gives."""

from collections import Counter

from pyspark.sql import DataFrame, SparkSession
from tests.support.running_cluster import Running


def load_frame(
    spark: SparkSession, cluster: Running | str, subscribe: str | None = "orders", **given: str
) -> DataFrame:
    """Load a topic of a cluster, or at the address of its name server; none where an option chooses it."""
    way = {} if subscribe is None else {"subscribe": subscribe}
    server = cluster if isinstance(cluster, str) else cluster.name_server
    options = {"nameServer": server, **way, **given}
    return spark.read.format("rocketmq").options(**options).load()


def queue_counts(frame: DataFrame) -> dict[int, int]:
    """Return how many rows each queue has."""
    return Counter(row.queue_id for row in frame.select("queue_id").collect())
