"""The driver's side of a streaming query: where it starts, where the next batch ends, where brokers are.

It runs in the loop of `runtime` and takes and returns tables of offsets. Its state belongs to this run only: after a
restart everything that matters comes from Spark's checkpoint, as the start of the first call.
"""

import logging
from collections.abc import Iterable, Sequence
from functools import partial

import attrs
import trio

from rocketrio.client import ClientInstance
from rocketrio.spark.errors import BrokerUnreachable, OffsetOutOfRange, TopicNotFound
from rocketrio.spark.reading.asking import Retries, repeated, source_errors
from rocketrio.spark.reading.filters import check_filter
from rocketrio.spark.reading.offsets import (
    LATEST_OFFSET,
    OffsetTable,
    QueueRange,
    check_covers,
    resolve_ranges,
)
from rocketrio.spark.reading.positions import offsets_at, with_what_is_not_shown_yet
from rocketrio.spark.reading.queues import (
    addresses_of,
    bounds_of,
    first_partitions,
    subscribed_queues,
)
from rocketrio.spark.streaming.group_commit import GroupCommit
from rocketrio.spark.streaming.options import StreamOptions
from rocketrio.spark.streaming.position import StreamPosition
from rocketrio.spark.streaming.sizes import MessageSizes
from rocketrio.spark.streaming.start import StreamStart
from rocketrio.spark.streaming.watch import StreamWatch
from rocketrio_protocol.errors import Error
from rocketrio_protocol.message import MessageQueue

logger = logging.getLogger("rocketrio.spark.stream")


@attrs.frozen
class Limit:
    """The size that Spark allows a batch, according to the trigger of the query."""

    max_rows: int | None = None
    max_size: int | None = None
    is_only_batch: bool = False
    """True if the batch takes everything there is, whatever the options say. That is so for Trigger.Once; with older
    PySpark any batch may be one."""


