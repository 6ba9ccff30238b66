"""Asks brokers many questions at once, and turns failures into one error of the connector."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeVar

import attrs
import trio

from rocketrio.spark.errors import (
    AccessDeniedError,
    BrokerUnreachableError,
    SparkSourceError,
    TopicNotFoundError,
)
from rocketrio_protocol.errors import (
    AccessRefusedError,
    BrokerError,
    NotReachableError,
    RouteNotFoundError,
)
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
    except RouteNotFoundError as error:
        raise TopicNotFoundError(error.what, topic=error.topic) from error
    except NotReachableError as error:
        raise BrokerUnreachableError.because(error) from error
    except AccessRefusedError as error:
        raise AccessDeniedError.because(error) from error
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
        except (NotReachableError, BrokerError) as error:
            failures += 1
            if failures > retries.count or not error.retryable:
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
                except (
                    NotReachableError,
                    BrokerError,
                    RouteNotFoundError,
                    SparkSourceError,
                ) as error:
                    failures.append(error)

    async with trio.open_nursery() as nursery:
        for queue in queues:
            nursery.start_soon(one, queue)
    if failures:
        raise failures[0]  # One error instead of a group with one for each queue.
