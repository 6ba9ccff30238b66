"""Who uses the cluster while it breaks: producers, members of one group, and an operator, all with our own client.

Invariant: an actor takes its chances from its own source, so that one that waits longer changes no other's.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import attrs
import trio
from tests.cluster.histories.events import (
    CommitFailed,
    Committed,
    Lowered,
    Note,
    Received,
    SendAnswered,
    SendFailed,
    SendStarted,
    TopicCreated,
    now,
)
from tests.cluster.histories.readers import RecordingAPI, client_at
from tests.cluster.histories.schedule import MOVABLE_QUEUE, QUEUES, Visit
from tests.cluster.histories.uses.members import MEMBERS
from tests.cluster.histories.world import (
    BODY_AT,
    BROKER_NAME,
    FILL,
    GROUP,
    LATE_TOPIC,
    TOPIC,
    World,
)

from rocketrio import (
    CommitRefusedError,
    Consumer,
    Error,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    open_admin,
    open_consumer,
    open_producer,
)
from rocketrio_protocol.commands.offset import UpdateConsumerOffsetRequestHeader
from rocketrio_protocol.record.message_id import parse_offset_message_id

SEND_PAUSE: Final = 0.9
"""Mean seconds between two sends of a producer."""
SEND_TIMEOUT: Final = 3.0
LAST_SEND_LIMIT: Final = 60.0
"""Seconds after the last fault within which a producer reaches a master: routes are looked at every 30 s."""
BATCH: Final = 8
LATE_TOPICS: Final = 2
IDLE: Final = 2.0
"""Seconds without a message after which a consumer commits what it has."""
OPEN_AGAIN_PAUSE: Final = 1.0
RESET: Final = "an operator has reset"
"""Begins the error of a commit that a reset overtook; others say that the log became shorter, or who owns the queue."""
AUTO_COMMIT_INTERVAL: Final = 2.0


def queue_of(queue_id: int) -> MessageQueue:
    return MessageQueue(TOPIC, BROKER_NAME, queue_id)


# -------------------------------------------------------------------------------------------------- producers


async def produce(world: World, number: int) -> None:
    """One message or batch after the other, until sending ends."""
    name = f"producer-{number}"
    rng = world.rng(name)
    async with (
        client_at(world, world.host(name), name) as client,
        open_producer(group="producers", client=client, timeout=SEND_TIMEOUT) as producer,
    ):
        count = 0
        while trio.current_time() < world.schedule.sending_ends:
            size = rng.choice((1, 1, 1, 1, 3, 6))
            bodies = tuple(_body(rng, f"{number}.{count + index}") for index in range(size))
            count += size
            queue_id, waits = rng.randrange(QUEUES), rng.random() < 0.85
            await _send(world, name, producer, queue_id, bodies, waits or world.schedule.all_wait)
            await trio.sleep(rng.expovariate(1 / SEND_PAUSE))
        # Once more when all is mended: the master of that moment is to be found.
        await trio.sleep_until(world.schedule.faults_end)
        with trio.move_on_after(LAST_SEND_LIMIT):
            last = (f"{number}.last".encode(),)
            while not await _send(world, name, producer, 0, last, waits=True):  # noqa: ASYNC110
                await trio.sleep(SEND_PAUSE)


def _body(rng: random.Random, name: str) -> bytes:
    """A name of its own, and enough bytes to cross a file's end now and then."""
    return name.encode() + FILL * rng.choice((0, 10, 300))


async def _send(
    world: World,
    name: str,
    producer: Producer,
    queue_id: int,
    bodies: tuple[bytes, ...],
    waits: bool,
) -> bool:
    """Send them as one; whether it was answered."""
    started = now()
    messages = [Message(TOPIC, body, wait_store_ok=waits) for body in bodies]
    last_size = len(bodies[-1])
    bodies = tuple(body.rstrip(FILL) for body in bodies)
    world.history.add(
        SendStarted(at=started, producer=name, queue_id=queue_id, bodies=bodies, waits=waits)
    )
    try:
        if len(messages) == 1:
            result = await producer.send(messages[0], queue=queue_of(queue_id))
        else:
            result = await producer.send_batch(messages, queue=queue_of(queue_id))
    except Error as error:
        world.history.add(
            SendFailed(
                at=now(),
                producer=name,
                queue_id=queue_id,
                bodies=bodies,
                started=started,
                error=f"{type(error).__name__}: {error}",
            )
        )
        return False
    host, _, physical_offset = parse_offset_message_id(result.offset_message_ids[-1])
    world.history.add(
        SendAnswered(
            at=now(),
            producer=name,
            broker=world.number(host),
            queue_id=queue_id,
            bodies=bodies,
            waits=waits,
            started=started,
            status=result.status.name,
            queue_offset=result.queue_offset,
            end_offset=physical_offset + BODY_AT + last_size,
            held_by=world.held_by(),
        )
    )
    return True


