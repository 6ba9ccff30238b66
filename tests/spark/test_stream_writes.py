"""`df.writeStream`: a topic enriched into another, restarts that repeat rows, and what drops these."""

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.spark.frames import load_frame
from tests.spark.limits import limited
from tests.support.running_cluster import (
    Running,
    cluster_fixture,
    full_topics,
)

from rocketrio.spark.repeats import drop_repeated_rows
from rocketrio.spark.streaming.reader import HAS_LIMITS

pytestmark = [pytest.mark.spark, pytest.mark.slow]

QUEUES, COUNT = 2, 300


cluster = cluster_fixture(full_topics(orders=(QUEUES, COUNT)))


def orders(spark: SparkSession, cluster: Running, topic: str = "orders") -> DataFrame:
    reader = spark.readStream.format("rocketmq").option("nameServer", cluster.name_server)
    return (
        reader.option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .options(**limited(maxOffsetsPerTrigger="250"))
        .load()
    )


def start(
    frame: DataFrame, cluster: Running, topic: str, checkpoint: Path, mode: str = "append"
) -> StreamingQuery:
    return (
        frame.writeStream.format("rocketmq")
        .option("nameServer", cluster.name_server)
        .option("topic", topic)
        .option("dedupProperties", "true")
        .option("checkpointLocation", str(checkpoint))
        .queryName(f"to-{topic}")
        .outputMode(mode)
        .trigger(availableNow=True)
        .start()
    )


def finish(query: StreamingQuery) -> None:
    assert query.awaitTermination(240)


def bodies(frame: DataFrame) -> Counter[str]:
    return Counter(row.body for row in frame.selectExpr("cast(body AS string) AS body").collect())


ENRICHED = ("concat(cast(body AS string), '!') AS body", "keys", "tags", "properties")
EXPECTED = Counter(f"{q}/{n}!" for q in range(QUEUES) for n in range(COUNT))


def test_a_restart_repeats_rows_that_can_be_known(
    spark: SparkSession, cluster: Running, tmp_path: Path
) -> None:
    enriched = orders(spark, cluster).selectExpr(*ENRICHED)
    finish(start(enriched, cluster, "enriched", tmp_path))
    once = load_frame(spark, cluster, "enriched")
    assert bodies(once) == EXPECTED
    by_batch = {row.batch: row["count"] for row in once.groupBy("properties.SPARK_BATCH").count()
                .withColumnRenamed("SPARK_BATCH", "batch").collect()}  # fmt: skip
    last = max(by_batch, key=int)
    assert len(by_batch) >= (3 if HAS_LIMITS else 1)
    # The driver died when the rows of its last batch were written and the commit was not.
    (tmp_path / "commits" / last).unlink()
    for checksum in (tmp_path / "commits").glob(f".{last}.crc"):
        checksum.unlink()
    finish(start(enriched, cluster, "enriched", tmp_path))
    twice = load_frame(spark, cluster, "enriched")
    assert twice.count() == len(EXPECTED) + by_batch[last]
    assert bodies(twice.transform(drop_repeated_rows)) == EXPECTED

    dropped = drop_repeated_rows(orders(spark, cluster, "enriched"), within="1 hour")
    query = (
        dropped.writeStream.format("parquet")
        .option("path", str(tmp_path / "table"))
        .option("checkpointLocation", str(tmp_path / "again"))
        .trigger(availableNow=True)
        .start()
    )
    finish(query)
    assert bodies(spark.read.parquet(str(tmp_path / "table"))) == EXPECTED


def test_foreach_batch_writes_repeats_under_a_given_id(
    spark: SparkSession, cluster: Running, tmp_path: Path
) -> None:
    def write(frame: DataFrame, batch_id: int) -> None:
        out = frame.selectExpr("body").write.format("rocketmq").mode("append")
        out = out.option("nameServer", cluster.name_server).option("topic", "each")
        out = out.option("dedupProperties", "true").option("dedupId", "each")
        out.save()
        out.save()

    query = (
        orders(spark, cluster)
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    finish(query)
    assert load_frame(spark, cluster, "each").count() == 2 * QUEUES * COUNT
    assert (
        load_frame(spark, cluster, "each").transform(drop_repeated_rows).count() == QUEUES * COUNT
    )


def test_rows_that_cannot_be_written_end_the_query(
    spark: SparkSession, cluster: Running, tmp_path: Path
) -> None:
    counts = orders(spark, cluster).groupBy("tags").count().selectExpr("tags AS body")
    for number, (frame, mode, said) in enumerate(
        [
            (counts, "complete", "outputMode complete: a topic's messages cannot be replaced"),
            (orders(spark, cluster).selectExpr("queue_id AS body"), "append", "ROCKETMQ_SCHEMA"),
            (orders(spark, cluster).selectExpr("cast(null AS string) AS body"), "append", "ROCKETMQ_ROW"),
        ]
    ):  # fmt: skip
        query = start(frame, cluster, "wrong", tmp_path / str(number), mode)
        with pytest.raises(Exception, match=said):
            query.awaitTermination(240)
