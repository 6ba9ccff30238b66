"""Our client on Apache's name server and master; Apache's own client looks from the other side.

Three ways: JSON all over, our requests in ROCKETMQ, and servers whose own default is ROCKETMQ.
"""

import itertools
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from rocketrio import (
    NOT_FOUND,
    ClientInstance,
    Message,
    MessageQueue,
    SendStatus,
    open_client,
    open_consumer,
    open_producer,
)
from rocketrio_protocol.codes import SerializeType
from rocketrio_protocol.record.layout import COMPRESSION_TYPE_MASK, SysFlag
from tests.interop.conftest import World
from tests.interop.java_client import JavaClient

pytestmark = pytest.mark.interop

TOPIC_NUMBERS = itertools.count()
COMPRESSION_BITS = {"LZ4": SysFlag.COMPRESSION_LZ4, "ZSTD": SysFlag.COMPRESSION_ZSTD}
PATIENCE = 30.0
"""Seconds until a group has shared its queues and pulled, on a machine where much else starts."""


@attrs.frozen
class Setting:
    """One of the three ways, with a topic of its own."""

    name_server: str
    java: JavaClient
    serialize_type: SerializeType
    topic: str

    @property
    def queue(self) -> MessageQueue:
        return MessageQueue(self.topic, "broker-a", 0)

    @property
    def java_queue(self) -> dict[str, Any]:
        return {"topic": self.topic, "broker": "broker-a", "queue_id": 0}

    @property
    def client_options(self) -> dict[str, Any]:
        return {"name_servers": [self.name_server], "serialize_type": self.serialize_type}


@pytest.fixture(params=["JSON", "ROCKETMQ client", "ROCKETMQ servers"])
def setting(request: pytest.FixtureRequest, world: World) -> Setting:
    topic = f"ours-{next(TOPIC_NUMBERS)}"
    if request.param == "ROCKETMQ servers":
        name_server, java = world.rocketmq_name_server, world.rocketmq_java
        master = world.rocketmq_master.address
    else:
        name_server, java = world.on_apache.name_server, world.on_apache.java
        master = world.on_apache.master.address
    java.create_topic(topic, at=master, queues=2)
    is_binary = request.param == "ROCKETMQ client"
    serialize_type = SerializeType.ROCKETMQ if is_binary else SerializeType.JSON
    return Setting(name_server, java, serialize_type, topic)


@pytest.fixture
async def client(setting: Setting) -> Any:
    async with open_client(**setting.client_options) as opened:
        yield opened


async def test_every_kind_of_send_is_read_by_java(setting: Setting, client: ClientInstance) -> None:
    topic = setting.topic
    long_body = "compressed " * 1000
    async with open_producer(client=client) as producer:
        sent = await producer.send(
            Message(
                topic, "grün".encode(), tags="red", keys="k1 k2", properties={"colour": "blau"}
            ),
            queue=setting.queue,
        )
        batch = await producer.send_batch(
            [Message(topic, b"b-0", tags="red"), Message(topic, b"b-1")], queue=setting.queue
        )
        await producer.send(Message(topic, long_body.encode()), queue=setting.queue)
        async with producer.pipeline() as pipeline:
            for number in range(20):
                await pipeline.send(Message(topic, b"p-%d" % number), sharding_key="one")
        await producer.send_oneway(Message(topic, b"oneway"), queue=setting.queue)
    assert sent.status is SendStatus.SEND_OK
    assert (sent.queue, sent.queue_offset) == (setting.queue, 0)
    assert batch.queue_offset == 1
    messages = await trio.to_thread.run_sync(_read_all, setting, 25)
    bodies = [message["body"] for message in messages]
    assert sorted(bodies) == sorted(
        ["grün", "b-0", "b-1", long_body, "oneway", *(f"p-{number}" for number in range(20))]
    )
    first = next(message for message in messages if message["body"] == "grün")
    assert (first["tags"], first["keys"]) == ("red", "k1 k2")
    assert first["properties"]["colour"] == "blau"
    assert first["message_id"] == sent.message_id
    in_order = [body for body in bodies if body.startswith("p-")]
    assert in_order == [f"p-{number}" for number in range(20)]


def _read_all(setting: Setting, count: int) -> list[dict[str, Any]]:
    """What Java reads, once there are as many: a oneway send is stored a little later."""
    for _ in range(50):
        messages: list[dict[str, Any]] = setting.java.call("read_all", topic=setting.topic)
        if len(messages) >= count:
            break
    return messages


async def test_java_finds_our_message_by_its_ids(setting: Setting, client: ClientInstance) -> None:
    async with open_producer(client=client) as producer:
        sent = await producer.send(Message(setting.topic, b"looked up", keys="k-find"))
    found = await setting.java.acall(
        "view_message", topic=setting.topic, message_id=sent.offset_message_id
    )
    assert (found["body"], found["message_id"]) == ("looked up", sent.message_id)


