"""Asks brokers about queues: where they begin and end, and the offset at a time."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime

import trio

from rocketrio.client import ClientInstance
from rocketrio.routing import FindBrokerResult
from rocketrio_protocol.errors import Error, NotReachable
from rocketrio_protocol.message import MessageQueue

logger = logging.getLogger("rocketrio.consumer")


async def begin_offset(client: ClientInstance, queue: MessageQueue) -> int:
    """Return the offset of the queue's oldest message. Raises Error if no broker answers."""

    async def ask(found: FindBrokerResult) -> int:
        return await client.api.min_offset(found.addr, queue)

    return await client.ask_broker(queue, ask)


async def end_offset(client: ClientInstance, queue: MessageQueue) -> int:
    """Return the offset that the queue's next message gets. Raises Error if no broker answers."""

    async def ask(found: FindBrokerResult) -> int:
        return await client.api.max_offset(found.addr, queue)

    return await client.ask_broker(queue, ask)


async def offset_at(client: ClientInstance, queue: MessageQueue, time: datetime) -> int:
    """Ask the master for the offset of the first message stored at `time` or later. Raises Error without a master."""
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
    """Ask about several queues concurrently; return each queue's answer, or its error if no broker answered."""
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
    """Replace errors by None."""
    return {queue: a if isinstance(a, int) else None for queue, a in answers.items()}
