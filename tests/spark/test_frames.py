"""`from_rocketmq` in a real session: what it reads, and what it says of arguments before Spark is asked."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, LongType, StructType
from tests.spark.limits import limited
from tests.support.running_cluster import Running, cluster_fixture, full_topics

from rocketrio.spark import from_rocketmq, stream_from_rocketmq
from rocketrio.spark.errors import OptionError

pytestmark = [pytest.mark.spark, pytest.mark.slow]
COUNT = 50


cluster = cluster_fixture(full_topics(orders=(2, COUNT), returns=(2, COUNT)))


def test_topics_are_a_frame(spark: SparkSession, cluster: Running) -> None:
    frame = from_rocketmq(
        spark,
        ["orders", "returns"],
        name_servers=cluster.name_server,
        columns=["topic", "body"],
        starting_offsets="earliest",
        min_partitions=4,
    )
    counts = {row.topic: row["count"] for row in frame.groupBy("topic").count().collect()}
    assert frame.columns == ["topic", "body"]
    assert counts == {"orders": 2 * COUNT, "returns": 2 * COUNT}


@pytest.mark.parametrize(
    "schema",
    [
        "queue_offset long, body binary",
        StructType().add("queue_offset", LongType()).add("body", BinaryType()),
    ],
)
def test_offsets_are_a_mapping_and_a_schema_chooses_columns(
    spark: SparkSession, cluster: Running, schema: StructType | str
) -> None:
    frame = from_rocketmq(
        spark,
        assign={"orders": {"broker-a": [1]}},
        name_servers=[cluster.name_server],
        schema=schema,
        starting_offsets={"orders": {"broker-a": {1: 3}}},
        ending_offsets={"orders": {"broker-a": {1: 5}}},
    )
    rows = frame.orderBy("queue_offset").collect()
    assert [(row.queue_offset, bytes(row.body)) for row in rows] == [(3, b"1/3"), (4, b"1/4")]


def test_topics_are_a_stream(spark: SparkSession, cluster: Running, tmp_path: Path) -> None:
    frame = stream_from_rocketmq(
        spark,
        "orders",
        name_servers=cluster.name_server,
        columns=["queue_id", "body"],
        starting_offsets={"orders": {"broker-a": {0: 10, 1: -2}}},
        commit_interval=0.5,
        consumer_group="board",
        **limited(max_offsets_per_trigger=40),
    )
    assert frame.isStreaming
    query = (
        frame.writeStream.format("parquet")
        .option("path", str(tmp_path / "rows"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(240), query.status
    rows = spark.read.parquet(str(tmp_path / "rows")).groupBy("queue_id").count().collect()
    assert {row.queue_id: row["count"] for row in rows} == {0: COUNT - 10, 1: COUNT}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"pull_timeout": "3s"}, "pull_timeout='3s' must be a number of seconds"),
        ({"pull_timeout": 0.0}, "pull_timeout='0' is not a duration of at least 1 ms"),
        ({"min_partitions": 5, "max_partitions": 3}, "min_partitions=5 is more than max_partitions=3"),
        ({"assign": {"orders": {"a": [0]}}}, "give one of topics, subscribe_pattern and assign"),
        ({"starting_offsets": "frist"}, "starting_offsets='frist' must be one of"),
        ({"name_servers": "here"}, "name_servers='here' is not host:port"),
        ({"columns": ["bdy"]}, "columns: 'bdy' is not a column; did you mean body?"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused_at_once_and_by_name(
    spark: SparkSession, arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(OptionError) as caught:
        from_rocketmq(spark, "orders", **arguments)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("read", "arguments", "said"),
    [
        (
            from_rocketmq,
            {"commit_interval": 1.0},
            "commit_interval is an option of a streaming read",
        ),
        (
            stream_from_rocketmq,
            {"ending_offsets": "latest"},
            "ending_offsets is an option of a batch",
        ),
        (stream_from_rocketmq, {"max_trigger_delay": 5}, "give min_offsets_per_trigger"),
        (
            stream_from_rocketmq,
            {"min_offsets_per_trigger": 5, "max_offsets_per_trigger": 3},
            "min_offsets_per_trigger=5 is more than max_offsets_per_trigger=3",
        ),
    ],
)
def test_arguments_of_the_other_use_are_refused_as_such(
    spark: SparkSession, read: Callable[..., object], arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(OptionError) as caught:
        read(spark, "orders", **arguments)
    assert said in str(caught.value)
