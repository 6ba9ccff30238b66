"""Many questions at once, and what becomes of failures: one error, of the kind that Spark users are shown."""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import trio

from rocketrio.spark.errors import BrokerUnreachable, SparkSourceError, TopicNotFound
from rocketrio_protocol.errors import BrokerError, NotReachable, RouteNotFound
from rocketrio_protocol.message import MessageQueue

QUESTIONS_AT_ONCE: Final = 64
"""Questions under way at once; a topic may have thousands of queues."""


@contextmanager
def source_errors() -> Iterator[None]:
    """Errors of the client leave the block as errors of the connector."""
    try:
        yield
    except RouteNotFound as error:
        raise TopicNotFound(error.what, topic=error.topic) from error
    except NotReachable as error:
        raise BrokerUnreachable(str(error)) from error
    except BrokerError as error:
        raise SparkSourceError(str(error)) from error


async def for_each(
    queues: Iterable[MessageQueue], ask: Callable[[MessageQueue], Awaitable[None]]
) -> None:
    """Await `ask(queue)` for all of them; the first failure is raised alone, and ends what has not begun."""
    limiter = trio.CapacityLimiter(QUESTIONS_AT_ONCE)
    failures: list[Exception] = []

    async def one(queue: MessageQueue) -> None:
        async with limiter:
            if not failures:
                try:
                    await ask(queue)
                except (NotReachable, BrokerError, RouteNotFound, SparkSourceError) as error:
                    failures.append(error)

    async with trio.open_nursery() as nursery:
        for queue in queues:
            nursery.start_soon(one, queue)
    if failures:
        raise failures[0]  # One error, not a group of the same from every queue.
