"""The driver's side of a streaming query: where it starts, where the next batch ends, where brokers are.

It runs in the loop of `runtime` and takes and returns tables of offsets. Its state belongs to this run only: after a
restart everything that matters comes from Spark's checkpoint, as the start of the first call.
"""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import attrs
import trio

from rocketrio.client import ClientInstance
from rocketrio.consuming.pull import PullAPIWrapper
from rocketrio.consuming.pull_result import PullStatus
from rocketrio.spark.errors import BrokerUnreachableError, OffsetOutOfRangeError, TopicNotFoundError
from rocketrio.spark.reading.offsets import (
    LATEST_OFFSET,
    ExplicitOffsets,
    OffsetTable,
    Position,
    QueueRange,
    check_covers,
    resolve_ranges,
)
from rocketrio.spark.reading.questions import (
    Retries,
    addresses_of,
    bounds_of,
    check_filter,
    first_partitions,
    offsets_at,
    repeated,
    source_errors,
    subscribed_queues,
    with_what_is_not_shown_yet,
)
from rocketrio.spark.streaming.group_commit import GroupCommit
from rocketrio.spark.streaming.options import StreamOptions
from rocketrio.spark.streaming.position import Part, StreamPosition, created_again
from rocketrio.spark.streaming.watch import StreamWatch
from rocketrio_protocol.errors import Error
from rocketrio_protocol.message import MessageQueue

SAMPLE_AGE: Final = 60.0
"""Seconds after which a queue is sampled again."""
SAMPLE_ROWS: Final = 32  # the number that any broker returns at once
QUEUES_SAMPLED: Final = 8
"""The largest number of queues that are sampled, those with the most to read; the others count as the mean of these."""
SAMPLE_TIMEOUT: Final = 2.0
UNKNOWN_SIZE: Final = 1024.0
"""The assumed size of a message in bytes, while no sample is known."""

logger = logging.getLogger("rocketrio.spark.stream")