# -------------------------------------------------------------------------------------------------- consumers


async def visit(world: World, number: int, visits: tuple[Visit, ...]) -> None:
    """A consumer that comes and goes, each time from a host of its own; the last stay ends with the run."""
    name = f"consumer-{number}"
    for index, stay in enumerate(visits):
        await trio.sleep_until(stay.begins)
        host = world.new_host(name, index)
        world.history.add(Note(at=now(), who=name, text=f"comes {stay}"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_consume, world, name, host, f"{name}/{index}", stay)
            for use in world.schedule.uses:
                if use in MEMBERS:
                    nursery.start_soon(MEMBERS[use], world, host, f"{name}/{index}", stay)
            if stay.ends >= world.schedule.sending_ends:
                await trio.sleep_forever()
            await trio.sleep_until(stay.ends)
            if stay.crashes:
                world.cluster.memory_network.silence(host)
            nursery.cancel_scope.cancel()
        world.history.add(Note(at=now(), who=name, text="is gone"))


async def _consume(world: World, name: str, host: str, who: str, stay: Visit) -> None:
    """Open a consumer, again and again while the cluster is away, and work."""
    rng = world.rng(who)
    while True:
        try:
            async with (
                client_at(world, host, who) as client,
                open_consumer(
                    TOPIC,
                    group=GROUP,
                    client=client,
                    start_from="earliest",
                    auto_commit=stay.auto_commit,
                    auto_commit_interval=AUTO_COMMIT_INTERVAL,
                ) as consumer,
            ):
                client.api = RecordingAPI(client.api.pool, world, name)
                await _work(world, name, consumer, stay, rng)
        except Error as error:
            world.history.add(Note(at=now(), who=name, text=f"cannot read: {error}"))
            await trio.sleep(OPEN_AGAIN_PAUSE)


async def _work(
    world: World, name: str, consumer: Consumer, stay: Visit, rng: random.Random
) -> None:
    while True:
        batch: list[MessageExt] = []
        with trio.move_on_after(IDLE):
            batch = await consumer.receive_batch(BATCH)
        for message in batch:
            world.history.add(
                Received(
                    at=now(),
                    consumer=name,
                    queue_id=message.queue_id,
                    queue_offset=message.queue_offset,
                    body=message.body.rstrip(FILL),
                )
            )
        if batch and rng.random() < 0.1:
            await trio.sleep(rng.choice((0.5, 4.0)))
        if not world.is_ending and rng.random() < 0.03:
            await _seek(world, name, consumer, rng)
        if not batch or not stay.auto_commit:
            await _commit(world, name, consumer)


async def _commit(world: World, name: str, consumer: Consumer) -> None:
    assignment = consumer.assignment
    positions = [(queue.queue_id, consumer.position(queue)) for queue in assignment]
    try:
        await consumer.commit()
    except CommitRefusedError as error:
        world.history.add(CommitFailed(at=now(), consumer=name, error=str(error)))
        if RESET in str(error):
            await _obey_reset(world, name, consumer)
        return
    except Error as error:
        world.history.add(CommitFailed(at=now(), consumer=name, error=str(error)))
        return
    # Of a queue that was lost meanwhile nothing is said: the commit leaves it out without a word. And of one that has
    # lost its end the position falls while a commit waits for the broker: what lies below is then committed.
    kept = {queue.queue_id: consumer.position(queue) for queue in consumer.assignment}
    offsets = tuple(
        (queue_id, min(offset, now_at))
        for queue_id, offset in positions
        if offset is not None and (now_at := kept.get(queue_id)) is not None
    )
    if offsets:
        world.history.add(
            Committed(
                at=now(),
                consumer=name,
                offsets=offsets,
                held_by=world.all_offsets(),
                all_seen=world.all_seen,
                queue_ends=world.queue_ends(world.master) if world.master.is_running else (),
            )
        )


async def _obey_reset(world: World, name: str, consumer: Consumer) -> None:
    """An operator has put the group elsewhere: go on from there, as the error says."""
    queue = queue_of(MOVABLE_QUEUE)
    try:
        offset = await consumer.committed_offset(queue)
        if isinstance(offset, int) and queue in consumer.assignment:
            with _lowering(world, name, offset) as outcome:
                consumer.seek(queue, offset)
                outcome.text = "obeys a reset, and commits later"
    except Error as error:
        world.history.add(Note(at=now(), who=name, text=f"cannot obey: {error}"))


async def _seek(world: World, name: str, consumer: Consumer, rng: random.Random) -> None:
    queue = queue_of(MOVABLE_QUEUE)
    if queue not in consumer.assignment:
        return
    position = consumer.position(queue)
    if not position:
        return
    offset = rng.randrange(position)
    with _lowering(world, name, offset) as outcome:
        consumer.seek(queue, offset)
        try:
            await consumer.commit()
            outcome.text = "done"
        except Error as error:
            outcome.text = str(error)


# --------------------------------------------------------------------------------------------------- operator


async def make_topics(world: World) -> None:
    """Topics that come while things break: sooner or later every broker has those that were confirmed."""
    rng = world.rng("topics")
    async with (
        client_at(world, "10.0.3.3", "topics") as client,
        open_admin(client=client) as admin,
    ):
        for number in range(LATE_TOPICS):
            await trio.sleep(rng.uniform(3, world.schedule.faults_end / LATE_TOPICS))
            topic = f"{LATE_TOPIC}{number}"
            try:
                await admin.create_topic(topic, queues=1)
            except Error as error:
                world.history.add(Note(at=now(), who="operator", text=f"no {topic}: {error}"))
            else:
                broker = world.number(world.master.host)
                world.history.add(TopicCreated(at=now(), topic=topic, broker=broker))


async def operate(world: World) -> None:
    """Reset the movable queue: as our tools do, or as Apache's, by a commit without more, the last one wins."""
    rng = world.rng("operator")
    async with (
        client_at(world, "10.0.3.0", "operator") as client,
        open_admin(client=client) as admin,
    ):
        for at in world.schedule.resets:
            await trio.sleep_until(at)
            committed = [
                offset for _, queue_id, offset in world.all_offsets() if queue_id == MOVABLE_QUEUE
            ]
            offset = rng.randrange(max(committed, default=0) + 1)
            is_ours = rng.random() < 0.6
            if not is_ours and world.master.is_running:
                # No broker keeps Apache's tools from skipping messages to come: their user looks first.
                end = world.master.broker.store.next_queue_offset(TOPIC, MOVABLE_QUEUE)
                offset = min(offset, end)
            header = UpdateConsumerOffsetRequestHeader(GROUP, TOPIC, MOVABLE_QUEUE, offset)
            with _lowering(world, "operator" if is_ours else "mqadmin", offset) as outcome:
                try:
                    if is_ours:
                        await admin.reset_offsets(GROUP, {queue_of(MOVABLE_QUEUE): offset})
                    else:
                        await client.api.call(f"{world.master.host}:10911", header, what="reset")
                    outcome.text = "done"
                except Error as error:
                    outcome.text = str(error)


@attrs.define
class _Outcome:
    text: str = "done"


@contextmanager
def _lowering(world: World, who: str, offset: int) -> Iterator[_Outcome]:
    """Notes the beginning and the end of an attempt to lower an offset: it counts from its beginning on."""

    def note(outcome: str) -> None:
        held_by = tuple(
            (broker, held)
            for broker, queue_id, held in world.all_offsets()
            if queue_id == MOVABLE_QUEUE
        )
        world.history.add(
            Lowered(
                at=now(),
                who=who,
                queue_id=MOVABLE_QUEUE,
                offset=offset,
                outcome=outcome,
                held_by=held_by,
            )
        )

    note("begins")
    outcome = _Outcome("cancelled")
    yield outcome
    note(outcome.text)
