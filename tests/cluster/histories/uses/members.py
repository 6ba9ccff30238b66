"""Members of the groups of a run's uses: in each stay of a consumer one process of every such group comes and goes.

clerks      read the ledger in order, with locked queues
workers     do tasks side by side, and hand back what fails
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import trio
from tests.cluster.histories.events import Note, now
from tests.cluster.histories.readers import client_at
from tests.cluster.histories.schedule import Use, Visit
from tests.cluster.histories.uses.events import Noticed
from tests.cluster.histories.uses.handling import LONGEST, NotingHandler
from tests.cluster.histories.uses.names import (
    CLERKS,
    DELAY_LEVELS,
    LEDGER,
    NOTICES,
    READERS,
    RECONSUME_LIMIT,
    TASKS,
    WORKERS,
)
from tests.cluster.histories.uses.sending import post, sender
from tests.cluster.histories.world import World

from rocketrio import Error, Message, open_consumer

SEND_PAUSE: Final = 0.8
CONCURRENCY: Final = 4
DRAIN_TIMEOUT: Final = LONGEST + 1.0
OPEN_AGAIN_PAUSE: Final = 1.0
Member = Callable[[World, str, str, Visit], Awaitable[None]]


async def keep_ledger(world: World, host: str, who: str, stay: Visit) -> None:
    """A clerk, for one stay."""
    await _handle(world, LEDGER, CLERKS, host, who, stay, orderly=True)


async def do_tasks(world: World, host: str, who: str, stay: Visit) -> None:
    """A worker, for one stay."""
    await _handle(world, TASKS, WORKERS, host, who, stay)


async def read_notices(world: World, host: str, who: str, stay: Visit) -> None:
    """A reader, for one stay; its next one goes on with the same file."""
    name = who.partition("/")[0]
    while True:
        try:
            async with (
                client_at(world, host, f"notices {who}") as client,
                open_consumer(
                    NOTICES,
                    group=READERS,
                    client=client,
                    mode="broadcasting",
                    offsets_path=world.folder / f"{name}.json",
                    start_from="earliest",
                    auto_commit_interval=2.0,
                ) as consumer,
            ):
                async for message in consumer:
                    noticed = Noticed(
                        at=now(),
                        who=name,
                        queue_id=message.queue_id,
                        queue_offset=message.queue_offset,
                        body=message.body,
                    )
                    world.history.add(noticed)
        except Error as error:
            world.history.add(Note(at=now(), who=who, text=f"cannot read: {error}"))
            await trio.sleep(OPEN_AGAIN_PAUSE)


MEMBERS: Final[dict[Use, Member]] = {
    "ledger": keep_ledger,
    "retries": do_tasks,
    "broadcast": read_notices,
}


async def _handle(
    world: World, topic: str, group: str, host: str, who: str, stay: Visit, **options: Any
) -> None:
    """Open a consumer, again and again while the cluster is away, and let it run."""
    who = f"{group} {who}"
    # Who crashes does not finish what it has.
    drain_timeout = 0.0 if stay.crashes else DRAIN_TIMEOUT
    while True:
        try:
            async with (
                client_at(world, host, who) as client,
                open_consumer(
                    topic,
                    group=group,
                    client=client,
                    start_from="earliest",
                    max_reconsume_times=RECONSUME_LIMIT,
                    delay_levels=DELAY_LEVELS,
                    auto_commit_interval=2.0,
                    **options,
                ) as consumer,
            ):
                handler = NotingHandler(world, who)
                await consumer.run(handler, concurrency=CONCURRENCY, drain_timeout=drain_timeout)
        except Error as error:
            world.history.add(Note(at=now(), who=who, text=f"cannot read: {error}"))
            await trio.sleep(OPEN_AGAIN_PAUSE)


async def write_ledger(world: World) -> None:
    """What clerks read."""
    await _write(world, LEDGER)


async def give_tasks(world: World) -> None:
    """What workers do."""
    await _write(world, TASKS)


async def post_notices(world: World) -> None:
    """What readers read."""
    await _write(world, NOTICES)


async def _write(world: World, topic: str) -> None:
    rng, number = world.rng(topic), 0
    async with (
        client_at(world, world.host("user-0"), topic) as client,
        sender(f"{topic}-senders", client) as producer,
    ):
        while trio.current_time() < world.schedule.sending_ends:
            await post(world, producer, Message(topic, b"%d" % number))
            number += 1
            await trio.sleep(rng.expovariate(1 / SEND_PAUSE))
