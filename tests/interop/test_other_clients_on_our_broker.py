"""Apache's Go and C++ clients on our name server and our pair, alone and in one group with ours.

They follow the protocol less exactly than Java's (RocketMQ reference, section 2.14).
"""

import time
from pathlib import Path

import pytest
import trio

from rocketrio import (
    ClientInstance,
    Message,
    MessageExt,
    MessageQueue,
    open_admin,
    open_consumer,
    open_producer,
)
from tests.interop.other_clients import (
    FIRST_RETRY,
    JOIN_TIMEOUT,
    NUMBERS,
    OtherClient,
    client,
    cluster,
    other,
    topic,
)
from tests.support.ours import OurPair
from tests.support.waiting import eventually

__all__ = ["client", "cluster", "other", "topic"]  # fixtures: pytest finds them by their names here
pytestmark = pytest.mark.interop


async def received(
    client: ClientInstance, topic: str, count: int, within: float = 20.0
) -> list[MessageExt]:
    """The first `count` messages of a topic, by a group of their own."""
    messages: list[MessageExt] = []
    async with open_consumer(
        topic, group=f"look-{next(NUMBERS)}", start_from="earliest", client=client
    ) as consumer:
        with trio.fail_after(within):
            while len(messages) < count:
                messages.append(await consumer.receive())
    return messages


def by_body(messages: list[MessageExt]) -> dict[bytes, MessageExt]:
    return {message.body: message for message in messages}


# ---------------------------------------------------------------------- what they send


async def test_message_of_the_other_client_is_stored_whole(
    other: OtherClient, client: ClientInstance, topic: str
) -> None:
    sent = await other.acall(
        "send", topic=topic, body="grün", tags="red", keys=["k1", "k2"], properties={"colour": "blau"}
    )  # fmt: skip
    await other.acall("send", topic=topic, body="async", mode="async")
    await other.acall("send", topic=topic, body="oneway", mode="oneway")
    await other.acall("send", topic=topic, body="compressed " * 1000)
    found = by_body(await received(client, topic, 4))
    assert set(found) == {"grün".encode(), b"async", b"oneway", b"compressed " * 1000}
    full = found["grün".encode()]
    assert (full.tags, full.keys) == ("red", "k1 k2")
    assert full.properties["colour"] == "blau"
    assert full.message_id == sent["message_id"]
    assert full.queue_offset == sent["queue_offset"]


async def test_its_batch_is_stored_side_by_side(
    other: OtherClient, client: ClientInstance, topic: str
) -> None:
    bodies = [f"b-{number}" for number in range(20)]
    await other.acall("send_batch", topic=topic, bodies=bodies, tags="red")
    messages = await received(client, topic, 20)
    assert sorted(m.body.decode() for m in messages) == sorted(bodies)
    assert {m.tags for m in messages} == {"red"}
    assert len({m.queue_id for m in messages}) == 1
    in_order = sorted(messages, key=lambda m: m.queue_offset)
    assert [m.body.decode() for m in in_order] == bodies


async def test_its_delayed_message_comes_later(
    other: OtherClient, client: ClientInstance, topic: str
) -> None:
    began = time.time()
    await other.acall("send", topic=topic, body="later", delay_level=2)
    (message,) = await received(client, topic, 1)
    assert message.body == b"later"
    assert time.time() - began >= 5.0


async def test_its_order_is_kept(other: OtherClient, client: ClientInstance, topic: str) -> None:
    bodies = [str(number) for number in range(30)]
    await other.acall("send_ordered", topic=topic, bodies=bodies, key="one")
    messages = await received(client, topic, 30)
    assert len({m.queue_id for m in messages}) == 1
    assert [m.body.decode() for m in messages] == bodies


# ---------------------------------------------------------------------- what they receive


async def test_other_client_receives_what_ours_sends(
    other: OtherClient, client: ClientInstance, topic: str
) -> None:
    async with open_producer(client=client) as producer:
        await producer.send(
            Message(topic, b"single", tags="red", keys="k1", properties={"colour": "blau"})
        )
        await producer.send_batch([Message(topic, f"b-{n}".encode()) for n in range(10)])
        await producer.send(Message(topic, b"compressed " * 1000))
    group = f"take-{topic}"
    await other.acall("push_start", group=group, topic=topic)
    taken = await other.acall("push_take", group=group, count=12, timeout=JOIN_TIMEOUT)
    await other.acall("push_stop", group=group)
    found = {message["body"]: message for message in taken}
    assert set(found) == {"single", "compressed " * 1000} | {f"b-{n}" for n in range(10)}
    single = found["single"]
    assert (single["tags"], single["keys"]) == ("red", "k1")
    assert single["properties"]["colour"] == "blau"


