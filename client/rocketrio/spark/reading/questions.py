"""What a driver asks the brokers about a subscription: its queues, what they hold, and the offsets of its positions.

`for_each` asks about many queues at once and repeats questions that failed; `source_errors` turns the client's errors
into those of the connector.
"""

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeVar

import attrs
import trio

from rocketrio.client import ClientInstance
from rocketrio.cluster.api import NOT_FOUND
from rocketrio.consuming.pull import PullAPIWrapper
from rocketrio.consuming.pull_result import PullResult, PullStatus
from rocketrio.consuming.subscription import check_expression
from rocketrio.routing import FindBrokerResult
from rocketrio.routing.queues import not_readable, subscribe_queues
from rocketrio.spark.errors import (
    AccessDeniedError,
    BrokerUnreachableError,
    OptionError,
    SparkSourceError,
    TopicNotFoundError,
)
from rocketrio.spark.option_kinds import shown
from rocketrio.spark.options import DEFAULT_GROUP
from rocketrio.spark.reading.offsets import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    AtTimestamp,
    AtTimestamps,
    Bounds,
    ExplicitOffsets,
    GroupOffsets,
    Position,
    WhenNone,
)
from rocketrio.spark.reading.options import ReadOptions
from rocketrio_protocol.bodies.route import TopicList
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.commands.cluster import (
    GetAllTopicListRequestHeader,
    GetSystemTopicListFromNsRequestHeader,
)
from rocketrio_protocol.errors import (
    AccessRefusedError,
    BrokerError,
    BrokerSystemError,
    Error,
    NotReachableError,
    RouteNotFoundError,
)
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.names import is_system_topic
from rocketrio_protocol.remoting.pool import check

T = TypeVar("T")

logger = logging.getLogger("rocketrio.spark.questions")

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


async def subscribed_queues(client: ClientInstance, options: ReadOptions) -> list[MessageQueue]:
    """Return the queues that the options name.

    Raises TopicNotFoundError or RouteNotFoundError if one does not exist.
    """
    topics = await subscribed_topics(client, options)
    if not topics:
        raise TopicNotFoundError(
            f"subscribePattern={options.topic_pattern!r} matches none of the topics"
        )
    known: list[MessageQueue] = []
    for topic in topics:
        queues = subscribe_queues(topic, await client.topic_route(topic))
        if not queues and topic in options.topics:
            # Reading nothing from it would look like an empty topic.
            raise may_not_be_read(topic)
        known += queues
    if not options.assigned:
        return known
    missing = sorted(set(options.assigned) - set(known))
    there = [queue for queue in options.assigned if queue not in missing]
    if missing:
        text = f"assign names {', '.join(map(str, missing))}, which no broker has"
        if options.fail_on_data_loss or not there:
            raise TopicNotFoundError(
                f"{text}; failOnDataLoss=false reads without queues that are gone"
            )
        logger.warning("queues that do not exist are skipped error=%s", text)
    return there


def may_not_be_read(topic: str, *, where: str = "") -> TopicNotFoundError:
    """Return the error for a topic, or its queues at one broker, without the permission to read."""
    error = not_readable(topic)
    return TopicNotFoundError(error.what + where, remedy=error.advice)


async def subscribed_topics(client: ClientInstance, options: ReadOptions) -> tuple[str, ...]:
    """Return the topics that the options name; for a pattern those that match now, which may be none."""
    if options.topic_pattern is not None:
        return await _matching_topics(client, options.topic_pattern)
    if options.assigned:
        return tuple(dict.fromkeys(queue.topic for queue in options.assigned))
    return options.topics


async def _matching_topics(client: ClientInstance, pattern: str) -> tuple[str, ...]:
    answer = await client.name_servers.call(GetAllTopicListRequestHeader())
    check(answer, "the list of topics cannot be read")
    names = TopicList.from_json(answer.body).topic_list
    answer = await client.name_servers.call(GetSystemTopicListFromNsRequestHeader())
    check(answer, "the list of system topics cannot be read")
    # The name server's list has clusters and brokers; `subscribe` can still read all of these topics.
    owners = set(TopicList.from_json(answer.body).topic_list)
    return tuple(
        name
        for name in sorted(set(names))
        if re.fullmatch(pattern, name) and not is_system_topic(name, owners)
    )


