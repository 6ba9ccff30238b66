"""Questions to brokers about queues, for whoever holds a client: where they begin and end, what a group committed."""

import logging
from collections.abc import Awaitable, Callable, Iterable

import trio

from rocketrio.api import Offset
from rocketrio.instance import ClientInstance
from rocketrio.routing import FindBrokerResult
from rocketrio_protocol.errors import Error
from rocketrio_protocol.message import MessageQueue

logger = logging.getLogger("rocketrio.consumer")


async def committed_offset(client: ClientInstance, group: str, queue: MessageQueue) -> Offset:
    """What the broker has stored for the group, or NOT_FOUND. Raises Error when none answers."""

    async def ask(found: FindBrokerResult) -> Offset:
        return await client.api.query_consumer_offset(found.addr, group, queue, zero_if_young=False)

    return await client.ask_broker(queue, ask, insist_on_master=True)


async def end_offset(client: ClientInstance, queue: MessageQueue) -> int:
    """The offset that the queue's next message gets. Raises Error when no broker answers."""

    async def ask(found: FindBrokerResult) -> int:
        return await client.api.max_offset(found.addr, queue)

    return await client.ask_broker(queue, ask)


async def of_each(
    queues: Iterable[MessageQueue], question: Callable[[MessageQueue], Awaitable[int]]
) -> dict[MessageQueue, int | None]:
    """The answers for several queues, asked at the same time; None where nobody could tell."""
    answers: dict[MessageQueue, int | None] = dict.fromkeys(queues)

    async def ask(queue: MessageQueue) -> None:
        try:
            answers[queue] = await question(queue)
        except Error as error:
            logger.info("offset unknown queue=%s error=%s", queue, error)

    async with trio.open_nursery() as nursery:
        for queue in answers:
            nursery.start_soon(ask, queue)
    return answers
