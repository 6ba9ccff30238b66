"""What the driver finds out before it plans: topics, queues, where brokers are, what the queues hold.

Invariant: nothing here outlives the call; connections are closed when planning is done.
"""

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import attrs
import trio

from rocketrio.connect import open_client
from rocketrio.consuming.pull import PullAPIWrapper
from rocketrio.consuming.pull_result import PullStatus
from rocketrio.instance import ClientInstance
from rocketrio.routing import FindBrokerResult
from rocketrio.routing.queues import subscribe_queues
from rocketrio.spark.errors import BrokerUnreachable, SparkSourceError, TopicNotFound
from rocketrio.spark.offsets import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    AtTimestamp,
    Bounds,
    ExplicitOffsets,
    Loss,
    Position,
    QueueRange,
    check_covers,
    resolve_ranges,
)
from rocketrio.spark.options import DEFAULT_GROUP, ReadOptions
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.commands.cluster import (
    GetAllTopicListRequestHeader,
    GetSystemTopicListFromNsRequestHeader,
)
from rocketrio_protocol.errors import BrokerError, NotReachable, RouteNotFound
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.remoting.pool import check
from rocketrio_protocol.remoting.ports import Dial
from rocketrio_protocol.remoting.tcp import dial_tcp
from rocketrio_protocol.route import TopicList

QUESTIONS_AT_ONCE: Final = 64
"""Offset questions under way at once; a topic may have thousands of queues."""

SYSTEM_TOPIC_PREFIXES: Final = ("%RETRY%", "%DLQ%", "%SYS%", "RMQ_SYS_", "rmq_sys_")
REPLY_TOPIC_SUFFIX: Final = "_REPLY_TOPIC"
SYSTEM_TOPICS: Final = frozenset(
    {"TBW102", "SCHEDULE_TOPIC_XXXX", "BenchmarkTest", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT"}
)
"""Topics that a pattern never matches, as are those named after clusters and brokers; `subscribe` reads them."""


@attrs.frozen
class Discovery:
    """What planning needs to know."""

    ranges: list[QueueRange]
    losses: list[Loss]
    addresses: dict[str, dict[int, str]]
    """Broker name to broker id to address."""


async def discover(options: ReadOptions, *, dial: Dial = dial_tcp) -> Discovery:
    """Ask the cluster. Raises SparkSourceError for what is not there or does not answer."""
    try:
        async with open_client(name_servers=options.name_servers, dial=dial) as client:
            return await _discover(client, options)
    except RouteNotFound as error:
        raise TopicNotFound(error.what, topic=error.topic) from error
    except NotReachable as error:
        raise BrokerUnreachable(str(error)) from error
    except BrokerError as error:
        raise SparkSourceError(str(error)) from error


async def _discover(client: ClientInstance, options: ReadOptions) -> Discovery:
    queues = await _queues(client, options)
    bounds: dict[MessageQueue, Bounds] = {}
    starts: dict[MessageQueue, int] = {}
    ends: dict[MessageQueue, int] = {}

    async def ask(queue: MessageQueue) -> None:
        held = bounds[queue] = await _bounds(client, queue)
        starts[queue] = await _offset_of(client, queue, held, options.starting)
        ends[queue] = await _offset_of(client, queue, held, options.ending)

    check_covers(options.starting, dict.fromkeys(queues), option="startingOffsets")
    check_covers(options.ending, dict.fromkeys(queues), option="endingOffsets")
    await _for_each(queues, ask)
    ranges, losses = resolve_ranges(bounds, starts, ends)
    names = {queue.broker_name for queue in queues}
    table = client.routing.broker_addr_table
    return Discovery(ranges, losses, {name: dict(table[name]) for name in names if name in table})


async def _for_each(
    queues: Iterable[MessageQueue], ask: Callable[[MessageQueue], Awaitable[None]]
) -> None:
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


async def _queues(client: ClientInstance, options: ReadOptions) -> list[MessageQueue]:
    topics = options.topics
    if options.topic_pattern is not None:
        topics = await _matching_topics(client, options.topic_pattern)
    elif options.assigned:
        topics = tuple(dict.fromkeys(queue.topic for queue in options.assigned))
    known: list[MessageQueue] = []
    for topic in topics:
        known += subscribe_queues(topic, await client.topic_route(topic))
    if not options.assigned:
        return known
    if missing := sorted(set(options.assigned) - set(known)):
        raise TopicNotFound(f"assign names {', '.join(map(str, missing))}, which no broker has")
    return list(options.assigned)


async def _matching_topics(client: ClientInstance, pattern: str) -> tuple[str, ...]:
    answer = await client.name_servers.call(GetAllTopicListRequestHeader())
    check(answer, "the list of topics cannot be read")
    names = set(TopicList.from_json(answer.body).topic_list)
    answer = await client.name_servers.call(GetSystemTopicListFromNsRequestHeader())
    check(answer, "the list of system topics cannot be read")
    system = SYSTEM_TOPICS.union(TopicList.from_json(answer.body).topic_list)
    matching = [
        name
        for name in sorted(names - system)
        if re.fullmatch(pattern, name)
        and not name.startswith(SYSTEM_TOPIC_PREFIXES)
        and not name.endswith(REPLY_TOPIC_SUFFIX)
    ]
    if not matching:
        raise TopicNotFound(f"subscribePattern={pattern!r} matches none of {len(names)} topics")
    return tuple(matching)


async def _bounds(client: ClientInstance, queue: MessageQueue) -> Bounds:
    async def ask(found: FindBrokerResult) -> Bounds:
        # The older end first: retention between the two questions must not make it pass the newer.
        least = await client.api.min_offset(found.addr, queue)
        return Bounds(least, max(least, await client.api.max_offset(found.addr, queue)))

    return await client.ask_broker(queue, ask)


async def _offset_of(
    client: ClientInstance, queue: MessageQueue, held: Bounds, position: Position
) -> int:
    match position:
        case "earliest":
            return EARLIEST_OFFSET
        case "latest":
            return LATEST_OFFSET
        case ExplicitOffsets(table):
            return table[queue]
        case AtTimestamp(timestamp_ms):
            return await _offset_at(client, queue, held, timestamp_ms)


async def _offset_at(
    client: ClientInstance, queue: MessageQueue, held: Bounds, timestamp_ms: int
) -> int:
    """The first offset whose message was stored at that time or later, found by looking at messages.

    SEARCH_OFFSET_BY_TIMESTAMP will not do: 4.x brokers answer the nearest message, before or after, any of
    several of one millisecond, and the last one for a time after all.
    """
    low, high = held.min_offset, held.max_offset
    while low < high:
        middle = (low + high) // 2
        stored_ms = await _store_timestamp_ms(client, queue, middle)
        if stored_ms is None or stored_ms < timestamp_ms:
            low = middle + 1
        else:
            high = middle
    return low


async def _store_timestamp_ms(
    client: ClientInstance, queue: MessageQueue, offset: int
) -> int | None:
    """When the message at `offset` was stored; None when it is gone."""
    # Whatever the answer before suggested: a slave may lack what the master has.
    client.routing.update_pull_from_which_node(queue, MASTER_ID, DEFAULT_GROUP)
    pulls = PullAPIWrapper(client, DEFAULT_GROUP)
    result = await pulls.pull_kernel(queue, offset, max_messages=1, suspend_timeout=0)
    if result.is_from_slave and result.max_offset <= offset:
        raise BrokerUnreachable(
            f"the master of {queue} cannot be reached, and its slave lacks offset {offset}"
        )
    messages = result.messages() if result.status is PullStatus.FOUND else []
    return messages[0].store_timestamp_ms if messages else None
