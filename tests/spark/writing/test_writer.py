"""`df.write.format("rocketmq")` in a real Spark session, to a cluster in a process of its own."""

from collections import defaultdict
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import spark_partition_id
from tests.spark.frames import load_frame
from tests.support.running_cluster import Running, cluster_fixture, full_topics
from tests.support.waiting import wait_until

from rocketrio.producing.publish_route import queue_for_key
from rocketrio.spark.errors import SchemaError
from rocketrio.spark.repeats import drop_repeated_rows
from rocketrio_protocol.message import MessageQueue

pytestmark = [pytest.mark.spark, pytest.mark.slow]

QUEUES = 4


cluster = cluster_fixture(
    full_topics(**dict.fromkeys(("columns", "keyed", "aimed", "numbered", "kafka"), (QUEUES, 0)))
)


def write(frame: DataFrame, cluster: Running, topic: str | None, **given: str) -> None:
    options = {"nameServer": cluster.name_server, **({"topic": topic} if topic else {}), **given}
    frame.write.format("rocketmq").options(**options).mode("append").save()


def rows_of(spark: SparkSession, cluster: Running, topic: str, **given: str) -> list[Row]:
    return load_frame(spark, cluster, topic, **given).orderBy("queue_id", "queue_offset").collect()


def test_writer_stores_every_column(spark: SparkSession, cluster: Running) -> None:
    frame = spark.range(1000).selectExpr(
        "concat('body-', id) AS body",
        "concat('key-', id) AS keys",
        "if(id % 2 = 0, 'even', null) AS tags",
        "map('number', cast(id AS string), 'empty', '', 'KEYS', 'not this') AS properties",
        "cast(id AS int) AS flag",
        "cast(0 AS int) AS delay_level",
    )
    write(frame, cluster, "columns")
    columns = "body,keys,tags,properties,flag,unique_key"
    rows = load_frame(spark, cluster, "columns", columns=columns).collect()
    assert len({row.unique_key for row in rows}) == len(rows) == 1000
    by_flag = {row.flag: row for row in rows}
    row = by_flag[41]
    assert (bytes(row.body), row.keys, row.tags) == (b"body-41", "key-41", None)
    assert by_flag[40].tags == "even"
    own = {name: row.properties.get(name) for name in ("number", "empty", "KEYS", "SPARK_ROW")}
    assert own == {"number": "41", "empty": None, "KEYS": "key-41", "SPARK_ROW": None}


def test_each_row_may_have_its_topic_unless_the_option_says_it(
    spark: SparkSession, cluster: Running
) -> None:
    frame = spark.range(60).selectExpr("concat('t', id % 3) AS topic", "cast(id AS string) AS body")
    write(frame, cluster, None)
    for topic in range(3):
        found = sorted(int(bytes(row.body)) for row in rows_of(spark, cluster, f"t{topic}"))
        assert found == list(range(topic, 60, 3))
    write(frame, cluster, "t-all")
    assert load_frame(spark, cluster, "t-all").count() == 60


def test_a_frame_of_kafkas_shape_is_written(spark: SparkSession, cluster: Running) -> None:
    frame = spark.range(8).selectExpr(
        "'kafka' AS topic",
        "cast(concat('k', id) AS binary) AS key",
        "cast(cast(id AS string) AS binary) AS value",
        "cast(id % 4 AS int) AS partition",
        "id AS offset",
        "current_timestamp() AS timestamp",
        "0 AS timestampType",
        "array(named_struct('key', 'h', 'value', cast('v' AS binary))) AS headers",
    )
    write(frame, cluster, None)
    rows = rows_of(spark, cluster, "kafka")
    assert {(row.queue_id, row.keys, bytes(row.body)) for row in rows} == {
        (number % 4, f"k{number}", b"%d" % number) for number in range(8)
    }
    assert {row.properties["h"] for row in rows} == {"v"}
    again = load_frame(spark, cluster, "kafka", schemaMode="kafka", includeHeaders="true")
    write(again, cluster, None)
    assert len(rows_of(spark, cluster, "kafka")) == 16


