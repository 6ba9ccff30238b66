"""A topic that is deleted and created again, or a group that is deleted, while a member runs.

    FIRST messages are handled and committed | the topic is deleted and created again | more messages are sent

Nothing of the new topic is skipped, whatever its length, nothing comes twice, and commits are stored again.
"""

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
import trio
from tests.support.further import every_other
from tests.support.orders import TOPIC, committed, make_topic

from rocketrio import (
    ClientInstance,
    CommitRefusedError,
    Consumer,
    Message,
    MessageExt,
    MessageQueue,
    open_admin,
    open_consumer,
    open_producer,
)
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_broker.offsets import manager
from rocketrio_broker.offsets.reader_places import ReaderPlaces
from rocketrio_broker.requests.steps import in_steps

GROUP: Final = "g"
FIRST: Final = 10
QUEUE: Final = MessageQueue(TOPIC, "broker-a", 0)
SOON: Final = 12.0
"""Seconds in which a member notices: two intervals of commits, and a pull after an error."""
REAFFIRMED: Final = 45.0
"""Seconds in which a member commits again what brokers have acknowledged, and so notices that it is gone."""
LENGTHS: Final = [FIRST - 4, FIRST, 3 * FIRST]


@attrs.define
class Story:
    """A consumer, and the bodies of the messages that it handled."""

    client: ClientInstance
    consumer: Consumer
    seen: list[bytes] = attrs.Factory(list)
    taken: int = 0

    async def send(self, name: str, count: int) -> list[bytes]:
        """Send messages to the first queue; return their bodies."""
        await self.client.refresh_topic_route(TOPIC)
        bodies = [f"{name}{number}".encode() for number in range(count)]
        async with open_producer(client=self.client) as producer:
            for body in bodies:
                await producer.send(Message(TOPIC, body), queue=QUEUE)
        return bodies

    async def make_again(self, *, queues: int = 1) -> None:
        async with open_admin(client=self.client) as admin:
            await admin.delete_topic(TOPIC)
            await admin.create_topic(TOPIC, queues=queues)

    async def delete_group(self) -> None:
        async with open_admin(client=self.client) as admin:
            await admin.delete_group(GROUP)

    async def take(self, seconds: float = SOON) -> list[bytes]:
        """Return what was handled since the last call, after this time."""
        await trio.sleep(seconds)
        before, self.taken = self.taken, len(self.seen)
        return self.seen[before:]

    @property
    def dropped_commits(self) -> int:
        return self.consumer.statistics().queues[QUEUE].dropped_commits


async def loop(told: Story) -> None:
    async for message in told.consumer:
        told.seen.append(message.body)


async def lists(told: Story) -> None:
    async for messages in told.consumer.batches(4):
        told.seen += [message.body for message in messages]


async def tables(told: Story) -> None:
    while True:
        table = await told.consumer.read_arrow(4, columns=["body"])
        told.seen += table.column("body").to_pylist()


async def handlers(told: Story) -> None:
    async def handle(message: MessageExt) -> None:
        told.seen.append(message.body)

    await told.consumer.run(handle, concurrency=1)


READERS: Final = [loop, lists, tables, handlers]


@asynccontextmanager
async def reading(
    client: ClientInstance, read: Callable[[Story], Any] = loop, **options: Any
) -> AsyncGenerator[Story]:
    """A consumer that handles what comes."""
    options = {"group": GROUP, "start_from": "earliest"} | options
    async with open_consumer(TOPIC, client=client, **options) as consumer:
        told = Story(client, consumer)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read, told)
            yield told
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def story(client: ClientInstance, *args: Any, **options: Any) -> AsyncGenerator[Story]:
    """A consumer that has handled and committed FIRST messages."""
    await make_topic(client, TOPIC, queues=1)
    async with reading(client, *args, **options) as told:
        await trio.sleep(1)
        first = await told.send("first", FIRST)
        assert await told.take() == first
        yield told


async def check_restart(client: ClientInstance, **options: Any) -> None:
    """Check that a later member gets nothing again."""
    async with reading(client, **options) as told:
        assert await told.take() == []


@pytest.mark.parametrize(
    ("count", "start_from"),
    [*((count, "earliest") for count in LENGTHS), (LENGTHS[0], "latest"), (LENGTHS[-1], "end")],
)
async def test_topic_created_again_is_read_whole_and_committed(
    count: int, start_from: str, client: ClientInstance
) -> None:
    async with story(client, start_from=start_from) as told:
        await told.make_again()
        second = await told.send("second", count)
        assert await told.take() == second
        assert await committed(told.consumer) == {0: count}
        third = await told.send("third", 3)
        assert await told.take() == third
        assert await committed(told.consumer) == {0: count + 3}
        assert told.dropped_commits == 0
    await check_restart(client)


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("orderly", every_other([False, True]))
async def test_every_way_of_reading_begins_again(
    read: Callable[[Story], Any], orderly: bool, client: ClientInstance
) -> None:
    async with story(client, read, orderly=orderly) as told:
        await told.make_again()
        second = await told.send("second", 3 * FIRST)
        assert await told.take() == second
        assert await committed(told.consumer) == {0: 3 * FIRST}
    await check_restart(client)