async def first_partitions(
    client: ClientInstance, topics: Iterable[str]
) -> dict[str, dict[str, int]]:
    """Return topic to broker to the number of its queue 0 among the topic's queues, as `schemaMode=kafka` counts them.

    The queues of a topic have the same numbers whichever part of it is read, until the topic gets or loses a broker.
    """
    firsts: dict[str, dict[str, int]] = {}
    for topic in topics:
        queues = subscribe_queues(topic, await client.topic_route(topic))
        for place, queue in enumerate(queues):
            firsts.setdefault(topic, {}).setdefault(queue.broker_name, place - queue.queue_id)
    return firsts


async def bounds_of(
    client: ClientInstance, queues: Iterable[MessageQueue], *, retries: Retries = ONCE
) -> dict[MessageQueue, Bounds]:
    """Return what each queue holds, as reported by its master, or by a slave while no master answers."""
    bounds: dict[MessageQueue, Bounds] = {}

    async def ask(queue: MessageQueue) -> None:
        bounds[queue] = await client.ask_broker(queue, lambda found: held_at(client, found, queue))

    await for_each(queues, ask, retries=retries)
    return bounds


async def held_at(client: ClientInstance, found: FindBrokerResult, queue: MessageQueue) -> Bounds:
    """Return what one broker reports that it holds of a queue."""
    # The smaller end first: retention between the two requests must not move it beyond the larger one.
    least = await client.api.min_offset(found.addr, queue)
    end = await client.api.queue_end(found.addr, queue, with_incarnation=True)
    # A slave may not have heard of the last deletion.
    incarnation = None if found.is_slave else end.incarnation
    return Bounds(least, max(least, end.max_offset), incarnation)


def addresses_of(
    client: ClientInstance, queues: Iterable[MessageQueue]
) -> dict[str, dict[int, str]]:
    """Return broker name to broker id to address, as in the newest routes."""
    table = client.routing.broker_addr_table
    names = {queue.broker_name for queue in queues}
    return {name: dict(table[name]) for name in sorted(names) if name in table}


async def check_filter(
    client: ClientInstance,
    options: ReadOptions,
    queues: Iterable[MessageQueue],
    *,
    retries: Retries = ONCE,
) -> None:
    """Raise OptionError unless the brokers of these queues accept the expression. Tags need no check."""
    subscription = options.subscription
    if not subscription.is_sql92:
        return
    # One queue of each broker and topic, because the answer may depend on both.
    asked = {(queue.topic, queue.broker_name): queue for queue in queues}

    async def ask(queue: MessageQueue) -> None:
        try:
            await check_expression(client, options.consumer_group, subscription, queue)
        except AccessRefusedError:
            raise
        except BrokerError as error:  # Brokers without SQL92 answer SYSTEM_ERROR.
            if error.retryable and not isinstance(error, BrokerSystemError):
                raise
            raise OptionError(
                f"subExpression={shown(subscription.expression)} is refused: {error}"
            ) from error

    await for_each(asked.values(), ask, retries=retries)


async def offsets_at(
    client: ClientInstance,
    position: Position,
    bounds: Mapping[MessageQueue, Bounds],
    *,
    group: str,
    retries: Retries = ONCE,
) -> dict[MessageQueue, int]:
    """Return the offset of each queue that `position` means; -2 and -1 stand for the ends of `bounds`.

    `group` is the group whose commits `startingOffsets=group` means. Raises OptionError for a time after all messages.
    """
    offsets: dict[MessageQueue, int] = {}

    async def ask(queue: MessageQueue) -> None:
        offsets[queue] = await _offset_of(client, queue, bounds[queue], position, group)

    await for_each(bounds, ask, retries=retries)
    return offsets


