"""Turns the options of a batch read into tasks: what the driver asks and decides before anything is read."""

import logging
from collections.abc import Mapping, Sequence
from itertools import chain

from rocketrio.client import ClientInstance
from rocketrio.connect import open_client
from rocketrio.spark.reading.asking import Retries, source_errors
from rocketrio.spark.reading.cold import cold_starts
from rocketrio.spark.reading.discovery import Discovery, discover
from rocketrio.spark.reading.narrowing import EVERYTHING, Narrowing
from rocketrio.spark.reading.offsets import AtTimestamp, Bounds, QueueRange
from rocketrio.spark.reading.options import ReadOptions
from rocketrio.spark.reading.plan import ReadTask, plan_partitions
from rocketrio.spark.reading.positions import offsets_at
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.remoting.ports import Dial
from rocketrio_protocol.remoting.tcp import dial_tcp

logger = logging.getLogger("rocketrio.spark.planning")


async def plan_batch(
    options: ReadOptions, narrowing: Narrowing = EVERYTHING, *, dial: Dial = dial_tcp
) -> list[ReadTask]:
    """Return the tasks of a batch read, or none if there is nothing to read. Raises SparkSourceError."""
    with source_errors():
        async with open_client(name_servers=options.name_servers, dial=dial) as client:
            found = await discover(client, options)
            for loss in found.losses:
                if not narrowing.wants(loss.queue, found.first_partitions):
                    continue
                if options.fail_on_data_loss:
                    raise loss.error()
                logger.warning("data lost and left out error=%s", loss.error().what)
            ranges = await _narrowed(client, found, narrowing, options)
            parts = partitioned(ranges, options)
            cold = await cold_starts(client, chain.from_iterable(parts), options)
    return [read_task(ranges, found.addresses, cold, found.first_partitions) for ranges in parts]


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
    held = {
        MessageQueue(part.topic, part.broker_name, part.queue_id): Bounds(part.start, part.end)
        for part in ranges
        if part.rows
    }
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
        QueueRange(
            queue.topic,
            queue.broker_name,
            queue.queue_id,
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
