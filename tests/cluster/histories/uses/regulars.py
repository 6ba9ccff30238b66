"""Static members: a few that restart again and again, each under its name, and are never away beyond their grace."""

from typing import Final

import trio
from tests.cluster.histories.events import Note, now
from tests.cluster.histories.readers import client_at
from tests.cluster.histories.uses.events import Away, Owns
from tests.cluster.histories.uses.names import QUEUES_OF_USE, REGULARS, ROUNDS
from tests.cluster.histories.uses.sending import post, sender
from tests.cluster.histories.world import BROKER_NAME, World

from rocketrio import Consumer, Error, Message, MessageQueue, open_consumer
from rocketrio.strategies import allocate_averagely
from rocketrio_protocol.remoting.tasks import background_nursery, every

GRACE: Final = 20
"""Seconds a regular may be away."""
LONGEST_AWAY: Final = 8.0
COUNT: Final = 3
SEND_PAUSE: Final = 1.0
LOOK_PERIOD: Final = 0.25
OPEN_AGAIN_PAUSE: Final = 1.0


def name_of(number: int) -> str:
    """The client id of a regular."""
    return f"regular-{number}"


def fair_shares() -> dict[str, tuple[int, ...]]:
    """Whose queues are whose while no member is gone for good."""
    names = tuple(name_of(number) for number in range(COUNT))
    return {name: share_of(name, names) for name in names}


def share_of(name: str, names: tuple[str, ...]) -> tuple[int, ...]:
    """Return which queues are a member's where these are all members."""
    queues = [MessageQueue(ROUNDS, BROKER_NAME, queue_id) for queue_id in range(QUEUES_OF_USE)]
    if name not in names:
        return ()
    return tuple(sorted(queue.queue_id for queue in allocate_averagely(name, names, queues)))


def all_have_their_share(world: World) -> bool:
    """Whether everybody is there, and has no less and no more."""
    owned: dict[str, tuple[int, ...]] = {}
    for event in world.history.events:
        if isinstance(event, Owns):
            owned[event.who] = event.queue_ids
        elif isinstance(event, Away):
            owned.pop(event.who, None)
    return owned == fair_shares()


async def be_regulars(world: World) -> None:
    """All of them, until the run ends."""
    async with trio.open_nursery() as nursery:
        for number in range(COUNT):
            nursery.start_soon(_come_and_go, world, name_of(number), number)


async def _come_and_go(world: World, name: str, number: int) -> None:
    rng, life = world.rng(name), 0
    while True:
        host = f"10.3.{number}.{life}"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_live, world, name, host)
            ends = trio.current_time() + rng.uniform(6.0, 15.0)
            if ends >= world.schedule.sending_ends - LONGEST_AWAY:
                await trio.sleep_forever()
            await trio.sleep_until(ends)
            if rng.random() < 0.4:
                world.cluster.memory_network.cut(host)
            nursery.cancel_scope.cancel()
        world.history.add(Away(at=now(), who=name))
        await trio.sleep(rng.uniform(0.5, LONGEST_AWAY))
        life += 1


async def _live(world: World, name: str, host: str) -> None:
    while True:
        try:
            async with (
                client_at(world, host, name, client_id=name, static_grace=GRACE) as client,
                open_consumer(
                    ROUNDS, group=REGULARS, client=client, start_from="earliest"
                ) as consumer,
                background_nursery() as nursery,
            ):
                nursery.start_soon(_watch, world, name, consumer)
                async for _ in consumer:
                    pass
        except Error as error:
            world.history.add(Note(at=now(), who=name, text=f"cannot read: {error}"))
            await trio.sleep(OPEN_AGAIN_PAUSE)


async def _watch(world: World, name: str, consumer: Consumer) -> None:
    """Note each change of what it owns."""
    before: tuple[int, ...] | None = None
    async for _ in every(LOOK_PERIOD):
        owned = tuple(sorted(queue.queue_id for queue in consumer.assignment))
        if owned != before:
            world.history.add(Owns(at=now(), who=name, queue_ids=owned))
            before = owned


async def make_rounds(world: World) -> None:
    """What regulars read."""
    rng, number = world.rng(ROUNDS), 0
    async with (
        client_at(world, world.host("user-0"), ROUNDS) as client,
        sender("round-makers", client) as producer,
    ):
        while trio.current_time() < world.schedule.sending_ends:
            await post(world, producer, Message(ROUNDS, b"%d" % number))
            number += 1
            await trio.sleep(rng.expovariate(1 / SEND_PAUSE))