async def test_we_read_every_kind_of_send_of_java(setting: Setting, client: ClientInstance) -> None:
    java, queue = setting.java, setting.java_queue
    long_body = "compressed " * 1000
    await java.acall("send", body="grün", tags="red", keys="k1", properties={"a": "b"}, **queue)
    await java.acall("send_batch", bodies=["b-0", "b-1"], tags="green", **queue)
    await java.acall("send", body=long_body, **queue)
    await java.acall("send", body="asynchronous", mode="async", **queue)
    with trio.fail_after(PATIENCE):
        async with open_consumer(
            setting.topic, group=f"g-{setting.topic}", start_from="earliest", client=client
        ) as consumer:
            messages = [await consumer.receive() for _ in range(5)]
    assert [message.body.decode() for message in messages] == [
        "grün",
        "b-0",
        "b-1",
        long_body,
        "asynchronous",
    ]
    first = messages[0]
    assert (first.tags, first.keys) == ("red", "k1")
    assert first.properties["a"] == "b"
    assert [message.queue_offset for message in messages] == [0, 1, 2, 3, 4]


async def test_tags_choose_messages(setting: Setting, client: ClientInstance) -> None:
    for number, tags in enumerate(["red", "green", "blue", "red"]):
        await setting.java.acall("send", body=f"{number}", tags=tags, **setting.java_queue)
    with trio.fail_after(PATIENCE):
        async with open_consumer(
            setting.topic,
            group=f"g-{setting.topic}",
            tags="red || blue",
            start_from="earliest",
            client=client,
        ) as consumer:
            bodies = [(await consumer.receive()).body for _ in range(3)]
    assert bodies == [b"0", b"2", b"3"]


async def test_waiting_consumer_gets_what_arrives(setting: Setting, client: ClientInstance) -> None:
    """Held by the broker; it would be asked again after 15 s otherwise."""
    await setting.java.acall("send", body="before", **setting.java_queue)
    with trio.fail_after(PATIENCE):
        async with open_consumer(
            setting.topic, group=f"g-{setting.topic}", start_from="earliest", client=client
        ) as consumer:
            assert (await consumer.receive()).body == b"before"
            await trio.sleep(1)
            await setting.java.acall("send", body="arrived", **setting.java_queue)
            with trio.fail_after(6):
                assert (await consumer.receive()).body == b"arrived"


async def test_java_sees_our_offsets_and_we_see_its(
    setting: Setting, client: ClientInstance
) -> None:
    java, queue, group = setting.java, setting.java_queue, f"g-{setting.topic}"
    await java.acall("send_many", prefix="m", count=10, **queue)
    with trio.fail_after(PATIENCE):
        async with open_consumer(
            setting.topic, group=group, queues=[setting.queue], start_from="earliest", client=client
        ) as consumer:
            # 4.9 takes a group that never committed for one at the queue's beginning.
            unknown = NOT_FOUND if setting.java.version.startswith("5.") else 0
            assert await consumer.committed_offset(setting.queue) == unknown
            for _ in range(4):
                await consumer.receive()
            await consumer.commit()
            assert await java.acall("committed", group=group, **queue) == 4
    assert await java.acall("committed", group=group, **queue) == 4
    await java.acall("commit", group=group, offset=7, **queue)
    with trio.fail_after(PATIENCE):
        async with open_consumer(
            setting.topic, group=group, queues=[setting.queue], start_from="earliest", client=client
        ) as consumer:
            assert await consumer.committed_offset(setting.queue) == 7
            assert (await consumer.receive()).body == b"m-7"


async def test_a_group_of_java_and_us_shares_the_queues(
    setting: Setting, client: ClientInstance
) -> None:
    java, group = setting.java, f"g-{setting.topic}"
    with trio.fail_after(60):
        await java.acall("push_start", group=group, topic=setting.topic)
        async with open_consumer(
            setting.topic, group=group, start_from="earliest", client=client
        ) as consumer:
            while len(consumer.assignment) != 1:  # noqa: ASYNC110
                await trio.sleep(0.1)
            # Java learns of the new member and gives one queue up, in its own time.
            await trio.sleep(2)
            sent = await java.acall("send_many", prefix="m", count=20, topic=setting.topic)
            (mine,) = consumer.assignment
            expected = [
                f"m-{number}"
                for number, result in enumerate(sent)
                if result["queue_id"] == mine.queue_id
            ]
            ours = [(await consumer.receive()).body.decode() for _ in expected]
        theirs = await java.acall("push_take", group=group, count=20 - len(ours), timeout=30)
        await java.acall("push_stop", group=group)
    assert ours == expected
    bodies = [*ours, *(message["body"] for message in theirs)]
    assert sorted(bodies) == sorted(f"m-{number}" for number in range(20))


@pytest.mark.parametrize("compression", ["LZ4", "ZSTD"])
async def test_bodies_that_5_x_producers_compress_otherwise(
    compression: str, world: World, tmp_path: Path
) -> None:
    on_apache = world.on_apache
    if not on_apache.version.startswith("5."):
        pytest.skip("4.9 knows zlib only")
    topic, body = f"compressed-{compression}", "compressed " * 1000
    with JavaClient(
        on_apache.version,
        on_apache.name_server,
        tmp_path,
        jvm_options=(f"-Drocketmq.message.compressType={compression}",),
    ) as java:
        await java.acall("send", topic=topic, body=body)
    with trio.fail_after(PATIENCE):
        async with open_consumer(
            topic,
            group=f"g-{topic}",
            start_from="earliest",
            name_servers=[on_apache.name_server],
        ) as consumer:
            message = await consumer.receive()
    assert message.body.decode() == body
    assert message.sys_flag & COMPRESSION_TYPE_MASK == COMPRESSION_BITS[compression]
