"""Our group consumers on Apache's broker, and in one group with Apache's own: retries, dead letters, order, SQL92."""

import itertools
from collections import defaultdict
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import trio

from rocketrio import (
    BrokerError,
    ClientInstance,
    ConsumeLater,
    Message,
    MessageExt,
    MessageQueue,
    open_admin,
    open_client,
    open_consumer,
    open_producer,
)
from tests.interop.one_master import OneMaster, one_master_fixture
from tests.support.waiting import eventually

pytestmark = pytest.mark.interop

PATIENCE = 60.0
"""Seconds until a Java member has its queues, some of which look for them again only after 20 s."""


cluster = one_master_fixture(enablePropertyFilter="true")


@pytest.fixture
async def client(cluster: OneMaster) -> Any:
    async with open_client(name_servers=[cluster.name_server]) as opened:
        yield opened


@pytest.fixture
async def topic(cluster: OneMaster) -> str:
    return await trio.to_thread.run_sync(partial(cluster.new_topic, queues=2))


async def send(client: ClientInstance, topic: str, count: int) -> None:
    async with open_producer(client=client) as producer:
        for number in range(count):
            await producer.send(
                Message(topic, b"%d" % number, properties={"size": str(number)}),
                queue=MessageQueue(topic, "broker-a", number % 2),
            )


