"""Every option of a batch read in a real Spark session, once with a value that it takes and once with one it refuses.

The tables name all of them. What options do to rows in detail is in test_spark_batch.py and its neighbours.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from pyspark.sql import DataFrame, SparkSession, datasource
from tests.support.further import every_other
from tests.support.private_files import account_file
from tests.support.running_cluster import Running, full_topics, running_cluster
from tests.support.tls import write_files

from rocketrio import Credentials
from rocketrio.spark.reading.options import READ_OPTIONS

pytestmark = [pytest.mark.spark, pytest.mark.slow]
QUEUES, COUNT = 2, 100
ALL = QUEUES * COUNT
FAR = "9999999999999"
"""Epoch milliseconds in 2286."""


@attrs.frozen
class Good:
    """What is given, and what a read then has."""

    given: dict[str, object]
    rows: int = ALL
    partitions: int = 1
    columns: str = ""


def _of_queues(value: int) -> str:
    return json.dumps({"orders": {"broker-a": {str(q): value for q in range(QUEUES)}}})


KAFKA = "key value topic partition offset timestamp timestampType"
EACH_ALONE = {"minRecordsPerPartition": 1}

CA = {"tls.caFile": "{folder}/ca.pem"}
CERTIFICATE = {**CA, "tls.certFile": "{folder}/cert.pem", "tls.keyFile": "{folder}/key.pem"}

GOOD = {
    "nameServer": Good({"nameServer": " {name_server} ; {name_server};"}),
    "subscribe": Good({"subscribe": " bills , orders,orders"}, ALL + 10),
    "topic": Good({"topic": "bills"}, 10),
    "subscribePattern": Good({"subscribePattern": "o.+s"}),
    "assign": Good({"assign": '{"orders":{"broker-a":[1]}}'}, COUNT),
    "subExpression": Good({"subExpression": "even || none"}, ALL // 2),
    "subExpressionType": Good({"subExpression": "number < 10", "subExpressionType": "sql92"}, 20),
    "startingOffsets": Good({"startingOffsets": " Latest "}, 0),
    "startingOffsetsFallback": Good(
        {"startingOffsets": "group", "consumerGroup": "new", "startingOffsetsFallback": "latest"}, 0
    ),
    "startingTimestamp": Good({"startingTimestamp": 0}),
    "startingOffsetsByTimestamp": Good({"startingOffsetsByTimestamp": _of_queues(0)}),
    "startingOffsetsByTimestampStrategy": Good(
        {"startingTimestamp": FAR, "startingOffsetsByTimestampStrategy": "LATEST"}, 0
    ),
    "endingOffsets": Good({"endingOffsets": _of_queues(15)}, 30),
    "endingTimestamp": Good({"endingTimestamp": 0}, 0),
    "endingOffsetsByTimestamp": Good({"endingOffsetsByTimestamp": _of_queues(0)}, 0),
    "failOnDataLoss": Good({"failOnDataLoss": False, "endingOffsets": _of_queues(500)}),
    "schemaMode": Good({"schemaMode": "Kafka"}, columns=KAFKA),
    "includeHeaders": Good({"schemaMode": "kafka", "includeHeaders": "Yes"}, columns=f"{KAFKA} headers"),
    "columns": Good({"columns": " BODY, QUEUE_id"}, columns="body queue_id"),
    "properties": Good(
        {"properties": "none"},
        columns="topic broker_name queue_id queue_offset keys tags body born_time store_time",
    ),
    "decompress": Good({"decompress": "0"}),
    "verifyCrc": Good({"verifyCrc": True}),
    "onCorruptMessage": Good({"onCorruptMessage": "NULL"}),
    "minPartitions": Good({"minPartitions": 5}, partitions=5),
    "maxRecordsPerPartition": Good({"maxRecordsPerPartition": 25}, partitions=8),
    "minRecordsPerPartition": Good({**EACH_ALONE}, partitions=2),
    "maxPartitions": Good({**EACH_ALONE, "maxPartitions": 1}),
    "fetchOffset.numRetries": Good({"fetchOffset.numRetries": 0}),
    "fetchOffset.retryIntervalMs": Good({"fetchOffset.retryIntervalMs": 0}),
    "pullBatchSize": Good({"pullBatchSize": 1, "endingOffsets": _of_queues(9)}, 18),
    "pullPipelineDepth": Good({"pullPipelineDepth": 256}),
    "pullTimeoutMs": Good({"pullTimeoutMs": "1 min"}),
    "connectTimeoutMs": Good({"connectTimeoutMs": 10_000}),
    "readRetries": Good({"readRetries": 0}),
    "batchBytes": Good({"batchBytes": 1}),
    "batchRows": Good({"batchRows": 7}),
    "readFrom": Good({"readFrom": "SLAVE"}),  # There is none, so the master is read.
    "maxStaleness": Good({"maxStaleness": "10 Messages"}),
    "consumerGroup": Good({"consumerGroup": "reader-1"}),
    "filterPushdown": Good({"filterPushdown": "true"}),
    # The broker here has no access control: it answers signed requests like others.
    "accessKey": Good({"accessKey": "reader", "secretKey": "12345678"}),
    "secretKey": Good({"accessKey": "reader", "secretKey": "12345678"}),
    "securityToken": Good({"accessKey": "reader", "secretKey": "12345678", "securityToken": "t"}),
    "credentialsFile": Good({"credentialsFile": "{folder}/account.yml"}),
    "tls": Good({"tls": True, **CA}),
    "tls.caFile": Good(CA),
    "tls.certFile": Good(CERTIFICATE),
    "tls.keyFile": Good(CERTIFICATE),
    "tls.keyPasswordFile": Good({**CERTIFICATE, "tls.keyPasswordFile": "{folder}/password"}),
    "tls.checkHostName": Good({**CA, "tls.checkHostName": False}),
}  # fmt: skip

NUMBER = "is not a whole number from"
DURATION = "is not a duration of at least"
TRUTH = "is neither true nor false"
WRONG: dict[str, tuple[dict[str, object], str]] = {
    "nameServer": ({"nameServer": "here"}, "is not host:port;host:port"),
    "subscribe": ({"subscribe": ","}, "subscribe is empty"),
    "topic": ({"subscribe": "a", "topic": "b"}, "give one of subscribe, subscribePattern and assign"),
    "subscribePattern": ({"subscribePattern": "*"}, "is not a valid regular expression"),
    "assign": ({"assign": "orders"}, 'is not JSON like {"orders":{"broker-a":[0,1]}}'),
    "subExpression": ({"subExpression": " "}, "omit it to read every message"),
    "subExpressionType": ({"subExpression": "a", "subExpressionType": "JSON"}, "must be one of: tag, sql92"),
    "startingOffsets": ({"startingOffsets": 17}, "must be one of: earliest, latest, group, or JSON"),
    "startingOffsetsFallback": ({"startingOffsetsFallback": "latest"}, "without startingOffsets=group"),
    "startingTimestamp": ({"startingTimestamp": "yesterday"}, "is not a time: ISO 8601"),
    "startingOffsetsByTimestamp": ({"startingOffsetsByTimestamp": "[]"}, 'like {"orders":{"broker-a"'),
    "startingOffsetsByTimestampStrategy": (
        {"startingTimestamp": 0, "startingOffsetsByTimestampStrategy": "skip"}, "must be one of: error, latest"
    ),
    "endingOffsets": ({"endingOffsets": "earliest"}, "must be one of: latest, or JSON"),
    "endingTimestamp": ({"endingTimestamp": -1}, "is not a time: ISO 8601"),
    "endingOffsetsByTimestamp": ({"endingOffsetsByTimestamp": _of_queues(-1)}, "a queue id and epoch milliseconds"),
    "failOnDataLoss": ({"failOnDataLoss": "never"}, TRUTH),
    "schemaMode": ({"schemaMode": "avro"}, "must be one of: rocketmq, kafka"),
    "includeHeaders": ({"includeHeaders": True}, "needs schemaMode=kafka"),
    "columns": ({"columns": ["body", "tags"]}, "give one text, columns=a,b"),
    "properties": ({"properties": False}, "must be one of: map, string, none"),
    "decompress": ({"decompress": "zlib"}, TRUTH),
    "verifyCrc": ({"verifyCrc": 2}, TRUTH),
    "onCorruptMessage": ({"onCorruptMessage": "drop"}, "must be one of: fail, skip, null"),
    "minPartitions": ({"minPartitions": 2.5}, f"{NUMBER} 1"),
    "maxRecordsPerPartition": ({"maxRecordsPerPartition": 0}, f"{NUMBER} 1"),
    "minRecordsPerPartition": (
        {"minRecordsPerPartition": 9, "maxRecordsPerPartition": 8}, "more than maxRecordsPerPartition=8"
    ),
    "maxPartitions": ({"minPartitions": 3, "maxPartitions": 2}, "is more than maxPartitions=2"),
    "fetchOffset.numRetries": ({"fetchOffset.numRetries": 1001}, f"{NUMBER} 0 to 1000"),
    "fetchOffset.retryIntervalMs": ({"fetchOffset.retryIntervalMs": "soon"}, f"{DURATION} 0 ms"),
    "pullBatchSize": ({"pullBatchSize": 65_536}, f"{NUMBER} 1 to 65535"),
    "pullPipelineDepth": ({"pullPipelineDepth": 257}, f"{NUMBER} 1 to 256"),
    "pullTimeoutMs": ({"pullTimeoutMs": 0}, f"{DURATION} 1 ms"),
    "connectTimeoutMs": ({"connectTimeoutMs": 0}, f"{DURATION} 1 ms"),
    "readRetries": ({"readRetries": "no"}, f"{NUMBER} 0"),
    "batchBytes": ({"batchBytes": 1 << 40}, f"{NUMBER} 1 to 268435456"),
    "batchRows": ({"batchRows": 0}, f"{NUMBER} 1"),
    "readFrom": ({"readFrom": "replica"}, "must be one of: auto, master, slave"),
    "maxStaleness": ({"maxStaleness": 5}, "neither a number of messages, such as 10000 messages, nor a"),
    "consumerGroup": ({"consumerGroup": "a/b"}, "allowed are % | a-z A-Z 0-9 _ -"),
    "filterPushdown": ({"filterPushdown": "all"}, TRUTH),
    "accessKey": ({"accessKey": "reader"}, "accessKey needs secretKey too"),
    "secretKey": ({"secretKey": "12345678"}, "secretKey needs accessKey too"),
    "securityToken": ({"securityToken": "t"}, "needs accessKey and secretKey too"),
    "credentialsFile": (
        {"credentialsFile": "f", "accessKey": "reader"}, "credentialsFile holds the whole account; leave out accessKey"
    ),
    "tls": ({"tls": "starttls"}, TRUTH),
    "tls.caFile": ({"tls": False, "tls.caFile": "f"}, "tls.caFile has no effect with tls=false"),
    "tls.certFile": ({"tls.certFile": " "}, "tls.certFile is blank"),
    "tls.keyFile": ({"tls.keyFile": "f"}, "given without tls.certFile"),
    "tls.keyPasswordFile": ({"tls.keyPasswordFile": "f"}, "given without tls.certFile"),
    "tls.checkHostName": ({"tls.checkHostName": "no!"}, TRUTH),
}  # fmt: skip

OF_EACH_KIND = {
    "nameServer", "topic", "startingOffsets", "failOnDataLoss", "minPartitions", "readFrom", "secretKey",
}  # fmt: skip
"""A refusal ends a Python process of Spark, which costs a second: `make test-long` has more of the same kinds."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with certificates and an account."""
    made = tmp_path_factory.mktemp("files")
    write_files(made)
    account_file(made / "account.yml", Credentials("reader", "12345678"))
    (made / "password").write_text("not needed: the key is not encrypted")
    return made