async def test_other_client_receives_by_tags(
    other: OtherClient, client: ClientInstance, topic: str
) -> None:
    async with open_producer(client=client) as producer:
        for number, tags in enumerate(["red", "green", "red", "blue"]):
            await producer.send(Message(topic, f"{tags}-{number}".encode(), tags=tags))
    group = f"tags-{topic}"
    await other.acall("push_start", group=group, topic=topic, tags="red || blue")
    taken = await other.acall("push_take", group=group, count=3, timeout=JOIN_TIMEOUT)
    taken += await other.acall("push_take", group=group, count=1, timeout=1)
    await other.acall("push_stop", group=group)
    assert sorted(m["body"] for m in taken) == ["blue-3", "red-0", "red-2"]


async def test_message_that_the_other_client_hands_back_comes_again(
    other: OtherClient, client: ClientInstance, topic: str
) -> None:
    group = f"again-{topic}"
    async with open_producer(client=client) as producer:
        await producer.send(Message(topic, b"difficult", keys="k1"))
    await other.acall("push_start", group=group, topic=topic, fail_times=1)
    first = await other.acall("push_take", group=group, count=1, timeout=JOIN_TIMEOUT)
    again = await other.acall("push_take", group=group, count=1, timeout=FIRST_RETRY)
    await other.acall("push_stop", group=group)
    assert [m["reconsume_times"] for m in first + again] == [0, 1]
    assert {m["body"] for m in first + again} == {"difficult"}
    assert again[0]["keys"] == "k1"


async def test_other_client_handles_a_queue_in_order(
    other: OtherClient, client: ClientInstance, topic: str
) -> None:
    """By the broker's locks: a second member of its own would be refused the queue."""
    group = f"orderly-{topic}"
    async with open_producer(client=client) as producer:
        for number in range(40):
            await producer.send(Message(topic, str(number).encode()), sharding_key="one")
    await other.acall("push_start", group=group, topic=topic, orderly=True)
    taken = await other.acall("push_take", group=group, count=40, timeout=JOIN_TIMEOUT)
    await other.acall("push_stop", group=group)
    assert [m["body"] for m in taken] == [str(number) for number in range(40)]


async def test_a_broadcast_reaches_it_and_ours(
    other: OtherClient, client: ClientInstance, topic: str, tmp_path: Path
) -> None:
    group = f"broadcast-{topic}"
    await other.acall("push_start", group=group, topic=topic, broadcast=True)
    async with (
        open_consumer(
            topic,
            group=group,
            mode="broadcasting",
            offsets_path=tmp_path / "offsets.json",
            client=client,
        ) as consumer,
        open_producer(client=client) as producer,
    ):
        await trio.sleep(2)  # both begin at the end of the queues
        await producer.send(Message(topic, b"for everybody"))
        with trio.fail_after(JOIN_TIMEOUT):
            assert (await consumer.receive()).body == b"for everybody"
        taken = await other.acall("push_take", group=group, count=1, timeout=JOIN_TIMEOUT)
    await other.acall("push_stop", group=group)
    assert [m["body"] for m in taken] == ["for everybody"]


# ---------------------------------------------------------------------- groups of both


async def test_rocketrio_client_continues_where_it_stopped(
    other: OtherClient, client: ClientInstance, topic: str
) -> None:
    group = f"handed-over-{topic}"
    async with open_producer(client=client) as producer:
        for number in range(20):
            await producer.send(Message(topic, f"early-{number}".encode()))
        await other.acall("push_start", group=group, topic=topic)
        taken = await other.acall("push_take", group=group, count=20, timeout=JOIN_TIMEOUT)
        assert len(taken) == 20
        await other.acall("push_stop", group=group)  # commits
        await producer.send(Message(topic, b"late"))
    async with open_admin(client=client) as admin:
        offsets = await admin.offsets(topic, group)
    assert sum(queue.lag or 0 for queue in offsets) == 1
    async with open_consumer(topic, group=group, client=client) as consumer:
        with trio.fail_after(JOIN_TIMEOUT):
            assert (await consumer.receive()).body == b"late"