@pytest.mark.slow
async def test_new_topic_is_read_from_the_time_that_start_from_names(
    client: ClientInstance,
) -> None:
    async with story(client, start_from=datetime(2020, 1, 1, tzinfo=UTC)) as told:
        await told.make_again()
        second = await told.send("second", FIRST)
        assert await told.take() == second
    later = datetime.fromtimestamp(client.wall_clock.now_ms() / 1000 + 60, UTC)
    async with reading(client, start_from=later) as told:
        await told.make_again()
        await told.send("early", FIRST)
        assert await told.take(60 + SOON) == []
        late = await told.send("late", 3)
        assert await told.take() == late


@pytest.mark.parametrize("count", LENGTHS)
async def test_paused_member_begins_again_when_it_resumes(
    count: int, client: ClientInstance
) -> None:
    async with story(client) as told:
        told.consumer.pause()
        await told.make_again()
        second = await told.send("second", count)
        assert await told.take() == []
        told.consumer.resume()
        assert await told.take() == second
        assert await committed(told.consumer) == {0: count}
    await check_restart(client)


@pytest.mark.slow
async def test_topic_with_fewer_queues_is_read_whole(client: ClientInstance) -> None:
    async with story(client) as told:
        await told.make_again(queues=4)
        await trio.sleep(60)
        async with open_producer(client=client) as producer:
            for number in range(8):
                queue = attrs.evolve(QUEUE, queue_id=number % 4)
                await producer.send(Message(TOPIC, b"%d" % number), queue=queue)
        assert len(await told.take()) == 8
        await told.make_again(queues=1)
        second = await told.send("second", FIRST)
        assert await told.take() == second
        await trio.sleep(60)
        assert await committed(told.consumer) == {0: FIRST}


@pytest.mark.slow
async def test_topic_that_is_missing_for_minutes_is_read_whole(client: ClientInstance) -> None:
    async with story(client) as told:
        async with open_admin(client=client) as admin:
            await admin.delete_topic(TOPIC)
            await trio.sleep(150)
            await admin.create_topic(TOPIC, queues=1)
        second = await told.send("second", FIRST)
        assert await told.take(60) == second
        assert await committed(told.consumer) == {0: FIRST}


async def test_commit_by_hand_is_refused_once_and_stored_after_the_queue_began_again(
    client: ClientInstance,
) -> None:
    async with story(client, auto_commit=False) as told:
        told.consumer.pause()
        await told.make_again()
        with pytest.raises(
            CommitRefusedError, match="was deleted, with the topic or with the group"
        ):
            await told.consumer.commit()
        assert told.dropped_commits == 1
        told.consumer.resume()
        second = await told.send("second", FIRST - 4)
        assert await told.take() == second
        await told.consumer.commit()
        assert await committed(told.consumer) == {0: FIRST - 4}
        assert told.dropped_commits == 0


async def test_seek_in_the_new_topic_counts(client: ClientInstance) -> None:
    async with story(client) as told:
        told.consumer.pause()
        await told.make_again()
        second = await told.send("second", FIRST)
        told.consumer.seek(QUEUE, 4)
        told.consumer.resume()
        assert await told.take(REAFFIRMED) == second[4:]
        assert await committed(told.consumer) == {0: FIRST}


# ------------------------------------------------------------------------------------- deleted groups


@pytest.mark.parametrize("start_from", ["earliest", "end"])
@pytest.mark.parametrize("is_paused", [False, True])
async def test_member_of_a_deleted_group_keeps_its_position_and_commits_again(
    is_paused: bool, start_from: str, client: ClientInstance
) -> None:
    async with story(client, start_from=start_from) as told:
        if is_paused:
            told.consumer.pause()
        await told.delete_group()
        second = await told.send("second", 3)
        assert await told.take() == ([] if is_paused else second)
        told.consumer.resume()
        assert await told.take() == (second if is_paused else [])
        assert await committed(told.consumer) == {0: FIRST + 3}
        assert told.dropped_commits == 0
    await check_restart(client)


async def test_idle_member_of_a_deleted_group_commits_again(client: ClientInstance) -> None:
    async with story(client) as told:
        await told.delete_group()
        assert await told.take(REAFFIRMED) == []
        assert await committed(told.consumer) == {0: FIRST}


