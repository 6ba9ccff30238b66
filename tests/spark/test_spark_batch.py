"""Every option of a batch read in a real Spark session, against a real broker: what it does to the rows."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import spark_partition_id
from pyspark.sql.types import StructType
from tests.spark.chosen_topics import load_twins
from tests.spark.frames import load_frame, queue_counts
from tests.support.caller import Caller, accepted
from tests.support.running_cluster import (
    Running,
    cluster_fixture,
    full_topics,
    load_queue,
    numbered,
)

from rocketrio_protocol.record.layout import SysFlag
from rocketrio_protocol.remoting.pool import ChannelPool

pytestmark = [pytest.mark.spark, pytest.mark.slow]
QUEUES, COUNT = 3, 400


async def _spoil(pool: ChannelPool, running: Running) -> None:
    """Put a damaged message between others, and let a group commit."""
    caller, flag = Caller(pool), int(SysFlag.COMPRESSED)
    accepted(await caller.send(running.master, b"no zlib", topic="broken", sys_flag=flag))
    await load_queue(pool, running.master, "broken", 0, numbered(0, 5))
    accepted(await caller.commit(running.master, 300, queue_id=1))


cluster = cluster_fixture(
    full_topics(orders=(QUEUES, COUNT), bills=(1, 10), broken=(1, 5)),
    load_twins,
    _spoil,
    settings=("enable_property_filter=true",),
)


def _table(**queues: int) -> str:
    return json.dumps({"orders": {"broker-a": {name[1:]: at for name, at in queues.items()}}})


@pytest.mark.parametrize(
    ("given", "counts"),
    [
        ({"startingOffsets": "latest"}, {}),
        ({"startingOffsets": "group", "consumerGroup": "billing"}, {0: COUNT, 1: 100, 2: COUNT}),
        (
            {
                "startingOffsets": "group",
                "consumerGroup": "billing",
                "startingOffsetsFallback": "latest",
            },
            {1: 100},
        ),
        (
            {
                "startingOffsets": _table(q0=-2, q1=-1, q2=390),
                "endingOffsets": _table(q0=7, q1=-1, q2=-1),
            },
            {0: 7, 2: 10},
        ),
    ],
)
def test_batch_reads_between_offsets(
    spark: SparkSession, cluster: Running, given: dict[str, str], counts: dict[int, int]
) -> None:
    assert queue_counts(load_frame(spark, cluster, columns="queue_id", **given)) == counts


def test_batch_reads_between_times(spark: SparkSession, cluster: Running, middle_ms: int) -> None:
    latest = {"startingOffsetsByTimestampStrategy": "latest"}

    def counts(**given: str) -> dict[int, int]:
        return queue_counts(load_frame(spark, cluster, "timed", columns="queue_id", **given))

    def times(first: int, second: int) -> str:
        return json.dumps({"timed": {"broker-a": {"0": first, "1": second}}})

    assert counts(startingTimestamp=str(middle_ms), **latest) == {0: 50}
    assert counts(endingTimestamp=str(middle_ms)) == {0: 50, 1: 50}
    assert counts(startingOffsetsByTimestamp=times(middle_ms, 0)) == {0: 50, 1: 50}
    assert counts(endingOffsetsByTimestamp=times(0, middle_ms)) == {1: 50}
    with pytest.raises(Exception, match=r"\[ROCKETMQ_OPTION\] no message of timed@broker-a:1"):
        counts(startingTimestamp=str(middle_ms))


@pytest.mark.parametrize(
    ("given", "topics"),
    [
        ({"Subscribe": "orders,bills"}, {"orders": QUEUES * COUNT, "bills": 10}),
        ({"topic": "bills"}, {"bills": 10}),
        ({"subscribePattern": "orders|bil.*"}, {"orders": QUEUES * COUNT, "bills": 10}),
        ({"assign": '{"orders":{"broker-a":[2]},"bills":{"broker-a":[0]}}'}, {"orders": COUNT, "bills": 10}),
    ],
)  # fmt: skip
def test_ways_to_name_what_is_read(
    spark: SparkSession, cluster: Running, given: dict[str, str], topics: dict[str, int]
) -> None:
    frame = load_frame(spark, cluster, None, columns="topic", **given)
    assert Counter(row.topic for row in frame.collect()) == topics


def test_filters_on_the_broker(spark: SparkSession, cluster: Running) -> None:
    even = load_frame(spark, cluster, subExpression="even", columns="queue_id,tags")
    assert queue_counts(even) == dict.fromkeys(range(QUEUES), COUNT // 2)
    sql = {"subExpression": "number > 100 AND number <= 110", "subExpressionType": "SQL92"}
    assert queue_counts(load_frame(spark, cluster, columns="queue_id", **sql)) == dict.fromkeys(
        range(QUEUES), 10
    )
    assert load_frame(spark, cluster, "twins", subExpression="Aa").count() == 10
    assert load_frame(spark, cluster, subExpression="neither").count() == 0


@pytest.mark.parametrize(
    ("given", "count", "nulls"),
    [
        ({"onCorruptMessage": "skip"}, 10, 0),
        ({"onCorruptMessage": "null", "verifyCrc": "true"}, 11, 1),
        ({"decompress": "false"}, 11, 0),
    ],
)
def test_damaged_message_is_skipped_or_null_as_the_options_say(
    spark: SparkSession, cluster: Running, given: dict[str, str], count: int, nulls: int
) -> None:
    rows = load_frame(spark, cluster, "broken", columns="queue_offset,body", **given).collect()
    assert len(rows) == count
    assert [row.queue_offset for row in rows if row.body is None] == [5] * nulls


def test_damaged_message_that_is_not_tolerated_is_named(
    spark: SparkSession, cluster: Running
) -> None:
    with pytest.raises(
        Exception, match=r"\[ROCKETMQ_DECODE\].*broken@broker-a:0.*offset 5"
    ) as caught:
        load_frame(spark, cluster, "broken").collect()
    assert "onCorruptMessage" in str(caught.value)
    # Who wants no bodies is not troubled.
    assert load_frame(spark, cluster, "broken", columns="queue_offset").count() == 11


def test_columns_of_kafka(spark: SparkSession, cluster: Running) -> None:
    frame = load_frame(spark, cluster, schemaMode="kafka", includeHeaders="true")
    assert frame.columns == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
    ]  # fmt: skip
    ported = frame.selectExpr(
        "CAST(key AS STRING)", "CAST(value AS STRING)", "partition", "offset",
        "element_at(filter(headers, h -> h.key = 'number'), 1).value AS number",
    ).where("partition = 2 AND offset = 123")  # fmt: skip
    row = ported.first()
    assert row is not None
    assert (row.key, row.value, bytes(row.number)) == ("key-2-123", "2/123", b"123")


def test_forms_of_properties_and_columns_on_demand(spark: SparkSession, cluster: Running) -> None:
    columns = "queue_id,queue_offset,properties,message_id,reconsume_times,deliver_time,body_crc"
    frame = load_frame(spark, cluster, columns=columns, properties="string")
    row = frame.where("queue_id = 1 AND queue_offset = 5").first()
    assert row is not None
    assert "number\x015\x02" in row.properties
    assert (row.message_id, row.reconsume_times, row.deliver_time) == ("U1-5", 0, None)
    assert "properties" not in load_frame(spark, cluster, properties="none").columns


def test_a_users_schema_in_kafkas_mode(spark: SparkSession, cluster: Running) -> None:
    reader = spark.read.format("rocketmq").option("nameServer", cluster.name_server)
    reader = reader.option("subscribe", "bills").option("schemaMode", "kafka")
    schema = StructType().add("offset", "long").add("value", "binary").add("broker_name", "string")
    rows = reader.schema(schema).load().collect()
    assert [(row.offset, bytes(row.value)) for row in sorted(rows)] == [
        (n, b"0/%d" % n) for n in range(10)
    ]


@pytest.mark.parametrize(
    ("given", "partitions"),
    [
        ({}, 1),
        ({"minPartitions": "5"}, 5),
        ({"minRecordsPerPartition": "400"}, 3),
        ({"minRecordsPerPartition": "1", "maxPartitions": "2"}, 2),
        ({"maxRecordsPerPartition": "100"}, 12),
        ({"maxRecordsPerPartition": "100", "maxPartitions": "4"}, 4),
        ({"maxRecordsPerPartition": "1000"}, 3),
    ],
)
def test_batch_divides_ranges_into_partitions(
    spark: SparkSession, cluster: Running, given: dict[str, str], partitions: int
) -> None:
    frame = load_frame(spark, cluster, columns="queue_id,queue_offset", **given)
    rows = frame.withColumn("p", spark_partition_id()).collect()
    assert len({(row.queue_id, row.queue_offset) for row in rows}) == len(rows) == QUEUES * COUNT
    sizes = Counter(row.p for row in rows).values()
    assert len(sizes) == partitions
    assert max(sizes) - min(sizes) <= COUNT
    if "maxRecordsPerPartition" in given and "maxPartitions" not in given:
        assert max(sizes) <= int(given["maxRecordsPerPartition"])


FURTHER_WRONG_OPTIONS = [
    ({"secretKey": "hush"}, "secretKey needs accessKey too"),
    ({"tls.keyFile": "f"}, "given without tls.certFile"),
    ({"startingTimestamp": "1700000000009", "endingTimestamp": "1700000000008"}, "later than endingTimestamp"),
    ({"onCorruptMessage": "drop"}, "one of: fail, skip, null"),
    ({"fetchOffset.numRetries": "-1"}, "fetchOffset.numRetries='-1'"),
    ({"sendTimeoutMs": "5"}, "is an option of a write"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"subExpression": "number >", "subExpressionType": "SQL92"}, "subExpression='number >' is refused"),
        ({"startingOffsets": "group"}, "needs consumerGroup"),
        ({"startingOffsetsByTimestamp": '{"orders":{"broker-a":{"0":1790000000000}}}'}, "lacks orders@broker-a:1"),
        ({"schemaMode": "kafka", "columns": "headers"}, "not includeHeaders=true"),
        ({"maxOffsetsPerTrigger": "5"}, "is an option of a streaming read"),
        ({"assign": "{}"}, "give one of subscribe"),
        *(pytest.param(*each, marks=pytest.mark.long) for each in FURTHER_WRONG_OPTIONS),
    ],
)  # fmt: skip
def test_wrong_options_fail_on_the_driver(
    spark: SparkSession, cluster: Running, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(Exception, match=r"\[ROCKETMQ_OPTION\]") as caught:
        load_frame(spark, cluster, **given).count()
    assert said.lower() in str(caught.value).lower()
    assert "hush" not in str(caught.value)


def test_a_stream_has_kafkas_columns_and_filters_too(
    spark: SparkSession, cluster: Running, tmp_path: Path
) -> None:
    options = {
        "nameServer": cluster.name_server, "subscribe": "orders", "startingOffsets": "earliest",
        "schemaMode": "kafka", "subExpression": "number >= 390", "subExpressionType": "SQL92",
    }  # fmt: skip
    frame = spark.readStream.format("rocketmq").options(**options).load()
    query = frame.writeStream.format("memory").queryName("ported").trigger(availableNow=True)
    query = query.option("checkpointLocation", str(tmp_path))
    assert query.start().awaitTermination(240)
    rows = spark.table("ported").collect()
    assert {(row.partition, row.offset, bytes(row.value)) for row in rows} == {
        (q, n, b"%d/%d" % (q, n)) for q in range(QUEUES) for n in range(390, COUNT)
    }
