"""Run the code of the Spark guides in one session; check what the recipes find."""

import json
from pathlib import Path
from typing import Any

import msgpack
import pytest
from pyspark.sql import SparkSession
from tests.examples.documents import Document
from tests.support.running_cluster import (
    Running,
    cluster_fixture,
    create_topic,
    load_queue,
)

from rocketrio_protocol.message import Message
from rocketrio_protocol.remoting.pool import ChannelPool

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ORDERS = 6


def _orders() -> list[Message]:
    bodies = [
        json.dumps({"order": n, "cents": 400 * n, "paid": n % 2 == 0}) for n in range(1, ORDERS + 1)
    ]
    bodies[4] = "no JSON"
    return [
        Message(
            "",
            body.encode(),
            keys=f"order-{number}",
            tags="paid" if number % 2 == 0 else "open",
            properties={"shop": f"shop-{number % 3}"},
        )
        for number, body in enumerate(bodies, start=1)
    ] + [Message("", b'{"order": 1, "cents": 999, "paid": true}', keys="order-1")]


async def _fill(pool: ChannelPool, running: Running) -> None:
    topics = {
        "orders": _orders(),
        "readings": [
            Message("", b"attic,2026-01-02T03:04:05Z,21.5"),
            Message("", b"cellar,2026-01-02T03:04:06Z,"),
        ],
        "packed": [
            Message("", msgpack.packb({"sensor": "attic", "degrees": degrees}))
            for degrees in (21.5, 21.75)
        ],
    }
    for topic, messages in topics.items():
        await create_topic(pool, running.master, topic, 1)
        await load_queue(pool, running.master, topic, 0, messages)


cluster = cluster_fixture(_fill)


@pytest.fixture(scope="module")
def named(
    spark: SparkSession, cluster: Running, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """The names that the recipes made, after all of them have run in their order."""
    document = Document(
        "docs/spark-recipes.md",
        tmp_path_factory.mktemp("recipes"),
        {"10.0.0.1:9876": cluster.name_server},
    )
    document.names["spark"] = spark
    return document.run()


def _rows(frame: Any) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.collect()]


def test_guide_reads_json_as_columns(named: dict[str, Any]) -> None:
    rows = _rows(named["orders"])
    assert rows[1] == ("order-2", 2, 800, True)
    assert rows[4] == ("order-5", None, None, None)
    assert _rows(named["unreadable"]) == [("order-5", "no JSON")]


def test_fields_of_json_are_found(named: dict[str, Any]) -> None:
    assert named["guessed"].columns == ["cents", "order", "paid"]
    assert _rows(named["guessed"])[5] == (2400, 6, True)
    assert [row.keys for row in named["dear"].select("keys").collect()] == [
        "order-3",
        "order-4",
        "order-6",
    ]


def test_guide_reads_csv_as_columns(named: dict[str, Any]) -> None:
    rows = _rows(named["readings"])
    assert [(row[0], row[2]) for row in rows] == [("attic", 21.5), ("cellar", None)]
    assert named["readings"].selectExpr("unix_timestamp(at) AS s").first().s == 1_767_323_045


def test_any_bytes_are_read_by_a_function(named: dict[str, Any]) -> None:
    assert _rows(named["values"]) == [("attic", 21.5), ("attic", 21.75)]


def test_properties_and_keys_become_columns(named: dict[str, Any]) -> None:
    assert _rows(named["shops"])[:2] == [("open", "shop-1"), ("paid", "shop-2")]
    assert {key for (key,) in _rows(named["keys"])} == {f"order-{n}" for n in range(1, ORDERS + 1)}


def test_the_last_message_of_each_key_is_left(named: dict[str, Any]) -> None:
    last = {row["keys"]: bytes(row["body"]) for row in named["last"].collect()}
    assert len(last) == ORDERS
    assert last["order-1"] == b'{"order": 1, "cents": 999, "paid": true}'


def test_a_day_is_a_range(named: dict[str, Any]) -> None:
    assert named["day"].count() == ORDERS + 1


def test_sql_does_it_too(named: dict[str, Any]) -> None:
    rows = sorted(_rows(named["paid"]))
    assert rows == [(1, 999, True), (2, 800, True), (4, 1600, True), (6, 2400, True)]


@pytest.mark.parametrize(
    "name",
    ["spark.md", "spark-streaming.md", pytest.param("spark-writing.md", marks=pytest.mark.long)],
)
def test_guide_runs(name: str, spark: SparkSession, cluster: Running, tmp_path: Path) -> None:
    replaced = {
        "10.0.0.1:9876": cluster.name_server,
        "/checkpoints": f"{tmp_path}/checkpoints",
        "/data": f"{tmp_path}/data",
    }
    document = Document(f"docs/{name}", tmp_path, replaced)
    document.names["spark"] = spark
    document.run()