class StreamDriver:
    """One run of one streaming query."""

    def __init__(self, options: StreamOptions) -> None:
        read = options.read
        self._options = options
        self._start = StreamStart(read.starting)
        self._position = StreamPosition(
            min_rows=options.min_rows, max_delay=options.max_trigger_delay
        )
        self._watch = StreamWatch(options)
        self._sizes = MessageSizes(read.consumer_group)
        group = options.commit_group
        self._commits = None if group is None else GroupCommit(group, options.commit_interval)
        self._retries = Retries(read.offset_retries, read.offset_retry_interval)
        self._initial: dict[MessageQueue, int] | None = None

    async def initial(self, client: ClientInstance) -> dict[MessageQueue, int]:
        """Return where a new query starts, determined once. Raises SparkSourceError if a start is not possible."""
        if self._initial is None:
            with source_errors():
                self._initial = await self._find_initial(client)
        self._start.asked()
        return self._initial

    async def _find_initial(self, client: ClientInstance) -> dict[MessageQueue, int]:
        read, retries = self._options.read, self._retries
        try:
            queues = await repeated(partial(subscribed_queues, client, read), retries)
        except TopicNotFound:
            if read.topic_pattern is None:
                raise
            logger.warning("no topic matches yet pattern=%s", read.topic_pattern)
            queues = []
        check_covers(read.starting, dict.fromkeys(queues), option="startingOffsets")
        await check_filter(client, read, queues, retries=retries)
        bounds = await bounds_of(client, queues, retries=retries)
        starts = await offsets_at(
            client, read.starting, bounds, group=read.consumer_group, retries=retries
        )
        bounds = await with_what_is_not_shown_yet(client, bounds, starts)
        ranges, losses = resolve_ranges(bounds, starts, dict.fromkeys(queues, LATEST_OFFSET))
        self._report([loss.error() for loss in losses])
        self._watch.newest.update({queue: held.max_offset for queue, held in bounds.items()})
        return {
            MessageQueue(part.topic, part.broker_name, part.queue_id): part.start for part in ranges
        }

    async def aim(self, client: ClientInstance) -> None:
        """Read what exists now, then end. Raises BrokerUnreachable if the end of a queue cannot be found."""
        with source_errors():
            view = await repeated(partial(self._watch.look_whole, client), self._retries)
        self._position.aim(view)

    async def latest(
        self, client: ClientInstance, start: OffsetTable, limit: Limit
    ) -> dict[MessageQueue, int]:
        """Return the end of the next batch, or `start` if nothing is known to be new. Raises SparkSourceError."""
        if self._start.stands_still(is_only_batch=limit.is_only_batch):
            return dict(start)
        if self._commits is not None:
            self._commits.read_up_to(start)
        view, position = self._watch.view, self._position
        # A recent view is sufficient as long as it shows more to read.
        if not (self._watch.is_fresh and position.parts(start, view)):
            view = await self._watch.look(client, start)
        # No later poll would decide whether the queue grows back.
        while limit.is_only_batch and position.is_waiting(start, view, trio.current_time()):
            view = await self._watch.look(client, start)
        max_rows = limit.max_rows
        parts = position.parts(start, view)
        if limit.max_size is not None and parts:
            rows = await self._sizes.rows_of(client, limit.max_size, parts)
            max_rows = rows if max_rows is None else min(rows, max_rows)
        step = position.step(
            start,
            view,
            now=trio.current_time(),
            max_rows=max_rows,
            is_whole=limit.is_only_batch,
        )
        self._report(step.losses)
        if self._commits is not None:
            await self._commits.send(client, at_once=step.end == start)
        return step.end

    async def finished(self, client: ClientInstance, end: OffsetTable) -> None:
        """Note that Spark has finished a batch up to `end`, and commit for the group. Raises nothing."""
        if self._commits is not None:
            self._commits.finished(end)
            await self._commits.send(client, at_once=False)

    def newest(self, start: OffsetTable) -> dict[MessageQueue, int]:
        """Return the last known ends of the queues; a queue whose end is not known yet is omitted."""
        return {queue: max(end, start.get(queue, 0)) for queue, end in self._watch.newest.items()}

    # ------------------------------------------------------------------------------------ batches

    def ranges(self, start: OffsetTable, end: OffsetTable) -> list[QueueRange]:
        """Return what a batch reads. Raises OffsetOutOfRange for a queue that went back, if losses fail the query."""
        is_replay = self._start.replays_first_batch()
        if is_replay and self._start.first_batch_is_empty:
            return []
        found: list[QueueRange] = []
        for queue, last in sorted(end.items()):
            first = start.get(queue, last)  # The first batch reads nothing of a new queue.
            if first > last and not is_replay:
                self._report([_went_back(queue, first, last)])
            seen = self._watch.view.held.get(queue)
            if seen is not None and seen.is_certain and not self._options.read.fail_on_data_loss:
                first = max(first, min(seen.bounds.min_offset, last))
            if first < last:
                found.append(
                    QueueRange(queue.topic, queue.broker_name, queue.queue_id, first, last)
                )
        return found

    async def addresses(
        self, client: ClientInstance, queues: Sequence[MessageQueue]
    ) -> dict[str, dict[int, str]]:
        """Return the addresses of the queues' brokers; wait until name servers know them. Raises BrokerUnreachable."""
        wanted = {queue.broker_name: queue.topic for queue in queues}
        deadline = trio.current_time() + self._options.failure_timeout
        while True:
            found = addresses_of(client, queues)
            missing = sorted(set(wanted) - set(found))
            if not missing:
                return found
            failure: Error | None = None
            for name in missing:
                try:
                    await client.refresh_topic_route(wanted[name])
                except Error as error:
                    failure = error
            if wanted.keys() <= addresses_of(client, queues).keys():
                continue
            if trio.current_time() >= deadline:
                raise BrokerUnreachable(
                    f"no name server says where {', '.join(missing)} is"
                ) from failure
            logger.warning("brokers not known names=%s error=%s", ",".join(missing), failure)
            await trio.sleep(1.0)

    async def first_partitions(
        self, client: ClientInstance, topics: Sequence[str]
    ) -> dict[str, dict[str, int]]:
        """Return the numbers from which the column `partition` is computed. Raises SparkSourceError."""
        with source_errors():
            return await repeated(partial(first_partitions, client, topics), self._retries)

    # ------------------------------------------------------------------------------------- inside

    def _report(self, losses: Iterable[OffsetOutOfRange]) -> None:
        for loss in losses:
            if self._options.read.fail_on_data_loss:
                raise loss
            logger.warning("data lost and left out error=%s", loss)


def _went_back(queue: MessageQueue, start: int, end: int) -> OffsetOutOfRange:
    return OffsetOutOfRange(
        f"{queue} is to be read from {start} to before {end}: it was cut or made anew"
    )
