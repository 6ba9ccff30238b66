"""Groups across products, both ways: members of Java and ours share queues, see each other's offsets, follow resets.

What Java's consumers do on our broker stands beside what they do on Apache's: where a new group starts, broadcasting.
"""

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import trio

from rocketrio import (
    NOT_FOUND,
    ClientInstance,
    Message,
    MessageQueue,
    open_admin,
    open_client,
    open_consumer,
    open_producer,
)
from tests.interop.conftest import OnApache, OnOurs
from tests.support import wire
from tests.support.waiting import eventually

pytestmark = pytest.mark.interop

NUMBERS = itertools.count()
PATIENCE = 75.0
"""Seconds until a Java member has its queues; some look for them again only after 20 s."""


@pytest.fixture
def topic(side: OnApache | OnOurs) -> str:
    """A new topic with two queues."""
    name = f"groups-{next(NUMBERS)}"
    return side.java.create_topic(name, at=side.master.address, queues=2)


@pytest.fixture
async def client(side: OnApache | OnOurs) -> Any:
    async with open_client(name_servers=[side.name_server]) as opened:
        yield opened


async def fill(client: ClientInstance, topic: str, count: int) -> None:
    """Send `count` numbers, of which each queue gets every second one."""
    async with open_producer(client=client) as producer:
        for number in range(count):
            await producer.send(
                Message(topic, str(number).encode()),
                queue=MessageQueue(topic, "broker-a", number % 2),
            )


# ---------------------------------------------------------------------- members of both


async def test_queues_are_shared_while_a_java_member_comes_and_goes(
    side: OnApache | OnOurs, client: ClientInstance, topic: str
) -> None:
    java, group = side.java, f"shared-{topic}"
    both = {MessageQueue(topic, "broker-a", number) for number in range(2)}
    async with open_consumer(topic, group=group, start_from="earliest", client=client) as consumer:
        await eventually(lambda: set(consumer.assignment) == both, PATIENCE)
        await java.acall("work_start", member=topic, group=group, topic=topic)
        await eventually(lambda: len(consumer.assignment) == 1, PATIENCE)
        (mine,) = consumer.assignment
        await fill(client, topic, 20)
        with trio.fail_after(PATIENCE):
            ours = [int((await consumer.receive()).body) for _ in range(10)]
        theirs = [int(each["body"]) for each in await java.seen(topic, 10, PATIENCE)]
        assert ours == list(range(mine.queue_id, 20, 2))
        assert sorted(theirs) == list(range(1 - mine.queue_id, 20, 2))
        await java.acall("work_stop", member=topic)
        await eventually(lambda: set(consumer.assignment) == both, PATIENCE)
        await fill(client, topic, 4)
        with trio.fail_after(PATIENCE):
            ours = sorted([int((await consumer.receive()).body) for _ in range(4)])
        assert ours == list(range(4)), "Java committed what it had, and nothing comes twice"


async def test_each_client_continues_where_the_other_stopped(
    side: OnApache | OnOurs, client: ClientInstance, topic: str
) -> None:
    java, group = side.java, f"handed-over-{topic}"
    await fill(client, topic, 20)
    async with open_consumer(topic, group=group, start_from="earliest", client=client) as consumer:
        with trio.fail_after(PATIENCE):
            for _ in range(20):
                await consumer.receive()
    rows = await java.acall("consume_stats", topic=topic, group=group)
    assert {row["consumer_offset"] for row in rows if row["topic"] == topic} == {10}
    await fill(client, topic, 6)
    await java.acall("work_start", member=topic, group=group, topic=topic)
    theirs = await java.seen(topic, 6, PATIENCE)
    await java.acall("work_stop", member=topic)
    assert sorted(each["queue_offset"] for each in theirs) == [10, 10, 11, 11, 12, 12]
    await fill(client, topic, 2)
    async with open_consumer(topic, group=group, client=client) as consumer:
        with trio.fail_after(PATIENCE):
            assert [(await consumer.receive()).queue_offset for _ in range(2)] == [13, 13]


# ---------------------------------------------------------------------- where a new group starts


async def test_a_java_group_that_never_committed_starts_where_it_does_on_apache(
    side: OnApache | OnOurs, client: ClientInstance, topic: str
) -> None:
    """On a young queue everybody is at its beginning, also who asks for the end: the broker answers 0."""
    java = side.java
    await fill(client, topic, 6)
    for start in ("FIRST", "LAST", "TIMESTAMP"):
        member = f"{start}-{topic}"
        # Not by the Java client: a consumer that is asked would be a second member.
        asked = {"consumerGroup": member, "topic": topic, "queueId": "0"}
        answer = wire.ask(side.master.address, wire.QUERY_CONSUMER_OFFSET, asked)
        assert (answer.code, answer.ext_fields["offset"]) == (0, "0")
        await java.acall("work_start", member=member, group=member, topic=topic, **{"from": start})
    for start in ("FIRST", "LAST", "TIMESTAMP"):
        member = f"{start}-{topic}"
        bodies = [each["body"] for each in await java.seen(member, 6, PATIENCE)]
        await java.acall("work_stop", member=member)
        assert sorted(bodies) == [str(number) for number in range(6)], start


