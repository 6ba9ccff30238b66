"""Conditions of queries narrow what is read, and never what they count, in a real Spark session."""

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, datasource
from tests.spark.chosen_topics import load_twins
from tests.spark.frames import load_frame, queue_counts
from tests.support.running_cluster import Running, cluster_fixture, full_topics

from rocketrio.spark import from_rocketmq
from rocketrio.spark.errors import OptionError

pytestmark = [pytest.mark.spark, pytest.mark.slow]
QUEUES, COUNT = 3, 400
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


cluster = cluster_fixture(full_topics(orders=(QUEUES, COUNT)), load_twins)


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[SparkSession]:
    if not hasattr(datasource, "EqualTo"):
        pytest.skip("PySpark 4.0 pushes nothing")
    spark.conf.set(PUSHDOWN, "true")
    yield spark
    spark.conf.unset(PUSHDOWN)


# Each of these loads again, as docs/spark.md says.
def test_pushed_conditions_read_only_the_rows_they_select(
    pushing: SparkSession, cluster: Running
) -> None:
    frame = load_frame(pushing, cluster, filterPushdown="true", maxRecordsPerPartition="10")
    some = frame.where(
        "queue_id = 1 AND queue_offset >= 100 AND queue_offset < 120 AND tags = 'even'"
    )
    assert {row.queue_offset for row in some.collect()} == set(range(100, 120, 2))
    assert some.rdd.getNumPartitions() == 2  # of 120


def test_a_frame_with_a_condition_is_not_narrowed_for_a_query_without_one(
    pushing: SparkSession, cluster: Running
) -> None:
    frame = load_frame(pushing, cluster, filterPushdown="true")
    assert frame.count() == QUEUES * COUNT
    frame = load_frame(pushing, cluster, filterPushdown="true")
    assert frame.where("queue_id = 1").count() == COUNT
    assert frame.where("queue_id = 2 AND queue_offset < 7").count() == 7
    # Of this query Python hears nothing: Spark gives it the last plan.
    with pytest.raises(
        Exception, match=r"\[ROCKETMQ_OPTION\] filterPushdown=true: .* or load the DataFrame again"
    ):
        frame.count()
    assert frame.where("queue_id < 2").count() == 2 * COUNT


def test_one_frame_with_conditions_answers_all_queries(
    pushing: SparkSession, cluster: Running
) -> None:
    def load() -> DataFrame:
        return from_rocketmq(
            pushing, "orders", name_servers=cluster.name_server,
            columns=["queue_id", "queue_offset"], filter_pushdown=True, min_records_per_partition=1,
        )  # fmt: skip

    frame = load()
    one, few = frame.where("queue_id = 1"), frame.where("queue_id = 2 AND queue_offset < 10")
    one.explain()  # planned here, and read after others have been
    assert few.count() == 10
    assert len(one.collect()) == len(one.collect()) == COUNT
    assert one.union(few).count() == COUNT + 10
    assert one.join(few, "queue_offset").count() == 10
    assert frame.count() == QUEUES * COUNT
    assert load().where("queue_id = 1").rdd.getNumPartitions() == 1  # of 3


def test_a_frame_for_pushing_has_the_column_of_its_condition(
    pushing: SparkSession, cluster: Running
) -> None:
    given: dict[str, Any] = {"name_servers": cluster.name_server, "filter_pushdown": True}
    with pytest.raises(OptionError, match="needs the column queue_offset"):
        from_rocketmq(pushing, "orders", columns=["queue_id"], **given)
    frame = from_rocketmq(
        pushing, "orders", schema_mode="kafka", on_corrupt_message="null", **given
    )
    assert frame.where("partition = 2").count() == COUNT
    assert frame.count() == QUEUES * COUNT


@pytest.mark.parametrize(
    ("topic", "condition", "counts"),
    [
        ("orders", "topic = 'bills'", {}),
        ("orders", "length(body) > 100 OR queue_id = 1", {1: COUNT}),
        ("timed", "store_time >= timestamp_millis({middle_ms})", {0: 50}),
    ],
)
def test_rows_are_those_that_meet_the_condition(
    pushing: SparkSession,
    cluster: Running,
    middle_ms: int,
    topic: str,
    condition: str,
    counts: dict[int, int],
) -> None:
    frame = load_frame(pushing, cluster, topic, filterPushdown="true")
    assert queue_counts(frame.where(condition.format(middle_ms=middle_ms))) == counts


def test_conditions_that_push_tags_of_one_hash(pushing: SparkSession, cluster: Running) -> None:
    for condition, count in [("tags = 'Aa'", 10), ("tags IN ('Aa', 'BB')", 20)]:
        twins = load_frame(pushing, cluster, "twins", filterPushdown="true", columns="tags")
        assert twins.where(condition).count() == count


def test_pushdown_of_kafkas_columns(pushing: SparkSession, cluster: Running) -> None:
    frame = load_frame(pushing, cluster, filterPushdown="true", schemaMode="kafka")
    assert frame.where("partition = 2 AND offset > 390").count() == 9


def test_without_the_option_the_conf_of_pushdown_changes_nothing(
    pushing: SparkSession, cluster: Running
) -> None:
    assert load_frame(pushing, cluster).where("queue_id = 1 AND queue_offset < 10").count() == 10


def test_with_the_option_a_missing_conf_is_named(spark: SparkSession, cluster: Running) -> None:
    frame = load_frame(spark, cluster, filterPushdown="true")
    with pytest.raises(Exception, match=rf"{PUSHDOWN}|needs PySpark 4\.1"):
        frame.where("queue_id = 1").count()
