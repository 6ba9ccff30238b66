"""Questions to brokers about queues, for whoever holds a client: where they begin and end."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime

import trio

from rocketrio.instance import ClientInstance
from rocketrio.routing import FindBrokerResult
from rocketrio_protocol.errors import Error, NotReachable
from rocketrio_protocol.message import MessageQueue

logger = logging.getLogger("rocketrio.consumer")


async def begin_offset(client: ClientInstance, queue: MessageQueue) -> int:
    """The offset of the queue's oldest message. Raises Error when no broker answers."""

    async def ask(found: FindBrokerResult) -> int:
        return await client.api.min_offset(found.addr, queue)

    return await client.ask_broker(queue, ask)


async def end_offset(client: ClientInstance, queue: MessageQueue) -> int:
    """The offset that the queue's next message gets. Raises Error when no broker answers."""

    async def ask(found: FindBrokerResult) -> int:
        return await client.api.max_offset(found.addr, queue)

    return await client.ask_broker(queue, ask)


async def offset_at(client: ClientInstance, queue: MessageQueue, time: datetime) -> int:
    """The offset of the first message stored at `time` or later, as the master says. Raises Error without it."""
    timestamp_ms = int(time.timestamp() * 1000)

    async def ask(found: FindBrokerResult) -> int:
        if found.is_slave:
            raise NotReachable(
                f"the master of {queue} cannot be reached, and a slave may end earlier",
                topic=queue.topic,
            )
        return await client.api.search_offset(found.addr, queue, timestamp_ms)

    return await client.ask_broker(queue, ask, insist_on_master=True)


async def of_each(
    queues: Iterable[MessageQueue], question: Callable[[MessageQueue], Awaitable[int]]
) -> dict[MessageQueue, int | Error]:
    """The answers for several queues, asked at the same time; an error where nobody could tell."""
    answers: dict[MessageQueue, int | Error] = {}

    async def ask(queue: MessageQueue) -> None:
        try:
            answers[queue] = await question(queue)
        except Error as error:
            answers[queue] = error
            logger.info("offset unknown queue=%s error=%s", queue, error)

    wanted = list(queues)
    async with trio.open_nursery() as nursery:
        for queue in wanted:
            nursery.start_soon(ask, queue)
    return {queue: answers[queue] for queue in wanted}


def known(answers: Mapping[MessageQueue, int | Error]) -> dict[MessageQueue, int | None]:
    """The same with None for errors."""
    return {queue: a if isinstance(a, int) else None for queue, a in answers.items()}