async def test_other_client_shares_the_queues_with_ours(
    other: OtherClient, client: ClientInstance, topic: str
) -> None:
    group = f"shared-{topic}"
    queues = {MessageQueue(topic, "broker-a", number) for number in range(2)}
    async with open_consumer(topic, group=group, start_from="earliest", client=client) as consumer:
        await other.acall("push_start", group=group, topic=topic)
        await eventually(lambda: len(consumer.assignment) == 1, JOIN_TIMEOUT)
        (mine,) = consumer.assignment
        (its,) = queues - {mine}
        async with open_producer(client=client) as producer:
            for queue in (mine, its):
                await producer.send(Message(topic, str(queue.queue_id).encode()), queue=queue)
        with trio.fail_after(JOIN_TIMEOUT):
            assert (await consumer.receive()).queue_id == mine.queue_id
        taken = await other.acall("push_take", group=group, count=1, timeout=JOIN_TIMEOUT)
        assert [m["queue_id"] for m in taken] == [its.queue_id]
        await other.acall("push_stop", group=group)
        await eventually(lambda: set(consumer.assignment) == queues, JOIN_TIMEOUT)


# ---------------------------------------------------------------------- what only one of them can


@pytest.mark.parametrize("other", ["go"], indirect=True)
async def test_its_transactions_are_decided(
    other: OtherClient, client: ClientInstance, topic: str
) -> None:
    await other.acall("transaction", topic=topic, body="yes", state="commit")
    await other.acall("transaction", topic=topic, body="no", state="rollback")
    asked = await other.acall(
        "transaction", topic=topic, body="asked", state="unknown", timeout=40.0
    )
    assert asked == "asked"
    assert set(by_body(await received(client, topic, 2))) == {b"yes", b"asked"}


@pytest.mark.parametrize("other", ["go"], indirect=True)
async def test_other_client_receives_by_sql(
    other: OtherClient, client: ClientInstance, topic: str
) -> None:
    async with open_producer(client=client) as producer:
        for number in range(6):
            await producer.send(Message(topic, str(number).encode(), properties={"n": str(number)}))
    group = f"sql-{topic}"
    await other.acall("push_start", group=group, topic=topic, sql="n > 3")
    taken = await other.acall("push_take", group=group, count=2, timeout=JOIN_TIMEOUT)
    taken += await other.acall("push_take", group=group, count=1, timeout=1)
    await other.acall("push_stop", group=group)
    assert sorted(m["body"] for m in taken) == ["4", "5"]


@pytest.mark.parametrize("other", ["go"], indirect=True)
async def test_other_client_makes_and_deletes_topics(other: OtherClient, cluster: OurPair) -> None:
    await other.acall("create_topic", topic="made-by-go", address=cluster.master.address)
    assert "made-by-go" in await other.acall("topics")
    await other.acall("delete_topic", topic="made-by-go", address=cluster.master.address)
    assert "made-by-go" not in await other.acall("topics")


@pytest.mark.parametrize("other", ["cpp"], indirect=True)
async def test_other_client_pulls_without_a_group_of_members(
    other: OtherClient, client: ClientInstance, topic: str
) -> None:
    async with open_producer(client=client) as producer:
        for number in range(40):
            await producer.send(Message(topic, str(number).encode()))
    taken = await other.acall("pull", group="puller", topic=topic)
    assert sorted(int(m["body"]) for m in taken) == list(range(40))


# ---------------------------------------------------------------------- the master is gone; comes last


@pytest.mark.parametrize("other", ["cpp"], indirect=True)  # Go's asks only masters for offsets
async def test_other_client_continues_at_the_slave(
    other: OtherClient, cluster: OurPair, client: ClientInstance, topic: str
) -> None:
    async with open_producer(client=client) as producer:
        for number in range(10):
            await producer.send(Message(topic, str(number).encode()))
    group = f"without-master-{topic}"
    await other.acall("push_start", group=group, topic=topic)
    taken = await other.acall("push_take", group=group, count=10, timeout=JOIN_TIMEOUT)
    assert len(taken) == 10
    await other.acall("push_stop", group=group)
    await trio.sleep(1)  # the slave has it too
    cluster.master.kill()
    try:
        again = f"again-without-master-{topic}"
        await other.acall("push_start", group=again, topic=topic)
        taken = await other.acall("push_take", group=again, count=10, timeout=JOIN_TIMEOUT)
        assert sorted(int(m["body"]) for m in taken) == list(range(10))
        await other.acall("push_stop", group=again)
    finally:
        await trio.to_thread.run_sync(cluster.master.restart)