def test_rows_of_a_sharding_key_keep_their_order(spark: SparkSession, cluster: Running) -> None:
    frame = (
        spark.range(0, 4000, numPartitions=2)
        .withColumn("task", spark_partition_id())
        .selectExpr(
            "concat(task, '/', id % 10) AS sharding_key",
            "concat(task, '/', id % 10) AS keys",
            "cast(id AS string) AS body",
        )
    )
    write(frame, cluster, "keyed", sendBatchBytes="2000")
    queues = [MessageQueue("keyed", "broker-a", number) for number in range(QUEUES)]
    by_key: dict[str, list[int]] = defaultdict(list)
    for row in rows_of(spark, cluster, "keyed"):
        assert queue_for_key(row.keys, queues).queue_id == row.queue_id
        by_key[row.keys].append(int(bytes(row.body)))
    assert sum(map(len, by_key.values())) == 4000
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


def test_rows_choose_their_queue(spark: SparkSession, cluster: Running) -> None:
    frame = spark.range(40).selectExpr(
        "cast(id % 4 AS int) AS queue_id", "'broker-a' AS broker_name", "cast(id AS string) AS body"
    )
    write(frame, cluster, "aimed")
    write(frame.drop("broker_name").withColumnRenamed("queue_id", "partition"), cluster, "numbered")
    for topic in ("aimed", "numbered"):
        for row in rows_of(spark, cluster, topic):
            assert int(bytes(row.body)) % 4 == row.queue_id


def test_a_delayed_row_comes_later(spark: SparkSession, cluster: Running) -> None:
    frame = spark.createDataFrame([("later", 1), ("now", 0)], "body string, delay_level int")
    write(frame.coalesce(1), cluster, "delayed")
    wait_until(lambda: load_frame(spark, cluster, "delayed").count() == 2, "stored")
    born = "cast(born_time AS double) AS born", "cast(store_time AS double) AS stored"
    found = load_frame(spark, cluster, "delayed").selectExpr("cast(body AS string) AS body", *born)
    waited = {row.body: row.stored - row.born for row in found.collect()}
    assert waited["later"] >= 0.9
    assert waited["now"] < waited["later"]


def test_what_was_read_is_written_back_as_it_is(spark: SparkSession, cluster: Running) -> None:
    frame = spark.range(100).selectExpr(
        "cast(id AS string) AS body", "concat('k', id) AS keys", "'red' AS tags",
        "map('n', cast(id AS string)) AS properties",
    )  # fmt: skip
    write(frame, cluster, "original")
    write(load_frame(spark, cluster, "original").drop("queue_id", "broker_name"), cluster, "copy")
    columns = ["body", "keys", "tags", "properties['n']"]
    found = [
        sorted(load_frame(spark, cluster, topic).selectExpr(*columns).collect())
        for topic in ("original", "copy")
    ]
    assert found[0] == found[1]
    assert len(found[0]) == 100


def test_a_batch_that_is_run_again_under_its_id_repeats_itself(
    spark: SparkSession, cluster: Running
) -> None:
    frame = spark.range(0, 500, numPartitions=2).selectExpr("cast(id AS string) AS body")
    for job in ("monday", "monday", "tuesday"):
        write(frame, cluster, "again", dedupProperties="true", dedupId=job)
    write(frame, cluster, "again", dedupProperties="true")
    write(frame, cluster, "again", dedupProperties="true")
    write(frame.limit(5), cluster, "again")
    stored = load_frame(spark, cluster, "again")
    assert stored.count() == 2505
    once = stored.transform(drop_repeated_rows)
    assert once.columns == stored.columns
    assert once.count() == 2005  # Without an id each run is a job of its own.


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ("cast(NULL AS STRING) AS properties", "as a map, not with properties=string"),
        ("1 AS flag", "read the columns .*properties too"),
    ],
)
def test_repeats_are_not_known_without_a_map_of_properties(
    spark: SparkSession, column: str, said: str
) -> None:
    place = ("topic", "broker_name", "queue_id", "queue_offset")
    frame = spark.range(1).selectExpr(*(f"id AS {name}" for name in place), column)
    with pytest.raises(SchemaError, match=said):
        frame.transform(drop_repeated_rows)


