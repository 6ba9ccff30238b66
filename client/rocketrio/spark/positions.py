"""From where a query is to start or end to an offset of each queue: what only brokers can tell."""

from collections.abc import Mapping

from rocketrio.consuming.pull import PullAPIWrapper
from rocketrio.consuming.pull_result import PullStatus
from rocketrio.instance import ClientInstance
from rocketrio.spark.asking import for_each
from rocketrio.spark.errors import BrokerUnreachable
from rocketrio.spark.offsets import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    AtTimestamp,
    Bounds,
    ExplicitOffsets,
    Position,
)
from rocketrio.spark.options import DEFAULT_GROUP
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.message import MessageQueue


async def offsets_at(
    client: ClientInstance, position: Position, bounds: Mapping[MessageQueue, Bounds]
) -> dict[MessageQueue, int]:
    """The offset of each queue that `position` means; -2 and -1 stand for the ends that `bounds` tells."""
    offsets: dict[MessageQueue, int] = {}

    async def ask(queue: MessageQueue) -> None:
        offsets[queue] = await _offset_of(client, queue, bounds[queue], position)

    await for_each(bounds, ask)
    return offsets


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
