"""Asks brokers for the offset of each queue that a start or an end position means."""

from collections.abc import Mapping

import attrs

from rocketrio.client import ClientInstance
from rocketrio.cluster.api import NOT_FOUND
from rocketrio.consuming.pull import PullAPIWrapper
from rocketrio.consuming.pull_result import PullResult, PullStatus
from rocketrio.routing import FindBrokerResult
from rocketrio.spark.errors import BrokerUnreachableError, OptionError
from rocketrio.spark.options import DEFAULT_GROUP
from rocketrio.spark.reading.asking import ONCE, Retries, for_each
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
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.errors import Error
from rocketrio_protocol.message import MessageQueue


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