def test_an_offset_that_is_used_again_is_another_message(spark: SparkSession) -> None:
    """A log became shorter, and what was stored later got the offsets of what is gone."""
    frame = spark.sql(
        "SELECT 'orders' AS topic, 'a' AS broker_name, 0 AS queue_id, 7L AS queue_offset, map('k', 'v') AS properties,"
        " timestamp_seconds(id) AS store_time FROM range(2)"
    )
    assert frame.transform(drop_repeated_rows).count() == 2


def test_sql_statement_writes_rows(spark: SparkSession, cluster: Running) -> None:
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW source AS SELECT cast(id AS string) AS body FROM range(7)"
    )
    write(spark.table("source"), cluster, "sql", nameServer=cluster.name_server)
    assert load_frame(spark, cluster, "sql").count() == 7


FURTHER_ERRORS = [
    (["'x' AS body", "id AS price"], {}, r"\[ROCKETMQ_SCHEMA\] column 'price' is not a field of a message"),
    (["'x' AS body"], {"startingOffsets": "latest"}, "is an option of a read"),
    (["'x' AS body"], {"secretKey": "s"}, "secretKey needs accessKey too"),
    (["repeat('x', 2000) AS body"], {"maxMessageBytes": "1999"}, "its body has 2000 bytes; maxMessageBytes=1999"),
    (["'x' AS body", "cast(19 AS int) AS delay_level"], {}, "its delay_level is 19, none of 0 to 18"),
    (["'x' AS body", "cast(9 AS int) AS partition"], {}, "names partition 9 of topic wrong, which has"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("expressions", "given", "said"),
    [
        (["id AS body"], {}, r"\[ROCKETMQ_SCHEMA\] column body must be binary or string, not bigint"),
        (["'x' AS body"], {"maxInFligth": "3"}, "unknown option 'maxinfligth'; did you mean maxInFlight"),
        (["if(id = 3, null, 'x') AS body"], {}, r"\[ROCKETMQ_ROW\] row \d+ of task \d+ .*its body is null"),
        (["'x' AS body"], {"nameServer": "127.0.0.1:1", "sendRetries": "0"}, r"\[ROCKETMQ_BROKER_UNREACHABLE\]"),
        (["'x' AS body"], {"topic": "nowhere", "autoCreateTopic": "false"}, r"\[ROCKETMQ_TOPIC_NOT_FOUND\].*nowhere"),
        *(pytest.param(*each, marks=pytest.mark.long) for each in FURTHER_ERRORS),
    ],
)  # fmt: skip
def test_errors_reach_the_user_with_their_code(
    spark: SparkSession, cluster: Running, expressions: list[str], given: dict[str, Any], said: str
) -> None:
    frame = spark.range(5).selectExpr(*expressions)
    with pytest.raises(Exception, match=said):
        write(frame, cluster, given.pop("topic", "wrong"), **given)


def test_the_mode_append_must_be_given(spark: SparkSession, cluster: Running) -> None:
    frame = spark.range(5).selectExpr("cast(id AS string) AS body")
    options = {"nameServer": cluster.name_server, "topic": "modes"}
    writer = frame.write.format("rocketmq").options(**options)
    with pytest.raises(Exception, match='cannot be written in the "ErrorIfExists" mode'):
        writer.save()
    with pytest.raises(Exception, match=r"mode overwrite: .*give .mode\('append'\)"):
        writer.mode("overwrite").save()
    with pytest.raises(
        Exception, match=r"path=.*: RocketMQ topics are not paths; call load\(\) or save\(\)"
    ):
        frame.write.format("rocketmq").options(**options).mode("append").save("modes")