async def test_group_and_topic_deleted_together(client: ClientInstance) -> None:
    async with story(client) as told:
        await told.delete_group()
        await told.make_again()
        second = await told.send("second", 2 * FIRST)
        assert await told.take() == second
        assert await committed(told.consumer) == {0: 2 * FIRST}
    await check_restart(client)


# -------------------------------------------------------------------------- broadcasting, other brokers


@pytest.mark.parametrize(
    ("count", "runs"), [*((count, True) for count in LENGTHS), (LENGTHS[0], False)]
)
async def test_broadcasting_member_begins_again(
    runs: bool, count: int, client: ClientInstance, tmp_path: Path
) -> None:
    """Also one that did not run meanwhile: its file says to which topic its offsets belong."""
    options: dict[str, Any] = {"mode": "broadcasting", "offsets_path": tmp_path / "offsets.json"}
    async with story(client, **options) as told:
        if runs:
            await told.make_again()
            second = await told.send("second", count)
            assert await told.take() == second
    if not runs:
        await told.make_again()
        second = await told.send("second", count)
        async with reading(client, **options) as told:
            assert await told.take() == second
    await check_restart(client, **options)


@pytest.mark.slow
@pytest.mark.parametrize("count", [LENGTHS[0], LENGTHS[-1]])
@pytest.mark.usefixtures("slave")
async def test_member_that_reads_from_a_slave_begins_again(
    count: int, client: ClientInstance
) -> None:
    """A slave moves no reader: it sends this one to the master."""
    async with story(client, read_from="replica", max_staleness=10) as told:
        await told.make_again()
        second = await told.send("second", count)
        assert await told.take(2 * SOON) == second
        assert await committed(told.consumer) == {0: count}
    await check_restart(client)


@pytest.mark.slow
@pytest.mark.parametrize("count", [LENGTHS[0], LENGTHS[-1]])
@pytest.mark.usefixtures("slave")
async def test_member_begins_again_at_the_next_master(
    count: int, client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    """No report of the deletion came from the broker that carried it out."""
    async with story(client) as told:
        told.consumer.pause()
        await told.make_again()
        second = await told.send("second", count)
        await trio.sleep(15)
        slave = cluster.slaves[0].broker
        await cluster.kill_master()
        async with open_admin(client=client) as admin:
            await admin.change_role(slave.address, "async-master", 0)
        told.consumer.resume()
        assert await told.take(60) == second
        assert await committed(told.consumer) == {0: count}


@pytest.mark.parametrize("count", LENGTHS)
@pytest.mark.parametrize("by", ["topic", "group"])
async def test_broker_of_an_earlier_version_is_committed_to_again(
    by: str, count: int, client: ClientInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not say which of both was deleted: the queue is read from its beginning, so that nothing is skipped."""
    monkeypatch.setattr(ReaderPlaces, "of_epoch", lambda places, epoch, topic: epoch)
    async with story(client) as told:
        everything = list(told.seen) if by == "group" else []
        await (told.delete_group() if by == "group" else told.make_again())
        second = await told.send("second", count)
        assert set(await told.take(2 * SOON)) >= {*everything, *second[min(FIRST, count) :]}
        assert await committed(told.consumer) == {0: len(everything) + count}


async def test_position_is_not_moved_while_the_old_messages_are_still_there(
    client: ClientInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets are removed before the messages; a pull in between must not read the old ones once more."""

    async def slowly(work: Generator[None, None, None]) -> None:
        await in_steps(work)
        await trio.sleep(4)

    monkeypatch.setattr(manager, "in_steps", slowly)
    async with story(client) as told, trio.open_nursery() as nursery:
        nursery.start_soon(told.make_again)
        await trio.sleep(1)
        late = await told.send("late", 2)
        assert await told.take(2) == late
        await trio.sleep(2)
        second = await told.send("second", FIRST)
        assert await told.take() == second
        assert await committed(told.consumer) == {0: FIRST}


async def test_commit_from_before_the_deletion_is_dropped(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    """Whatever its generation says, as after a seek or by another broker."""
    async with story(client) as told:
        place = told.consumer._assigned.offsets.epoch(QUEUE)
        await told.make_again()
        master = cluster.master.broker
        claimed = await client.api.claim_queue(master.address, GROUP, QUEUE, "other")
        answer = await client.api.update_consumer_offset(
            master.address, GROUP, QUEUE, 7,
            generation=claimed.generation, ownership=claimed.ownership, epoch=place,
        )  # fmt: skip
        assert answer.outcome == "reset"
        assert master.state.consumer_offsets.query_offset(GROUP, TOPIC, 0) == -1
