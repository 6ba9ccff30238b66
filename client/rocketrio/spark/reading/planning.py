"""Turns the options of a batch read into tasks: what the driver asks and decides before anything is read.

A range that begins with messages which its master no longer has in memory is served by a slave from the start.
Otherwise its first answer would come from the master, which would read it from disk into the memory that its other
readers need. Only the master knows what is cold, and reports it by suggesting a slave. So each queue's ranges, in the
order of their offsets, are searched by halving, with a pull of one message for each probe.

Invariant: a failed probe changes nothing: the range starts at the master, whose first answer may redirect it.
Invariant: no probe is sent for a topic whose brokers have no slaves.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Final

import attrs
import trio

from rocketrio.client import ClientInstance
from rocketrio.connect import open_client
from rocketrio.consuming.pull import pull_header
from rocketrio.consuming.subscription import ALL
from rocketrio.ports import Ports, opened_with
from rocketrio.spark.reading.offsets import (
    EARLIEST_OFFSET,
    AtTimestamp,
    AtTimestamps,
    Bounds,
    GroupOffsets,
    Loss,
    QueueRange,
    check_covers,
    resolve_ranges,
    starts_before_ends,
)
from rocketrio.spark.reading.options import ReadOptions
from rocketrio.spark.reading.plan import EVERYTHING, Narrowing, ReadTask, plan_partitions
from rocketrio.spark.reading.questions import (
    Retries,
    addresses_of,
    bounds_of,
    check_filter,
    first_partitions,
    for_each,
    offsets_at,
    repeated,
    source_errors,
    subscribed_queues,
    with_what_is_not_shown_yet,
)
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.errors import Error, NotReachableError
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.remoting.ports import Dial
from rocketrio_protocol.remoting.tcp import dial_tcp

PROBE_MIN_ROWS: Final = 1000
"""The least number of rows of a queue that is probed; the first answer brings about as many."""

PROBE_TIMEOUT: Final = 3.0  # As for any question to a broker (mqClientApiTimeout).

logger = logging.getLogger("rocketrio.spark.planning")


@attrs.frozen
class Discovery:
    """The result of discovery, as planning needs it."""

    ranges: list[QueueRange]
    losses: list[Loss]
    addresses: dict[str, dict[int, str]]
    """Broker name to broker id to address."""
    first_partitions: dict[str, dict[str, int]]
    """Topic to broker to the number of its queue 0; empty unless `schemaMode=kafka`."""


async def plan_batch(
    options: ReadOptions, narrowing: Narrowing = EVERYTHING, *, dial: Dial = dial_tcp
) -> list[ReadTask]:
    """Return the tasks of a batch read, or none if there is nothing to read. Raises SparkSourceError."""
    with source_errors():
        async with opened_with(
            Ports(dial=dial), open_client(**options.access.client_options(options.name_servers))
        ) as client:
            found = await discover(client, options)
            for loss in found.losses:
                if not narrowing.wants(loss.queue, found.first_partitions):
                    continue
                if options.fail_on_data_loss:
                    raise loss.error()
                logger.warning("lost messages skipped error=%s", loss.error().what)
            ranges = await _narrowed(client, found, narrowing, options)
            parts = partitioned(ranges, options)
            cold = await cold_starts(client, chain.from_iterable(parts), options)
    return [read_task(ranges, found.addresses, cold, found.first_partitions) for ranges in parts]


async def discover(client: ClientInstance, options: ReadOptions) -> Discovery:
    """Ask the cluster for the ranges of a batch read.

    Raises SparkSourceError for topics or queues that do not exist and positions outside their messages. Errors of the
    client are raised unchanged.
    """
    retries = Retries(options.offset_retries, options.offset_retry_interval)
    queues = await repeated(partial(subscribed_queues, client, options), retries)
    for position, option in (
        (options.starting, "startingOffsets"),
        (options.ending, "endingOffsets"),
    ):
        check_covers(
            position,
            dict.fromkeys(queues),
            option=option,
            fail_on_data_loss=options.fail_on_data_loss,
        )
    await check_filter(client, options, queues, retries=retries)
    bounds = await bounds_of(client, queues, retries=retries)
    group = options.consumer_group
    starts = await offsets_at(client, options.starting, bounds, group=group, retries=retries)
    ends = await offsets_at(client, options.ending, bounds, group=group, retries=retries)
    if isinstance(options.starting, GroupOffsets):
        starts = starts_before_ends(bounds, starts, ends)
    if isinstance(options.starting, AtTimestamp | AtTimestamps):
        # What was stored at that time may have been older than the oldest message that is left.
        starts = {
            queue: EARLIEST_OFFSET if at == bounds[queue].min_offset else at
            for queue, at in starts.items()
        }
    bounds = await with_what_is_not_shown_yet(client, bounds, starts)
    ranges, losses = resolve_ranges(bounds, starts, ends)
    topics = dict.fromkeys(queue.topic for queue in queues if options.schema_mode == "kafka")
    firsts = await first_partitions(client, topics)
    return Discovery(ranges, losses, addresses_of(client, queues), firsts)


async def _narrowed(
    client: ClientInstance, found: Discovery, narrowing: Narrowing, options: ReadOptions
) -> list[QueueRange]:
    """Return the ranges that the conditions of the query leave."""
    ranges = [
        narrowing.within(part)
        for part in found.ranges
        if narrowing.wants(part, found.first_partitions)
    ]
    if not narrowing.by_time:
        return ranges
    held = {part.queue: Bounds(part.start, part.end) for part in ranges if part.rows}
    retries = Retries(options.offset_retries, options.offset_retry_interval)

    async def offsets(timestamp_ms: int) -> dict[MessageQueue, int]:
        at = AtTimestamp(timestamp_ms, "latest")
        return await offsets_at(client, at, held, group=options.consumer_group, retries=retries)

    starts = ends = None
    if narrowing.from_ms is not None:
        starts = await offsets(narrowing.from_ms)
    if narrowing.before_ms is not None:
        ends = await offsets(narrowing.before_ms)
    return [
        QueueRange.of(
            queue,
            bounds.min_offset if starts is None else starts[queue],
            bounds.max_offset if ends is None else ends[queue],
        )
        for queue, bounds in held.items()
    ]


def partitioned(ranges: Sequence[QueueRange], options: ReadOptions) -> list[list[QueueRange]]:
    """Return the ranges of each task."""
    return plan_partitions(
        ranges,
        min_partitions=options.min_partitions,
        max_records_per_partition=options.max_records_per_partition,
        min_records_per_partition=options.min_records_per_partition,
        max_partitions=options.max_partitions,
    )


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
    header = pull_header(options.consumer_group, queue, offset, 1, ALL)
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


def read_task(
    ranges: Sequence[QueueRange],
    addresses: Mapping[str, dict[int, str]],
    cold: Mapping[QueueRange, int],
    firsts: Mapping[str, dict[str, int]],
) -> ReadTask:
    """Return one task with the addresses and numbers of its brokers."""
    names = {part.broker_name for part in ranges}
    return ReadTask(
        tuple(ranges),
        {name: addresses[name] for name in sorted(names)},
        tuple(cold.get(part, MASTER_ID) for part in ranges),
        {part.topic: firsts[part.topic] for part in ranges if part.topic in firsts},
    )