@attrs.frozen
class Limit:
    """The size that Spark allows a batch, according to the trigger of the query."""

    max_rows: int | None = None
    max_size: int | None = None
    is_only_batch: bool = False
    """True if the batch takes everything there is, whatever the options say. That is so for Trigger.Once; with older
    PySpark any batch may be one."""
    is_surely_last: bool = False
    """True if no batch of this query follows, so that none would read what this one cannot reach."""


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
        self._must_reach_all = False

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
        except TopicNotFoundError:
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
        self.continue_in(
            {
                queue: held.incarnation
                for queue, held in bounds.items()
                if held.incarnation is not None
            }
        )
        return {part.queue: part.start for part in ranges}

    async def set_target(self, client: ClientInstance) -> None:
        """Read what exists now, then end. Raises BrokerUnreachableError if the end of a queue cannot be found."""
        with source_errors():
            view = await repeated(partial(self._watch.poll_all, client), self._retries)
        self._position.set_target(view)
        self._must_reach_all = True

    async def latest(
        self, client: ClientInstance, start: OffsetTable, limit: Limit
    ) -> dict[MessageQueue, int]:
        """Return the end of the next batch, or `start` if nothing is known to be new. Raises SparkSourceError."""
        if self._start.returns_start(is_only_batch=limit.is_only_batch):
            return dict(start)
        if self._commits is not None:
            self._commits.read_up_to(start)
        if self._must_reach_all or limit.is_surely_last:
            with source_errors():
                view = await repeated(partial(self._watch.reach_all, client, start), self._retries)
            self._position.add_targets(start, view)
            self._must_reach_all = False
        view, position = self._watch.view, self._position
        # A recent view is sufficient as long as it shows more to read.
        if not (self._watch.is_fresh and position.parts(start, view)):
            view = await self._watch.poll(client, start)
        # No later poll would decide whether the queue grows back.
        while limit.is_only_batch and position.is_waiting(start, view, trio.current_time()):
            view = await self._watch.poll(client, start)
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
        self.continue_in(step.incarnations)
        for queue in sorted(view.retired.keys() - self._watch.let_go):
            logger.warning(
                "queue of a retired broker let go queue=%s offset=%d", queue, start[queue]
            )
        self._watch.let_go.update(view.retired)
        if self._commits is not None:
            await self._commits.send(client, at_once=step.end == start)
        return step.end

    def continue_in(self, incarnations: OffsetTable) -> None:
        """Note which topics of their names the positions in the checkpoint count, as far as it says so."""
        self._position.incarnations.update(incarnations)

    def continue_without(self, queues: Collection[MessageQueue]) -> None:
        """Note which queues an earlier run has let go, because their brokers are out of service."""
        self._watch.let_go.update(queues)

    def let_go(self, table: OffsetTable) -> dict[MessageQueue, int]:
        """Return the queues of brokers that are out of service, with their positions."""
        return {queue: at for queue, at in table.items() if queue in self._watch.let_go}

    def incarnations(self, table: OffsetTable) -> dict[MessageQueue, int]:
        """Return which topics of their names the positions count, as far as it is known."""
        known = self._position.incarnations
        return {queue: known[queue] for queue in table if queue in known}

    async def finished(self, client: ClientInstance, end: OffsetTable) -> None:
        """Note that Spark has finished a batch up to `end`, and commit for the group. Raises nothing."""
        if self._commits is not None:
            self._commits.finished(end)
            await self._commits.send(client, at_once=False)

    def newest(self, start: OffsetTable) -> dict[MessageQueue, int]:
        """Return the last known ends of the queues; a queue whose end is not known yet is omitted."""
        return {queue: max(end, start.get(queue, 0)) for queue, end in self._watch.newest.items()}

    # ------------------------------------------------------------------------------------ batches

    def ranges(
        self, start: OffsetTable, end: OffsetTable, begun_again: Collection[MessageQueue] = ()
    ) -> list[QueueRange]:
        """Return what a batch reads; `begun_again` are queues whose start counts an earlier topic of that name.

        Raises OffsetOutOfRangeError for a queue that went back, if losses fail the query.
        """
        is_replay = self._start.replays_first_batch()
        if is_replay and self._start.first_batch_is_empty:
            return []
        found: list[QueueRange] = []
        for queue, last in sorted(end.items()):
            first = start.get(queue, last)  # The first batch reads nothing of a new queue.
            if queue in begun_again:
                first = 0
            if first > last and not is_replay:
                self._report([_went_back(queue, first, last)])
            seen = self._watch.view.held.get(queue)
            if seen is not None and seen.is_certain and not self._options.read.fail_on_data_loss:
                first = max(first, min(seen.bounds.min_offset, last))
            if first < last:
                found.append(QueueRange.of(queue, first, last))
        return found

    async def created_again(
        self, client: ClientInstance, table: OffsetTable, incarnations: OffsetTable
    ) -> set[MessageQueue]:
        """Return the queues of an interrupted batch whose topic was created again since the batch was planned.

        Raises OffsetOutOfRangeError for them if losses fail the query. Later batches are planned from what was polled.
        """
        if self._watch.has_polled:
            return set()
        view = await self._watch.poll(client, table)
        found = {
            queue: seen.bounds
            for queue, seen in view.held.items()
            if (now := seen.bounds.incarnation) is not None and incarnations.get(queue, now) < now
        }
        self._report(
            created_again(queue, table.get(queue, 0), found[queue]) for queue in sorted(found)
        )
        return set(found)

    async def addresses(
        self, client: ClientInstance, queues: Sequence[MessageQueue]
    ) -> dict[str, dict[int, str]]:
        """Return the addresses of the queues' brokers; wait until name servers know them.

        Raises BrokerUnreachableError.
        """
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
                raise BrokerUnreachableError(
                    f"no name server knows an address of {', '.join(missing)}"
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

    def _report(self, losses: Iterable[OffsetOutOfRangeError]) -> None:
        for loss in losses:
            if self._options.read.fail_on_data_loss:
                raise loss
            logger.warning("lost messages skipped error=%s", loss)


def _went_back(queue: MessageQueue, start: int, end: int) -> OffsetOutOfRangeError:
    return OffsetOutOfRangeError(
        f"{queue} is to be read from {start} to before {end}: the queue was truncated or recreated"
    )


class StreamStart:
    """Makes the first batch of a fresh query empty if its start must be in Spark's log before anything is read.

    Spark keeps the end of each batch, but not the start of the first one: it asks for that again if batch 0 is
    replayed. A start that is not the same then (`latest`, a group's offsets, what retention left) would lose the
    messages between. So the first batch of such a query is empty: its end is its start.

    Invariant: a poll returns its start exactly if the start was asked for and nothing else since, on this instance. A
    weaker test would return it a second time, and an AvailableNow query would end with nothing read.
    Answers to: the initial offsets that Spark's Kafka source keeps in a log of its own.
    """

    def __init__(self, starting: Position) -> None:
        self._starting = starting
        self._is_asked = False
        self._is_over = False

    def asked(self) -> None:
        """Note that Spark asked where the query starts, perhaps for the second time."""
        self._is_asked = True

    def returns_start(self, *, is_only_batch: bool) -> bool:
        """Return True if this poll must return its start; every poll has to call this.

        With `is_only_batch` (Trigger.Once) a start that can be found again, or is the oldest message, is read at once.
        """
        is_first = self._is_first()
        if self._is_certain:
            return False
        return is_first and not (is_only_batch and self._is_stable)

    def replays_first_batch(self) -> bool:
        """Return True if this plans batch 0 of an earlier run again; every planning of a batch has to call this."""
        return self._is_first()

    @property
    def first_batch_is_empty(self) -> bool:
        """Whether batch 0 is empty by rule, whatever start Spark passes when it replays it."""
        return not self._is_stable

    def _is_first(self) -> bool:
        # PySpark 4.0 plans from an end to itself before it asks for the start.
        if not self._is_asked:
            return False
        is_first, self._is_over = not self._is_over, True
        return is_first

    @property
    def _is_certain(self) -> bool:
        """Whether the options alone determine the start, at any time."""
        if not isinstance(self._starting, ExplicitOffsets):
            return False
        return all(offset >= 0 for offset in self._starting.table.values())

    @property
    def _is_stable(self) -> bool:
        """Whether a later evaluation of the start would skip no message: only retention moves it."""
        if isinstance(self._starting, ExplicitOffsets):
            return LATEST_OFFSET not in self._starting.table.values()
        return self._starting == "earliest"


@attrs.define(eq=False)
class MessageSizes:
    """The mean message size of each queue, to convert maxBytesPerTrigger to a number of messages.

    Brokers do not report the bytes of a range, and tasks cannot report back, so some of the next messages are pulled.
    """

    group: str
    _means: dict[MessageQueue, tuple[float, float]] = attrs.Factory(dict)
    """The mean size in bytes, and the time of the sample."""

    async def rows_of(
        self, client: ClientInstance, max_size: int, parts: Mapping[MessageQueue, Part]
    ) -> int:
        """Return how many messages of `parts`, taken in proportion, are about `max_size` stored bytes; at least one."""
        await self._sample_all(client, parts)
        counts = {queue: part.last - part.first for queue, part in parts.items()}
        total = sum(counts.values())
        found = [self._means[queue][0] for queue in parts if queue in self._means]
        usual = sum(found) / len(found) if found else UNKNOWN_SIZE
        size = sum(
            count * self._means.get(queue, (usual, 0.0))[0] for queue, count in counts.items()
        )
        return max(1, int(max_size * total / size)) if size else 1

    async def _sample_all(self, client: ClientInstance, parts: Mapping[MessageQueue, Part]) -> None:
        now = trio.current_time()
        largest = sorted(parts, key=lambda queue: (parts[queue].first - parts[queue].last, queue))
        old = [
            queue
            for queue in largest[:QUEUES_SAMPLED]
            if queue not in self._means or now - self._means[queue][1] >= SAMPLE_AGE
        ]
        with trio.move_on_after(SAMPLE_TIMEOUT):
            async with trio.open_nursery() as nursery:
                for queue in old:
                    nursery.start_soon(self._sample, client, queue, parts[queue].first)

    async def _sample(self, client: ClientInstance, queue: MessageQueue, offset: int) -> None:
        pulls = PullAPIWrapper(client, self.group)
        try:
            result = await pulls.pull_kernel(
                queue, offset, max_messages=SAMPLE_ROWS, suspend_timeout=0, timeout=SAMPLE_TIMEOUT
            )
        except Error as error:
            logger.info("message size not sampled queue=%s error=%s", queue, error)
            return
        messages = result.messages() if result.status is PullStatus.FOUND else []
        if messages:
            mean = len(result.body) / len(messages)
            self._means[queue] = (mean, trio.current_time())