@pytest.fixture(scope="module")
def cluster(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    settings = (
        "enable_property_filter=true",
        "tls_mode=permissive",
        f"tls_certificate_file={folder / 'cert.pem'}",
        f"tls_key_file={folder / 'key.pem'}",
        f"peer_tls_authority_file={folder / 'ca.pem'}",
    )
    topics = full_topics(orders=(QUEUES, COUNT), bills=(1, 10))
    data = tmp_path_factory.mktemp("cluster")
    with running_cluster(data, topics, settings=settings) as running:
        yield running


def _load(spark: SparkSession, cluster: Running, folder: Path, given: dict[str, Any]) -> DataFrame:
    """The options under names in capitals: their letter case does not matter."""
    reader = spark.read.format("rocketmq")
    if "nameServer" not in given:
        reader = reader.option("NAMESERVER", cluster.name_server)
    if not {"subscribe", "topic", "subscribePattern", "assign"} & set(given):
        reader = reader.option("SUBSCRIBE", "orders")
    for name, value in given.items():
        if isinstance(value, str):
            value = value.replace("{name_server}", cluster.name_server)
            value = value.replace("{folder}", str(folder))
        reader = reader.option(name.upper(), value)
    return reader.load()


def test_the_tables_name_every_option() -> None:
    assert set(GOOD) == set(WRONG) == set(READ_OPTIONS)
    assert all(name in case.given for name, case in GOOD.items())
    assert all(name in given for name, (given, _) in WRONG.items())


@pytest.mark.parametrize("name", every_other(GOOD))
def test_option_with_a_value_has_its_effect(
    spark: SparkSession, cluster: Running, folder: Path, name: str
) -> None:
    case = GOOD[name]
    if name == "filterPushdown":
        if not hasattr(datasource, "EqualTo"):
            pytest.skip("PySpark 4.0 pushes nothing")
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = _load(spark, cluster, folder, dict(case.given))
        assert frame.count() == case.rows
        if case.rows == ALL:
            assert frame.rdd.getNumPartitions() == case.partitions
        if case.columns:
            assert frame.columns == case.columns.split()
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.parametrize(
    "name",
    [
        name if name in OF_EACH_KIND else pytest.param(name, marks=pytest.mark.long)
        for name in WRONG
    ],
)
def test_option_with_a_wrong_value_is_refused(
    spark: SparkSession, cluster: Running, folder: Path, name: str
) -> None:
    given, said = WRONG[name]
    with pytest.raises(Exception, match=r"\[ROCKETMQ_OPTION\]") as caught:
        _load(spark, cluster, folder, dict(given))  # No action: it is the driver that refuses.
    last = str(caught.value).rpartition("[ROCKETMQ_OPTION]")[2]
    assert name.lower() in last.lower()
    assert said in last
