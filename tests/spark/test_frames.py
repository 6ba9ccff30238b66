"""`from_rocketmq` in a real session: what it reads, and what it says of arguments before Spark is asked."""

from collections.abc import Iterator
from typing import Any

import pytest
import trio
from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, LongType, StructType
from tests.spark.load import (
    Running,
    channel_pool,
    create_topic,
    load_queue,
    numbered,
    running_cluster,
)

from rocketrio.spark import from_rocketmq
from rocketrio.spark.errors import OptionError

pytestmark = [pytest.mark.spark, pytest.mark.slow]
COUNT = 50


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:

        async def load() -> None:
            async with channel_pool() as pool:
                for topic in ("orders", "returns"):
                    await create_topic(pool, running.master, topic, 2)
                    for queue_id in range(2):
                        messages = numbered(queue_id, COUNT)
                        await load_queue(pool, running.master, topic, queue_id, messages)

        trio.run(load)
        yield running


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
        "queueOffset long, body binary",
        StructType().add("queueOffset", LongType()).add("body", BinaryType()),
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
    rows = frame.orderBy("queueOffset").collect()
    assert [(row.queueOffset, bytes(row.body)) for row in rows] == [(3, b"1/3"), (4, b"1/4")]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"pull_timeout": "3s"}, "pull_timeout='3s' is not a number of seconds"),
        ({"pull_timeout": 0.0}, "pull_timeout='0' is not a whole number from 1"),
        ({"min_partitions": 5, "max_partitions": 3}, "min_partitions=5 is more than max_partitions=3"),
        ({"assign": {"orders": {"a": [0]}}}, "give one of topics, subscribe_pattern and assign"),
        ({"starting_offsets": "frist"}, "starting_offsets='frist' is none of"),
        ({"name_servers": "here"}, "name_servers='here' is not host:port"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused_at_once_and_by_name(
    spark: SparkSession, arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(OptionError) as caught:
        from_rocketmq(spark, "orders", **arguments)
    assert said in str(caught.value)