async def test_our_consumer_learns_that_a_group_never_committed(
    side: OnApache | OnOurs, client: ClientInstance, topic: str
) -> None:
    """By ours and by 5.x, whose `setZeroIfNotFound=false` it sends; 4.9 knows 0 only."""
    await fill(client, topic, 2)
    async with open_admin(client=client) as admin:
        offsets = await admin.offsets(topic, f"never-{topic}")
    is_old = isinstance(side, OnApache) and side.version.startswith("4.")
    assert {each.committed_offset for each in offsets} == ({0} if is_old else {None})
    async with open_consumer(
        topic, group=f"never-{topic}", start_from="earliest", client=client
    ) as consumer:
        await eventually(lambda: len(consumer.assignment) == 2, PATIENCE)
        first = MessageQueue(topic, "broker-a", 0)
        assert await consumer.committed_offset(first) == (0 if is_old else NOT_FOUND)


# ---------------------------------------------------------------------- resets


async def test_members_of_both_follow_a_reset_by_javas_tool(
    side: OnApache | OnOurs, client: ClientInstance, topic: str
) -> None:
    """4.9.7 and ours tell members of it (220); 5.3.3 answers their next pull with where it is to go on."""
    java, group = side.java, f"reset-{topic}"
    await fill(client, topic, 20)
    received: list[int] = []
    async with (
        open_consumer(topic, group=group, start_from="earliest", client=client) as consumer,
        trio.open_nursery() as nursery,
    ):
        await java.acall("work_start", member=topic, group=group, topic=topic)
        await eventually(lambda: len(consumer.assignment) == 1, PATIENCE)
        (mine,) = consumer.assignment

        async def handle(message: Any) -> None:
            await trio.lowlevel.checkpoint()
            received.append(message.queue_offset)

        nursery.start_soon(consumer.run, handle)
        # Perhaps all queues at our member, before Java came; then one queue each.
        await eventually(lambda: len(received) >= 10, PATIENCE)
        await trio.sleep(6)  # Both have committed once more.
        before = len(received), len(await java.acall("work_seen", member=topic))
        words = ["resetOffsetByTime", "-g", group, "-t", topic, "-s", "0"]
        assert topic in await java.acall("mqadmin", words=words)
        await eventually(lambda: len(received) >= before[0] + 10, PATIENCE)
        assert sorted(received[before[0] :]) == list(range(10))
        if isinstance(side, OnOurs):
            # Java waits 10 s before it goes where the broker sends it.
            await java.seen(topic, before[1] + 10, PATIENCE)
        with trio.fail_after(PATIENCE):
            while await consumer.committed_offset(mine) != 10:  # noqa: ASYNC110
                await trio.sleep(0.5)
        nursery.cancel_scope.cancel()
    await java.acall("work_stop", member=topic)


async def test_java_group_is_reset_by_rocketrio_and_continues_there(
    side: OnApache | OnOurs, client: ClientInstance, topic: str
) -> None:
    java, group = side.java, f"ours-reset-{topic}"
    await fill(client, topic, 10)
    await java.acall("work_start", member=topic, group=group, topic=topic)
    await java.seen(topic, 10, PATIENCE)
    await java.acall("work_stop", member=topic)
    async with open_admin(client=client) as admin:
        yesterday = datetime.now(UTC) - timedelta(days=1)
        resets = await admin.reset_to_time(topic, group, yesterday)
    assert {(each.committed_offset, each.target_offset) for each in resets} == {(5, 0)}
    await java.acall("work_start", member=f"again-{topic}", group=group, topic=topic)
    again = await java.seen(f"again-{topic}", 10, PATIENCE)
    await java.acall("work_stop", member=f"again-{topic}")
    assert sorted(int(each["body"]) for each in again) == list(range(10))


# ---------------------------------------------------------------------- to everybody


async def test_java_broadcasts_as_ours_does(
    side: OnApache | OnOurs, client: ClientInstance, topic: str, tmp_path: Any
) -> None:
    """Two of Java's members and one of rocketrio's: each gets everything, and nothing is committed at the broker."""
    java, group = side.java, f"broadcast-{topic}"
    members = [f"{number}-{topic}" for number in range(2)]
    for member in members:
        await java.acall("work_start", member=member, group=group, topic=topic, broadcasting=True)
    async with open_consumer(
        topic,
        group=group,
        mode="broadcasting",
        start_from="earliest",
        offsets_path=tmp_path / "offsets.json",
        client=client,
    ) as consumer:
        await fill(client, topic, 10)
        with trio.fail_after(PATIENCE):
            ours = sorted([int((await consumer.receive()).body) for _ in range(10)])
    assert ours == list(range(10))
    for member in members:
        assert sorted(int(each["body"]) for each in await java.seen(member, 10, PATIENCE)) == ours
        await java.acall("work_stop", member=member)
    stored = wire.ask(side.master.address, wire.GET_ALL_CONSUMER_OFFSET).json()["offsetTable"]
    assert f"{topic}@{group}" not in stored
