"""Asks brokers many questions at once, and turns failures into one error of the connector."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeVar

import attrs
import trio

from rocketrio.spark.errors import BrokerUnreachable, SparkSourceError, TopicNotFound
from rocketrio_protocol.errors import BrokerError, NotReachable, RouteNotFound
from rocketrio_protocol.message import MessageQueue

T = TypeVar("T")

logger = logging.getLogger("rocketrio.spark.asking")

QUESTIONS_AT_ONCE: Final = 64
"""The largest number of questions under way at once; a topic may have thousands of queues."""


@contextmanager
def source_errors() -> Iterator[None]:
    """Raise errors of the client as errors of the connector."""
    try:
        yield
    except RouteNotFound as error:
        raise TopicNotFound(error.what, topic=error.topic) from error
    except NotReachable as error:
        raise BrokerUnreachable.because(error) from error
    except BrokerError as error:
        raise SparkSourceError(str(error)) from error


@attrs.frozen
class Retries:
    """How often a question is repeated, and the pause before each repetition in seconds (fetchOffset.*)."""

    count: int = 0
    interval: float = 0.0


ONCE: Final = Retries()


async def repeated(ask: Callable[[], Awaitable[T]], retries: Retries) -> T:
    """Return the result of `ask`, which is repeated after errors that may pass. Raises its last error."""
    failures = 0
    while True:
        try:
            return await ask()
        except (NotReachable, BrokerError) as error:
            failures += 1
            may_help = isinstance(error, NotReachable) or error.retryable
            if failures > retries.count or not may_help:
                raise
            logger.info("request repeated failures=%d error=%s", failures, error.what)
        await trio.sleep(retries.interval)


async def for_each(
    queues: Iterable[MessageQueue],
    ask: Callable[[MessageQueue], Awaitable[None]],
    *,
    retries: Retries = ONCE,
) -> None:
    """Await `ask(queue)` for all queues; the first failure keeps further calls from starting and is raised alone."""
    limiter = trio.CapacityLimiter(QUESTIONS_AT_ONCE)
    failures: list[Exception] = []

    async def one(queue: MessageQueue) -> None:
        async with limiter:
            if not failures:
                try:
                    await repeated(partial(ask, queue), retries)
                except (NotReachable, BrokerError, RouteNotFound, SparkSourceError) as error:
                    failures.append(error)

    async with trio.open_nursery() as nursery:
        for queue in queues:
            nursery.start_soon(one, queue)
    if failures:
        raise failures[0]  # One error instead of a group with one for each queue.