async def test_failed_message_comes_again_and_ends_as_a_dead_letter(
    client: ClientInstance, topic: str
) -> None:
    group = f"{topic}-g"
    await send(client, topic, 3)
    seen: list[tuple[str, bytes, int]] = []

    async def handle(message: MessageExt) -> None:
        seen.append((message.topic, message.body, message.reconsume_times))
        if message.body == b"1":
            raise ConsumeLater(timedelta(seconds=1))

    async with (
        open_admin(client=client) as admin,
        open_consumer(
            topic, group=group, start_from="earliest", max_reconsume_times=2, client=client
        ) as consumer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(consumer.run, handle)
        letters = admin.dead_letters(group)
        found: list[MessageExt] = []
        with trio.fail_after(PATIENCE):
            for _ in itertools.count():
                found = await letters.messages()
                if found:
                    break
                await trio.sleep(0.2)
        assert sorted(seen) == [(topic, b"0", 0), *((topic, b"1", times) for times in range(3)),
                                (topic, b"2", 0)]  # fmt: skip
        (letter,) = found
        assert (letter.topic, letter.body) == (topic, b"1")
        await letters.resend(found)
        await eventually(lambda: seen.count((topic, b"1", 0)) == 2, PATIENCE)
        await trio.sleep(3)  # So that it fails again and nothing is left over.
        nursery.cancel_scope.cancel()


async def test_message_that_we_hand_back_may_go_to_a_java_member(
    cluster: OneMaster, client: ClientInstance, topic: str
) -> None:
    group, java = f"{topic}-g", cluster.java
    ours: list[str] = []

    async def handle(message: MessageExt) -> None:
        ours.append(message.body.decode())
        if not message.reconsume_times:
            raise ConsumeLater(timedelta(seconds=1))

    async with (
        open_consumer(topic, group=group, start_from="earliest", client=client) as consumer,
        trio.open_nursery() as nursery,
    ):
        await java.acall("work_start", member=topic, group=group, topic=topic)
        await eventually(lambda: len(consumer.assignment) == 1, PATIENCE)
        nursery.start_soon(consumer.run, handle)
        await send(client, topic, 10)
        with trio.fail_after(PATIENCE):
            while True:
                theirs = [each["body"] for each in await java.acall("work_seen", member=topic)]
                firsts = set(ours)
                # Five at each member first, and our member's once more at the one that has the retry queue.
                if len(firsts) == 5 and len(ours) + len(theirs) == 15:
                    break
                await trio.sleep(0.2)
        await java.acall("work_stop", member=topic)
        nursery.cancel_scope.cancel()
    assert {*ours, *theirs} == {str(number) for number in range(10)}


def by_queue(handled: list[tuple[int, int]]) -> dict[int, list[int]]:
    """Offsets in the order in which they were handled."""
    found: dict[int, list[int]] = defaultdict(list)
    for queue_id, offset in handled:
        found[queue_id].append(offset)
    return found


async def test_order_is_kept_while_queues_move_to_a_java_member_and_back(
    cluster: OneMaster, client: ClientInstance, topic: str
) -> None:
    group, java, count = f"{topic}-g", cluster.java, 1000
    ours: list[tuple[int, int]] = []

    async def handle(message: MessageExt) -> None:
        await trio.sleep(0.03)
        ours.append((message.queue_id, message.queue_offset))

    async with (
        open_consumer(
            topic, group=group, orderly=True, start_from="earliest", client=client
        ) as consumer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(consumer.run, handle)
        await send(client, topic, count)
        await eventually(lambda: len(ours) >= 20, PATIENCE)
        await java.acall("work_start", member=topic, group=group, topic=topic, orderly=True)
        await java.seen(topic, 1, PATIENCE)
        await java.acall("work_stop", member=topic)
        seen = await java.acall("work_seen", member=topic)
        theirs = [(each["queue_id"], each["queue_offset"]) for each in seen]
        await eventually(lambda: len({*ours, *theirs}) >= count, PATIENCE)
        nursery.cancel_scope.cancel()
    for queue_id, offsets in by_queue(ours).items():
        assert offsets == sorted(set(offsets))
        if java_began := by_queue(theirs)[queue_id][:1]:
            gap = next((n for n, offset in enumerate(offsets) if offset != n), None)
            # What ours had finished was committed before it let go of the queue.
            assert gap is None or java_began[0] >= gap
    assert {*ours, *theirs} == {(queue, n) for queue in range(2) for n in range(count // 2)}


async def test_java_waits_for_our_lock(
    cluster: OneMaster, client: ClientInstance, topic: str
) -> None:
    group, java = f"{topic}-g", cluster.java
    await send(client, topic, 40)
    async with open_consumer(
        topic, group=group, orderly=True, start_from="earliest", client=client
    ) as consumer:
        with trio.fail_after(PATIENCE):
            while len(await consumer.receive_batch(40)) < 40:
                consumer.seek(MessageQueue(topic, "broker-a", 0), 0)
                consumer.seek(MessageQueue(topic, "broker-a", 1), 0)
                await trio.sleep(0.5)
        await java.acall("work_start", member=topic, group=group, topic=topic, orderly=True)
        await eventually(lambda: len(consumer.assignment) == 1, PATIENCE)
        await trio.sleep(2)
        assert await java.acall("work_seen", member=topic) == []  # Ours are in work still.
        consumer._settle()
        await trio.sleep(3)
        assert await java.acall("work_seen", member=topic) == []  # And they are committed now.
    await send(client, topic, 2)
    seen = await java.seen(topic, 2, PATIENCE)
    await java.acall("work_stop", member=topic)
    assert sorted(each["queue_offset"] for each in seen) == [20, 20]


async def test_expressions_choose_messages_at_the_broker(
    client: ClientInstance, topic: str
) -> None:
    await send(client, topic, 20)
    async with open_consumer(
        topic,
        group=f"{topic}-g",
        where="size > 14 OR size = 3",
        start_from="earliest",
        client=client,
    ) as consumer:
        with trio.fail_after(PATIENCE):
            bodies = [int((await consumer.receive()).body) for _ in range(6)]
        assert sorted(bodies) == [3, 15, 16, 17, 18, 19]
    with pytest.raises(BrokerError):
        async with open_consumer(topic, group=f"{topic}-h", where="size >>> 1", client=client):
            pass


async def test_offsets_of_broadcasting_members_are_in_one_file_with_javas(
    cluster: OneMaster, client: ClientInstance, topic: str
) -> None:
    group, java = f"{topic}-g", cluster.java
    path = java.home / f".rocketmq_offsets/127.0.0.1@working-{topic}/{group}/offsets.json"

    async def java_reads(count: int) -> list[str]:
        await java.acall("work_start", member=topic, group=group, topic=topic, broadcasting=True)
        seen = await java.seen(topic, count, PATIENCE)
        await java.acall("work_stop", member=topic)
        return sorted(each["body"] for each in seen)

    await send(client, topic, 4)
    assert await java_reads(4) == ["0", "1", "2", "3"]
    await send(client, topic, 2)
    async with open_consumer(
        topic,
        group=group,
        mode="broadcasting",
        start_from="earliest",
        offsets_path=path,
        client=client,
    ) as consumer:
        with trio.fail_after(PATIENCE):
            assert sorted([(await consumer.receive()).body for _ in range(2)]) == [b"0", b"1"]
        assert set((await consumer.max_offsets()).values()) == {3}
        assert {consumer.position(queue) for queue in consumer.assignment} == {3}
    async with open_producer(client=client) as producer:
        await producer.send(Message(topic, b"for java"))
    assert await java_reads(1) == ["for java"]
