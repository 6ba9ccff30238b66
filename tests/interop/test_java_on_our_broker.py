"""Apache's client, of both versions and in both header encodings, on our name server and our master."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.interop.conftest import OnOurs
from tests.interop.java_client import (
    JOIN_TIMEOUT,
    TOPIC_NUMBERS,
    JavaClient,
    JavaError,
    bodies,
)

pytestmark = pytest.mark.interop


SENDS: dict[str, Callable[[JavaClient, dict[str, Any]], object]] = {
    "sync": lambda java, queue: java.call("send", body="x", **queue),
    "async": lambda java, queue: java.call("send", body="x", mode="async", **queue),
    "oneway": lambda java, queue: java.call("send", body="x", mode="oneway", **queue),
    "batch": lambda java, queue: java.call("send_batch", bodies=["x"], **queue),
}


@pytest.mark.parametrize("kind", SENDS)
def test_every_kind_of_send_is_stored(kind: str, java: JavaClient, queue: dict[str, Any]) -> None:
    SENDS[kind](java, queue)
    pulled = java.call("pull", block=True, offset=0, **queue)
    assert pulled["status"] == "FOUND"
    assert bodies(pulled["messages"]) == ["x"]


def test_send_results_and_messages_agree(java: JavaClient, queue: dict[str, Any]) -> None:
    sent = java.call(
        "send", body="grün", tags="red", keys="k1 k2", properties={"colour": "blau"}, **queue
    )
    assert sent["status"] == "SEND_OK"
    assert (sent["queue_id"], sent["queue_offset"]) == (0, 0)
    (message,) = java.call("pull", offset=0, **queue)["messages"]
    assert message["body"] == "grün"
    assert (message["tags"], message["keys"]) == ("red", "k1 k2")
    assert message["properties"]["colour"] == "blau"
    assert message["message_id"] == sent["message_id"]


def test_messages_are_found_by_id_and_by_key(java: JavaClient, queue: dict[str, Any]) -> None:
    topic = queue["topic"]
    sent = java.call("send", body="looked up", keys="k1 k2", **queue)
    assert (
        java.until("view_message", topic=topic, message_id=sent["offset_id"])["body"] == "looked up"
    )
    assert bodies(java.until("query_key", topic=topic, key="k2")) == ["looked up"]
    with pytest.raises(JavaError):
        java.call("query_key", topic=topic, key="k3")


def test_batch_gets_consecutive_offsets(java: JavaClient, queue: dict[str, Any]) -> None:
    sent = java.call("send_batch", bodies=["b-0", "b-1", "b-2"], tags="red", **queue)
    assert len(sent["offset_id"].split(",")) == 3
    pulled = java.call("pull", offset=0, **queue)
    assert bodies(pulled["messages"]) == ["b-0", "b-1", "b-2"]
    assert [message["queue_offset"] for message in pulled["messages"]] == [0, 1, 2]


def test_compressed_body_comes_back(java: JavaClient, queue: dict[str, Any]) -> None:
    body = "compressed " * 1000
    java.call("send", body=body, **queue)
    following = java.call("send", body="right behind", **queue)
    first, second = java.call("pull", offset=0, **queue)["messages"]
    assert first["body"] == body
    assert second["message_id"] == following["message_id"]
    assert second["physical_offset"] - first["physical_offset"] < 1000


def test_java_pulls_only_messages_with_its_tags(java: JavaClient, queue: dict[str, Any]) -> None:
    for number, tags in enumerate(["red", "green", "red", "blue"]):
        java.call("send", body=f"{tags}-{number}", tags=tags, **queue)
    chosen = java.call("pull", offset=0, tags="red || blue", **queue)
    assert bodies(chosen["messages"]) == ["red-0", "red-2", "blue-3"]
    assert chosen["next_offset"] == 4
    assert java.call("pull", offset=0, tags="nobody", **queue)["status"] == "NO_MATCHED_MSG"


def test_java_gets_the_status_of_each_kind_of_pull(java: JavaClient, queue: dict[str, Any]) -> None:
    java.call("send", body="only", **queue)
    assert java.call("pull", offset=1, **queue)["status"] == "NO_NEW_MSG"
    beyond = java.call("pull", offset=9, **queue)
    assert (beyond["status"], beyond["next_offset"]) == ("OFFSET_ILLEGAL", 1)
    with pytest.raises(JavaError, match="queueId"):
        java.call("pull", **{**queue, "queue_id": 50}, offset=0)
    with pytest.raises(JavaError, match="CODE: "):
        java.call("send", **{**queue, "queue_id": 50}, body="nowhere")


def test_held_pull_is_woken_by_a_send(on_ours: OnOurs, queue: dict[str, Any]) -> None:
    """Held for one client while the other one sends; it would be held for 15 s otherwise."""
    waiting, sending = on_ours.java, on_ours.java_rocketmq
    group = f"held-{queue['topic']}"
    waiting.call("push_start", group=group, topic=queue["topic"])
    sending.call("send", body="before", **queue)
    taken = waiting.call("push_take", group=group, count=1, timeout=JOIN_TIMEOUT)
    assert bodies(taken) == ["before"]
    assert waiting.call("push_take", group=group, count=1, timeout=2) == []
    sent = sending.call("send", body="arrived", **queue)
    taken = waiting.call("push_take", group=group, count=1, timeout=8)
    waiting.call("push_stop", group=group)
    assert [message["message_id"] for message in taken] == [sent["message_id"]]


def test_offsets_of_a_queue(java: JavaClient, queue: dict[str, Any]) -> None:
    java.call("send_many", prefix="p", count=5, **queue)
    third = java.call("pull", offset=2, max=1, **queue)["messages"][0]
    found = java.call("offsets", timestamp_ms=third["store_timestamp_ms"], **queue)
    first = java.call("pull", offset=0, max=1, **queue)["messages"][0]
    assert (found["min"], found["max"]) == (0, 5)
    assert found["earliest_store_time_ms"] == first["store_timestamp_ms"]
    at = java.call("pull", offset=found["at"], max=1, **queue)["messages"][0]
    assert at["store_timestamp_ms"] == third["store_timestamp_ms"]


def test_offsets_of_a_group(java: JavaClient, queue: dict[str, Any]) -> None:
    java.call("send_many", prefix="p", count=5, **queue)
    java.call("pull", group="billing", offset=0, **queue)  # A 5.x broker knows the group by it.
    java.call("commit", group="billing", offset=3, **queue)
    assert java.call("committed", group="billing", **queue) == 3


@pytest.mark.parametrize("kind", ["push", "lite"])
def test_java_group_consumes_everything_once_and_continues(
    kind: str, java: JavaClient, topic: str
) -> None:
    group = f"{kind}-{topic}"
    java.call("send_many", prefix="first", count=20, topic=topic)
    java.call(f"{kind}_start", group=group, topic=topic)
    taken = java.call(f"{kind}_take", group=group, count=20, timeout=JOIN_TIMEOUT)
    assert sorted(bodies(taken)) == sorted(f"first-{number}" for number in range(20))
    if kind == "lite":
        java.call("lite_commit", group=group)
    java.call(f"{kind}_stop", group=group)
    rows = java.call("consume_stats", topic=topic, group=group)
    assert sum(row["consumer_offset"] for row in rows) == 20
    java.call("send_many", prefix="second", count=4, topic=topic)
    java.call(f"{kind}_start", group=group, topic=topic)
    taken = java.call(f"{kind}_take", group=group, count=4, timeout=JOIN_TIMEOUT)
    java.call(f"{kind}_stop", group=group)
    assert sorted(bodies(taken)) == [f"second-{number}" for number in range(4)]


def test_operators_see_the_cluster(java: JavaClient, on_ours: OnOurs, topic: str) -> None:
    master, slave = on_ours.master.address, on_ours.slave.address
    java.call("send_many", prefix="p", count=4, topic=topic)
    assert java.call("cluster")["brokers"] == {"broker-a": {"0": master, "1": slave}}
    assert topic in java.call("topics")
    route = java.call("route", topic=topic)
    assert route["brokers"]["broker-a"] == {"0": master, "1": slave}
    assert route["queues"]["broker-a"]["write_queues"] == 2
    assert sum(row["max"] for row in java.call("topic_stats", topic=topic)) == 4
    table = java.call("runtime", address=master)
    assert int(table["commitLogMaxOffset"]) > 0
    assert "brokerVersionDesc" in table


def test_topic_is_made_by_the_first_send(java: JavaClient) -> None:
    topic = f"made-by-sending-{next(TOPIC_NUMBERS)}"
    sent = java.call("send", topic=topic, body="first")
    assert sent["status"] == "SEND_OK"
    assert bodies(java.until("read_all", topic=topic)) == ["first"]
