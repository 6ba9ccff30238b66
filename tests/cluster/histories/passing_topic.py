"""A topic that is deleted and created again while things break: each life of it has messages and offsets of its own.

A group's offset is committed behind each message that was acknowledged, so that an offset of an earlier life would skip
messages of this one.
"""

from typing import Final

import trio
from tests.cluster.histories.events import Note, PassingPulled, PassingSent, TopicRemade, now
from tests.cluster.histories.readers import client_at
from tests.cluster.histories.world import BODY_AT, BROKER_NAME, World
from tests.support.caller import SUBSCRIPTION

from rocketrio import (
    ClientInstance,
    Error,
    Message,
    MessageQueue,
    Producer,
    RouteNotFoundError,
    open_admin,
    open_producer,
)
from rocketrio.admin import Admin
from rocketrio_protocol.commands.offset import UpdateConsumerOffsetRequestHeader
from rocketrio_protocol.commands.pull import PullMessageRequestHeader
from rocketrio_protocol.message import decode_messages
from rocketrio_protocol.record.message_id import parse_offset_message_id
from rocketrio_protocol.remoting.tasks import every

PASSING: Final = "passing"
PASSERS: Final = "passers"
PASSING_QUEUES: Final = 2
SEND_PAUSE: Final = 0.6
TRY_AGAIN: Final = 1.0
LOOK_PERIOD: Final = 3.0
LOOK_LIMIT: Final = 3.0
HOST: Final = "10.0.3.5"


async def live_and_die(world: World) -> None:
    """One life after the other; the last one goes on until sending ends."""
    ends = world.schedule.remakes
    if not ends:
        return
    async with (
        client_at(world, HOST, "passing") as client,
        open_admin(client=client) as admin,
        open_producer(group="passing", client=client, timeout=LOOK_LIMIT) as producer,
    ):
        await admin.create_topic(PASSING, queues=PASSING_QUEUES)
        for life, end in enumerate((*ends, world.schedule.sending_ends)):
            if life:
                await _remake(world, admin, life)
            await _live(world, client, producer, life, end)


async def _remake(world: World, admin: Admin, life: int) -> None:
    """Delete it and create it again, each until it is confirmed."""
    is_deleted = False
    while True:
        try:
            if not is_deleted:
                await _delete(world, admin)
                is_deleted = True
            await admin.create_topic(PASSING, queues=PASSING_QUEUES)
        except Error as error:
            world.history.add(Note(at=now(), who="passing", text=f"not remade: {error}"))
            await trio.sleep(TRY_AGAIN)
        else:
            offsets = world.offsets(world.master, group=PASSERS, topic=PASSING)
            world.history.add(
                TopicRemade(at=now(), life=life, offsets=offsets, log_end=world.master_log_end)
            )
            return


async def _delete(world: World, admin: Admin) -> None:
    """Delete it, unless a deletion that was not answered did so.

    A master that was made so before it copied the topic has its messages and offsets: there it is created first.
    """
    try:
        await admin.delete_topic(PASSING)
    except RouteNotFoundError:
        master = world.master
        if not world.is_up(master) or master.broker.state.topics.topic_config(PASSING) is not None:
            raise
        if PASSING in master.broker.store.queues():
            await admin.create_topic(PASSING, queues=PASSING_QUEUES)
            raise


async def _live(
    world: World, client: ClientInstance, producer: Producer, life: int, end: float
) -> None:
    rng = world.rng(f"passing {life}")
    number = 0
    while trio.current_time() < end:
        queue = MessageQueue(PASSING, BROKER_NAME, rng.randrange(PASSING_QUEUES))
        body = f"{life}.{number}".encode()
        started = now()
        number += 1
        try:
            result = await producer.send(Message(PASSING, body), queue=queue)
            host, _, address = parse_offset_message_id(result.offset_message_ids[-1])
            world.history.add(
                PassingSent(
                    at=now(),
                    started=started,
                    broker=world.number(host),
                    life=life,
                    queue_id=queue.queue_id,
                    queue_offset=result.queue_offset,
                    body=body,
                    status=result.status.name,
                    end_offset=address + BODY_AT + len(body),
                )
            )
            commit = UpdateConsumerOffsetRequestHeader(
                PASSERS, PASSING, queue.queue_id, result.queue_offset + 1
            )
            await client.api.call(f"{host}:10911", commit, what="no commit")
        except Error as error:
            world.history.add(Note(at=now(), who="passing", text=str(error)))
        await trio.sleep(rng.expovariate(1 / SEND_PAUSE))


async def look_at_passing(world: World) -> None:
    """Read what each broker has of it from its beginning, again and again."""
    if not world.schedule.remakes:
        return
    async with client_at(world, "10.0.3.6", "looker") as client, trio.open_nursery() as nursery:
        for number in range(len(world.cluster.members)):
            nursery.start_soon(_look, world, client, number)


async def _look(world: World, client: ClientInstance, number: int) -> None:
    addr = f"{world.cluster.members[number].host}:10911"
    async for _ in every(LOOK_PERIOD):
        for queue_id in range(PASSING_QUEUES):
            asked = now()
            header = PullMessageRequestHeader(
                "lookers", PASSING, queue_id, 0, 32, SUBSCRIPTION, 0, 0, 0, "*"
            )
            try:
                result = await client.api.pull_message(addr, header, timeout=LOOK_LIMIT)
            except Error:
                break
            if result.body:
                bodies = tuple(message.body for message in decode_messages(result.body))
                world.history.add(
                    PassingPulled(
                        at=now(), asked=asked, broker=number, queue_id=queue_id, bodies=bodies
                    )
                )