async def _offset_of(
    client: ClientInstance, queue: MessageQueue, held: Bounds, position: Position, group: str
) -> int:
    match position:
        case "earliest":
            return EARLIEST_OFFSET
        case "latest":
            return LATEST_OFFSET
        case ExplicitOffsets(table):
            return table[queue]
        case AtTimestamp(timestamp_ms, when_none):
            return await _at_timestamp(client, queue, held, timestamp_ms, when_none)
        case AtTimestamps(table, when_none):
            return await _at_timestamp(client, queue, held, table[queue], when_none)
        case GroupOffsets(fallback):
            committed = await _committed(client, queue, group)
            if committed is not None:
                return committed
            return EARLIEST_OFFSET if fallback == "earliest" else LATEST_OFFSET


async def _committed(client: ClientInstance, queue: MessageQueue, group: str) -> int | None:
    """Return the offset that the group committed, or None without a commit.

    Brokers before 5.0 report 0 for a group without a commit while a queue's first messages are in memory.
    """

    async def ask(found: FindBrokerResult) -> int | None:
        offset = await client.api.query_consumer_offset(
            found.addr, group, queue, zero_if_young=False
        )
        return None if offset is NOT_FOUND else offset

    # A slave's copy of the commits is some seconds old.
    return await client.ask_broker(queue, ask, insist_on_master=True)


async def _at_timestamp(
    client: ClientInstance,
    queue: MessageQueue,
    held: Bounds,
    timestamp_ms: int,
    when_none: WhenNone,
) -> int:
    offset = await offset_at_time(client, queue, held, timestamp_ms)
    if offset >= held.max_offset and when_none == "error":
        raise OptionError(
            f"no message of {queue} was stored at {timestamp_ms} or later;"
            " startingOffsetsByTimestampStrategy=latest starts such queues at their end"
        )
    return offset


async def offset_at_time(
    client: ClientInstance, queue: MessageQueue, held: Bounds, timestamp_ms: int
) -> int:
    """Return the first offset whose message was stored at that time or later, by a binary search over messages.

    SEARCH_OFFSET_BY_TIMESTAMP is not sufficient: 4.x brokers return the nearest message, before or after that time, any
    of several messages of one millisecond, and the last message for a time after all messages.
    """
    low, high = held.min_offset, held.max_offset
    while low < high:
        middle = (low + high) // 2
        stored_ms = await _store_time_ms(client, queue, middle)
        if stored_ms is None or stored_ms < timestamp_ms:
            low = middle + 1
        else:
            high = middle
    return low


async def with_what_is_not_shown_yet(
    client: ClientInstance,
    bounds: Mapping[MessageQueue, Bounds],
    starts: Mapping[MessageQueue, int],
) -> dict[MessageQueue, Bounds]:
    """Extend bounds that end before a start if the master lets readers wait at that start.

    A new synchronous master may report a smaller end than the previous one, until its slaves have reported their
    offsets.
    """
    return {
        queue: attrs.evolve(held, max_offset=starts[queue])
        if starts.get(queue, 0) > held.max_offset and await is_awaited(client, queue, starts[queue])
        else held
        for queue, held in bounds.items()
    }


async def is_awaited(client: ClientInstance, queue: MessageQueue, offset: int) -> bool:
    """Return True if a master lets a reader wait at `offset` instead of moving it; False without an answer."""
    try:
        result = await _pull_one(client, queue, offset)
    except Error:
        return False
    return result.status is PullStatus.NO_NEW_MSG and not result.is_from_slave


async def _store_time_ms(client: ClientInstance, queue: MessageQueue, offset: int) -> int | None:
    """Return when the message at `offset` was stored, or None if it no longer exists."""
    result = await _pull_one(client, queue, offset)
    if result.is_from_slave and result.max_offset <= offset:
        raise BrokerUnreachableError(
            f"the master of {queue} cannot be reached, and its slave lacks offset {offset}"
        )
    messages = result.messages() if result.status is PullStatus.FOUND else []
    return messages[0].store_time_ms if messages else None


async def _pull_one(client: ClientInstance, queue: MessageQueue, offset: int) -> PullResult:
    """Pull one message, from the master if it answers: a slave may lack what the master has."""
    # Ignore where the last answer suggested to pull from.
    client.routing.update_pull_from_which_node(queue, MASTER_ID, DEFAULT_GROUP)
    pulls = PullAPIWrapper(client, DEFAULT_GROUP)
    return await pulls.pull_kernel(queue, offset, max_messages=1, suspend_timeout=0)
