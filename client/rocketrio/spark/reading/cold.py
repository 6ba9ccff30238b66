"""Finds ranges that begin with messages that a master no longer has in memory, so that a slave serves them at once.

Otherwise each range would get its first answer from the master, which would read it from disk into the memory that its
other readers need. Only the master knows what is cold, and reports it by suggesting a slave. So each queue's ranges, in
the order of their offsets, are searched by halving, with a pull of one message for each probe.

Invariant: a failed probe changes nothing: the range starts at the master, whose first answer may redirect it.
Invariant: nothing is asked for a topic whose brokers have no slaves.
"""

import logging
from collections.abc import Iterable
from typing import Final

import trio

from rocketrio.client import ClientInstance
from rocketrio.consuming.subscription import ALL
from rocketrio.spark.reading.offsets import QueueRange
from rocketrio.spark.reading.options import ReadOptions
from rocketrio.spark.reading.questions import for_each
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.commands.pull import PullMessageRequestHeader, PullSysFlag
from rocketrio_protocol.errors import Error, NotReachableError
from rocketrio_protocol.message import MessageQueue

PROBE_MIN_ROWS: Final = 1000
"""The least number of rows of a queue that is probed; the first answer brings about as many."""

PROBE_TIMEOUT: Final = 3.0  # As for any question to a broker (mqClientApiTimeout).

logger = logging.getLogger("rocketrio.spark.cold")


async def cold_starts(
    client: ClientInstance, ranges: Iterable[QueueRange], options: ReadOptions
) -> dict[QueueRange, int]:
    """Return the ranges that the master would start to read from disk, each with the broker id that it suggests."""
    cold: dict[QueueRange, int] = {}
    if options.read_from != "auto":
        return cold
    by_queue: dict[MessageQueue, list[QueueRange]] = {}
    for part in sorted(ranges):
        addresses = client.routing.broker_addr_table.get(part.broker_name, {})
        if len(addresses) > 1 and MASTER_ID in addresses:
            by_queue.setdefault(part.queue, []).append(part)

    async def ask(queue: MessageQueue) -> None:
        parts = by_queue[queue]
        first_hot, known_hot, suggested = 0, len(parts), MASTER_ID
        while first_hot < known_hot:
            # The first range is probed first: usually all ranges are in memory.
            middle = (first_hot + known_hot) // 2 if first_hot else 0
            broker_id = await _probe(client, queue, parts[middle].start, options)
            if broker_id == MASTER_ID:
                known_hot = middle
            else:
                first_hot, suggested = middle + 1, broker_id
        cold.update(dict.fromkeys(parts[:first_hot], suggested))

    await for_each(
        [q for q, parts in by_queue.items() if sum(part.rows for part in parts) >= PROBE_MIN_ROWS],
        ask,
    )
    return cold


async def _probe(
    client: ClientInstance, queue: MessageQueue, offset: int, options: ReadOptions
) -> int:
    """Return the broker id to which the master sends a reader of that offset."""
    header = PullMessageRequestHeader(
        consumer_group=options.consumer_group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=1,
        sys_flag=int(PullSysFlag.SUBSCRIPTION),
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
        subscription=ALL.expression,
        expression_type=ALL.expression_type,
        broker_name=queue.broker_name,
    )
    addr = client.routing.broker_addr_table[queue.broker_name][MASTER_ID]
    if client.routing.is_avoided(addr):
        return MASTER_ID
    started = trio.current_time()
    try:
        result = await client.api.pull_message(addr, header, timeout=PROBE_TIMEOUT)
    except Error as error:
        logger.info("cold messages not probed queue=%s offset=%d error=%s", queue, offset, error)
        if isinstance(error, NotReachableError):
            client.mark_unreachable(addr, spent=trio.current_time() - started)
        return MASTER_ID
    return result.suggest_which_broker_id
