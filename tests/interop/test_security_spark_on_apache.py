"""Spark with accounts of least rights on Apache's secured brokers: a batch, a stream, a write, and what is refused.

The session is that of tests/spark: one of a process.
"""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from rocketrio import Credentials
from tests.interop.secured import (
    ADMIN,
    CONSUMER,
    DENIED,
    GROUP,
    PRODUCER,
    TOPIC,
    Secured,
)
from tests.spark.conftest import spark
from tests.support.private_files import account_file

__all__ = ["spark"]  # a fixture: pytest finds it by its name here
pytestmark = pytest.mark.interop

COUNT = 40


def options(secured: Secured, account: Credentials, **more: str) -> dict[str, str]:
    keys = {"accessKey": account.access_key, "secretKey": account.secret_key}
    return {"nameServer": secured.name_server, **keys, **more}


def write(
    spark: SparkSession, secured: Secured, account: Credentials, topic: str, prefix: str
) -> None:
    frame = spark.range(COUNT).selectExpr(f"concat('{prefix}-', id) AS body")
    writer = frame.write.format("rocketmq").options(**options(secured, account, topic=topic))
    writer.mode("append").save()


def bodies(frame: DataFrame, prefix: str) -> set[str]:
    rows = frame.selectExpr("CAST(body AS STRING) AS body").collect()
    return {row.body for row in rows if row.body.startswith(prefix)}


def expected(prefix: str) -> set[str]:
    return {f"{prefix}-{number}" for number in range(COUNT)}


def test_batch_reads_what_another_account_wrote(
    spark: SparkSession, secured: Secured, tmp_path: Path
) -> None:
    write(spark, secured, PRODUCER, TOPIC, "batch")
    given = options(secured, CONSUMER, subscribe=TOPIC, consumerGroup=GROUP)
    assert bodies(spark.read.format("rocketmq").options(**given).load(), "batch") == expected(
        "batch"
    )
    path = account_file(tmp_path / "tools.yml", CONSUMER)
    given = {
        "nameServer": secured.name_server,
        "subscribe": TOPIC,
        "consumerGroup": GROUP,
        "credentialsFile": str(path),
    }
    frame = spark.read.format("rocketmq").options(**given).load()
    assert bodies(frame, "batch") == expected("batch")


def test_stream_reads_and_commits(spark: SparkSession, secured: Secured, tmp_path: Path) -> None:
    write(spark, secured, PRODUCER, TOPIC, "stream")
    given = options(
        secured, CONSUMER, subscribe=TOPIC, consumerGroup=GROUP, startingOffsets="earliest"
    )
    sink = str(tmp_path / "sink")
    query = (
        spark.readStream.format("rocketmq")
        .options(**given)
        .load()
        .writeStream.format("parquet")
        .option("path", sink)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert bodies(spark.read.parquet(sink), "stream") == expected("stream")


@pytest.mark.parametrize(
    ("account", "topic", "problem"),
    [
        (CONSUMER, DENIED, DENIED),
        (Credentials(CONSUMER.access_key, "wrong-secret-1"), TOPIC, "[Ss]ignature"),
    ],
)
def test_refused_read_has_its_code(
    spark: SparkSession, secured: Secured, account: Credentials, topic: str, problem: str
) -> None:
    if secured.version < "5":  # 4.9.7 checks pulls, but not who asks where an empty topic ends.
        write(spark, secured, ADMIN, DENIED, "secret")
    given = options(secured, account, subscribe=topic, consumerGroup=GROUP)
    with pytest.raises(Exception, match=rf"\[ROCKETMQ_ACCESS_DENIED\][\s\S]*{problem}") as caught:
        spark.read.format("rocketmq").options(**given).load().count()
    assert_hidden(caught, account)


def test_refused_write_has_its_code(spark: SparkSession, secured: Secured) -> None:
    if secured.version < "5":
        write(spark, secured, CONSUMER, TOPIC, "batches pass 4.9.7 unchecked")
        return
    with pytest.raises(Exception, match=rf"\[ROCKETMQ_ACCESS_DENIED\][\s\S]*{TOPIC}") as caught:
        write(spark, secured, CONSUMER, TOPIC, "refused")
    assert_hidden(caught, CONSUMER)


def assert_hidden(caught: Any, account: Credentials) -> None:
    assert account.access_key in str(caught.value)
    assert account.secret_key not in str(caught.value)
