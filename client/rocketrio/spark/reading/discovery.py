"""Finds out what a batch read needs before it plans: its ranges, and where their brokers are."""

from functools import partial

import attrs

from rocketrio.client import ClientInstance
from rocketrio.spark.reading.asking import Retries, repeated
from rocketrio.spark.reading.filters import check_filter
from rocketrio.spark.reading.offsets import (
    GroupOffsets,
    Loss,
    QueueRange,
    check_covers,
    resolve_ranges,
    starts_before_ends,
)
from rocketrio.spark.reading.options import ReadOptions
from rocketrio.spark.reading.positions import offsets_at, with_what_is_not_shown_yet
from rocketrio.spark.reading.queues import (
    addresses_of,
    bounds_of,
    first_partitions,
    subscribed_queues,
)


@attrs.frozen
class Discovery:
    """The result of discovery, as planning needs it."""

    ranges: list[QueueRange]
    losses: list[Loss]
    addresses: dict[str, dict[int, str]]
    """Broker name to broker id to address."""
    first_partitions: dict[str, dict[str, int]]
    """Topic to broker to the number of its queue 0; empty unless `schemaMode=kafka`."""


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
    bounds = await with_what_is_not_shown_yet(client, bounds, starts)
    ranges, losses = resolve_ranges(bounds, starts, ends)
    topics = dict.fromkeys(queue.topic for queue in queues if options.schema_mode == "kafka")
    firsts = await first_partitions(client, topics)
    return Discovery(ranges, losses, addresses_of(client, queues), firsts)
