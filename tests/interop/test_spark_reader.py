"""The Spark reader on Apache's brokers, without Spark itself: answers of 32 messages, timestamps, a rocketrio slave."""

import itertools

import pytest
import trio

from rocketrio.cluster.api import ClientAPI
from rocketrio.spark.reading.options import parse_read_options
from rocketrio.spark.reading.reader import RocketMQBatchReader
from rocketrio.spark.reading.schema import ALL_COLUMNS, table_schema
from rocketrio_protocol.message import MessageQueue
from tests.interop.conftest import OnApache
from tests.support.running_cluster import channel_pool, load_queue, numbered

pytestmark = pytest.mark.interop

TOPIC_NUMBERS = itertools.count()
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
QUEUES, COUNT = 2, 500


def _read(name_server: str, topic: str, **given: str) -> dict[int, list[bytes]]:
    options = parse_read_options({"nameServer": name_server, "subscribe": topic, **given})
    reader = RocketMQBatchReader(options, table_schema(options))
    found: dict[int, list[bytes]] = {}
    for partition in reader.partitions():
        for batch in reader.read(partition):
            rows = zip(batch["queue_id"].to_pylist(), batch["body"].to_pylist(), strict=True)
            for queue_id, body in rows:
                found.setdefault(queue_id, []).append(body)
    return found


@pytest.fixture
def topic(on_apache: OnApache) -> str:
    name = f"spark-{next(TOPIC_NUMBERS)}"
    on_apache.java.create_topic(name, at=on_apache.master.address, queues=QUEUES)

    async def load() -> None:
        async with channel_pool() as pool:
            for queue_id in range(QUEUES):
                messages = numbered(queue_id, COUNT)
                await load_queue(pool, on_apache.master.address, name, queue_id, messages)
                # Apache builds its queues behind the answers to sends.
                queue = MessageQueue(name, "broker-a", queue_id)
                with trio.fail_after(10):
                    while await ClientAPI(pool).max_offset(on_apache.master.address, queue) < COUNT:  # noqa: ASYNC110
                        await trio.sleep(0.05)

    trio.run(load)
    return name


def _bodies(queue_id: int) -> list[bytes]:
    return [message.body for message in numbered(queue_id, COUNT)]


@pytest.mark.parametrize(
    "given", [{}, {"pullPipelineDepth": "1"}, {"columns": ",".join(ALL_COLUMNS)}]
)
def test_a_topic_of_apache_is_read_whole_and_in_order(
    on_apache: OnApache, topic: str, given: dict[str, str]
) -> None:
    found = _read(on_apache.name_server, topic, **given)
    assert found == {queue_id: _bodies(queue_id) for queue_id in range(QUEUES)}


def test_rocketrio_slave_serves_what_apaches_master_has(on_apache: OnApache, topic: str) -> None:
    # It may be a little behind; what it lacks comes from the master.
    found = _read(on_apache.name_server, topic, readFrom="slave")
    assert found == {queue_id: _bodies(queue_id) for queue_id in range(QUEUES)}


def test_bounds_are_offsets_or_times(on_apache: OnApache, topic: str) -> None:
    ends = f'{{"{topic}":{{"broker-a":{{"0":40,"1":-1}}}}}}'
    starts = f'{{"{topic}":{{"broker-a":{{"0":7,"1":490}}}}}}'
    found = _read(on_apache.name_server, topic, startingOffsets=starts, endingOffsets=ends)
    assert found == {0: _bodies(0)[7:40], 1: _bodies(1)[490:]}
    future = str(4_000_000_000_000)
    at_the_end = {"startingTimestamp": future, "startingOffsetsByTimestampStrategy": "latest"}
    assert _read(on_apache.name_server, topic, **at_the_end) == {}
    whole = _read(on_apache.name_server, topic, startingTimestamp="0", endingTimestamp=future)
    assert {queue_id: len(bodies) for queue_id, bodies in whole.items()} == {0: COUNT, 1: COUNT}


def test_topics_are_found_by_pattern(on_apache: OnApache, topic: str) -> None:
    options = parse_read_options(
        {"nameServer": on_apache.name_server, "subscribePattern": f"{topic}|TBW.*"}
    )
    assert RocketMQBatchReader(options, table_schema(options)).partitions()


def test_what_java_sent_comes_with_its_properties(on_apache: OnApache, topic: str) -> None:
    body = "compressed by Java " * 500
    on_apache.java.call(
        "send",
        topic=topic,
        body=body,
        tags="red",
        keys="k1 k2",
        properties={"a": "b", "traceparent": TRACEPARENT},
    )
    options = parse_read_options(
        {
            "nameServer": on_apache.name_server,
            "subscribe": topic,
            "columns": "keys,tags,body,properties,unique_key",
        }
    )
    reader = RocketMQBatchReader(options, table_schema(options))
    rows = [
        row
        for part in reader.partitions()
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]
    (row,) = [row for row in rows if row["tags"] == "red"]
    properties = dict(row["properties"])
    assert (row["body"].decode(), row["keys"]) == (body, "k1 k2")
    assert (properties["a"], properties["UNIQ_KEY"]) == ("b", row["unique_key"])
    assert properties["traceparent"] == TRACEPARENT  # A trace goes on in what Spark makes of it.
