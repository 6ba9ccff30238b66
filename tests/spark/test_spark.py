"""The format `rocketmq` in a real Spark session, against a cluster in a process of its own."""

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, count, length, spark_partition_id
from pyspark.sql.functions import sum as sum_of
from tests.spark.frames import load_frame
from tests.support.running_cluster import (
    Running,
    cluster_fixture,
    full_topics,
    numbered,
)

from rocketrio.spark import register

pytestmark = [pytest.mark.spark, pytest.mark.slow]
QUEUES, COUNT = 4, 1500


cluster = cluster_fixture(full_topics(orders=(QUEUES, COUNT), empty=(2, 0)))


def test_a_topic_is_a_data_frame(spark: SparkSession, cluster: Running) -> None:
    rows = load_frame(spark, cluster).collect()
    assert len(rows) == QUEUES * COUNT
    by_place = {(row.queue_id, row.queue_offset): row for row in rows}
    row = by_place[3, 1234]
    assert (row.topic, row.broker_name, row.keys, row.tags) == (
        "orders",
        "broker-a",
        "key-3-1234",
        "even",
    )
    assert bytes(row.body) == b"3/1234"
    assert row.properties["number"] == "1234"
    assert row.properties["UNIQ_KEY"] == "U3-1234"


def test_times_are_instants_whatever_the_sessions_zone(
    spark: SparkSession, cluster: Running
) -> None:
    frame = load_frame(spark, cluster, columns="born_time,queue_offset")
    row = frame.where("queue_offset = 0").select(col("born_time").cast("long").alias("s")).first()
    assert row is not None
    assert row.s == 1_700_000_000


def test_ranges_are_split_and_only_wanted_columns_made(
    spark: SparkSession, cluster: Running
) -> None:
    frame = load_frame(spark, cluster, columns="tags,body", minPartitions="7", batchRows="100")
    assert frame.columns == ["tags", "body"]
    assert frame.select(spark_partition_id()).distinct().count() == 7
    found = {row.tags: row.n for row in frame.groupBy("tags").agg(count("*").alias("n")).collect()}
    assert found == {"even": QUEUES * COUNT // 2, "odd": QUEUES * COUNT // 2}


def test_a_users_schema_chooses_the_columns(spark: SparkSession, cluster: Running) -> None:
    reader = spark.read.format("rocketmq").option("nameServer", cluster.name_server)
    frame = reader.option("subscribe", "orders").schema("body binary, queue_offset long").load()
    total = frame.agg(sum_of(length("body")), sum_of("queue_offset")).first()
    assert total is not None
    assert total[0] == sum(len(m.body) for q in range(QUEUES) for m in numbered(q, COUNT))
    assert total[1] == QUEUES * sum(range(COUNT))


def test_offsets_bound_the_read(spark: SparkSession, cluster: Running) -> None:
    frame = load_frame(
        spark, cluster,
        startingOffsets='{"orders":{"broker-a":{"0":10,"1":-2,"2":-1,"3":1400}}}',
        endingOffsets='{"orders":{"broker-a":{"0":20,"1":5,"2":-1,"3":-1}}}',
    )  # fmt: skip
    counts = {row.queue_id: row["count"] for row in frame.groupBy("queue_id").count().collect()}
    assert counts == {0: 10, 1: 5, 3: 100}


def test_an_empty_topic_is_an_empty_frame(spark: SparkSession, cluster: Running) -> None:
    assert load_frame(spark, cluster, "empty").count() == 0


def test_a_limit_ends_the_read_early(spark: SparkSession, cluster: Running) -> None:
    assert len(load_frame(spark, cluster, batchRows="10").limit(3).collect()) == 3


def test_sql_knows_the_format(spark: SparkSession, cluster: Running) -> None:
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW orders USING rocketmq"
        f" OPTIONS (nameServer '{cluster.name_server}', subscribe 'orders', columns 'queue_id')"
    )
    row = spark.sql("SELECT count(*) AS n FROM orders").first()
    assert row is not None
    assert row.n == QUEUES * COUNT


def test_create_table_is_refused_with_the_statement_to_use(
    spark: SparkSession, cluster: Running
) -> None:
    options = f"nameServer '{cluster.name_server}', subscribe 'orders'"
    with pytest.raises(Exception, match=r"\[ROCKETMQ_OPTION\] CREATE TABLE: .* TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE orders_table USING rocketmq OPTIONS ({options})")


def test_registering_checks_the_workers_python(spark: SparkSession, cluster: Running) -> None:
    register(spark)
    assert load_frame(spark, cluster, columns="queue_id").count() == QUEUES * COUNT


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"startingOffset": "latest"},
            r"\[ROCKETMQ_OPTION\] unknown option 'startingoffset'; did you mean",
        ),
        ({"columns": "offsets"}, r"\[ROCKETMQ_OPTION\] columns: 'offsets' is not a column"),
        ({"subscribe": "nothing"}, r"\[ROCKETMQ_TOPIC_NOT_FOUND\].*nothing"),
        (
            {"endingOffsets": '{"orders":{"broker-a":{"0":9999,"1":0,"2":0,"3":0}}}'},
            "ROCKETMQ_OFFSET_OUT_OF_RANGE",
        ),
        ({"nameServer": "127.0.0.1:1"}, r"\[ROCKETMQ_BROKER_UNREACHABLE\].*127.0.0.1:1"),
    ],
)
def test_errors_reach_the_user_with_their_code(
    spark: SparkSession, cluster: Running, given: dict[str, str], said: str
) -> None:
    options: dict[str, Any] = {"nameServer": cluster.name_server, "subscribe": "orders", **given}
    with pytest.raises(Exception, match=said):
        spark.read.format("rocketmq").options(**options).load().count()
