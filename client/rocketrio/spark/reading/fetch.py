"""Fetches what one Spark task reads: it pulls in a pipeline and joins answers to blocks for decoding.

Each range has `pullPipelineDepth` pulls under way; `Pipeline` decides which to send next, without I/O. Their answers
are joined, one range after the other, until a block is large enough: decoding answers of 32 messages one by one would
be ten times slower. Ranges whose turn has not come fetch ahead as far as their pulls reach.

A range is divided into slots of as many messages as the broker returns at once, so that several pulls can be under
way. A broker limits its answers whatever is requested (Apache: 32 messages from memory, 8 from disk). The first answer
shows that limit, a short answer makes slots smaller, and full answers make them grow again. With a filter the next
offset is unknown until an answer comes, so one pull follows the other in a single slot that is the whole range.

Invariant: rows leave in the order of the task's ranges and of their offsets: a task that is run again, or a micro-batch
that is replayed, gives the same rows in the same order. A write's stamps depend on it.
Invariant: an answer is handed over at most once, and no offset outside a range is requested or handed over.
"""

import logging
from collections import deque
from collections.abc import Iterator
from typing import Final

import attrs
import trio

from rocketrio.client import ClientInstance
from rocketrio.consuming.subscription import ALL
from rocketrio.spark.reading.offsets import QueueRange
from rocketrio.spark.reading.options import ReadOptions
from rocketrio.spark.reading.plan import ReadTask
from rocketrio.spark.reading.salvage import stretches
from rocketrio.spark.reading.sources import TaskSource
from rocketrio.spark.runtime import Handover
from rocketrio_protocol.columns.starts import record_starts
from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.frame import Body
from rocketrio_protocol.remoting.tasks import background_nursery, ungrouped

RANGES_AT_ONCE: Final = 4
"""The largest number of ranges of a task fetched at once: enough to hide a slow broker behind others."""

FULL_SLOTS_TO_GROW: Final = 8
"""The number of slots in a row, each filled by one pull, after which the next slots are twice as long."""

logger = logging.getLogger("rocketrio.spark.fetch")


@attrs.define
class Block:
    """Stored records that are decoded together."""

    pieces: list[tuple[QueueRange, int, Body]] = attrs.Factory(list)
    """The range, the number of its rows, and their records."""
    size: int = 0
    rows: int = 0

    def add(self, part: QueueRange, rows: int, body: Body) -> None:
        """Append records of a range."""
        self.pieces.append((part, rows, body))
        self.size += len(body)
        self.rows += rows

    def split(self, rows: int) -> tuple["Block", "Block"]:
        """Split off the first `rows` records, at least one; a damaged stretch counts as one record."""
        first, others = Block(), Block()
        for part, _, body in self.pieces:
            ends = [end for _, end in stretches(bytes(body))]
            count = min(rows - first.rows, len(ends))
            at = ends[count - 1] if count else 0
            for block, counted, records in (
                (first, count, body[:at]),
                (others, len(ends) - count, body[at:]),
            ):
                if counted:
                    block.add(part, counted, records)
        return first, others


async def fetch_task(
    task: ReadTask, options: ReadOptions, handover: Handover[Block], client: ClientInstance
) -> None:
    """Fetch all ranges of a task over the client's connections. Raises SparkSourceError."""
    source = TaskSource(task, options, client)
    fetcher = Fetcher(options, handover)
    limiter = trio.CapacityLimiter(RANGES_AT_ONCE)
    async with background_nursery() as background:
        background.start_soon(source.run)
        with ungrouped():
            async with trio.open_nursery() as nursery:
                turn = trio.Event()
                turn.set()
                for part in task.ranges:
                    await limiter.acquire_on_behalf_of(part)
                    over = trio.Event()
                    nursery.start_soon(fetcher.fetch, part, source, limiter, turn, over)
                    turn = over
        await fetcher.flush()
    for addr, served in source.served.items():
        logger.info(
            "task read broker=%s id=%d addr=%s bytes=%d pulls=%d",
            served.broker_name, served.broker_id, addr, served.size, served.pulls,
        )  # fmt: skip


class Fetcher:
    """Joins the answers of several ranges to blocks."""

    def __init__(self, options: ReadOptions, handover: Handover[Block]) -> None:
        self._options = options
        self._handover = handover
        self._block = Block()
        self._flushing = trio.Lock()  # First come, first served, so blocks stay in order.

    async def fetch(
        self,
        part: QueueRange,
        source: TaskSource,
        limiter: trio.CapacityLimiter,
        turn: trio.Event,
        over: trio.Event,
    ) -> None:
        """Fetch one range from its start to its end; its rows leave once `turn` is set."""
        try:
            await _RangeFetch(self, part, source, self._options, turn).run()
            over.set()
        finally:
            limiter.release_on_behalf_of(part)

    def add(self, part: QueueRange, rows: int, body: Body) -> bool:
        """Append records; return True if the block should be flushed now."""
        block = self._block
        block.add(part, rows, body)
        return block.size >= self._options.batch_size or block.rows >= self._options.batch_rows

    async def flush(self) -> None:
        """Hand over the current block, if it has any rows; wait while Spark is behind."""
        async with self._flushing:
            if self._block.pieces:
                block, self._block = self._block, Block()
                await self._handover.put(block)


class _RangeFetch:
    """The tasks that fetch one range; one task at a time also hands over the answers that are next in order."""

    def __init__(
        self,
        fetcher: Fetcher,
        part: QueueRange,
        source: TaskSource,
        options: ReadOptions,
        turn: trio.Event,
    ) -> None:
        self._fetcher = fetcher
        self._turn = turn
        self._part = part
        self._source = source
        self._depth = options.pull_pipeline_depth
        # An answer is never split, so one must not hold more rows than a record batch should.
        batch_size = min(options.pull_batch_size, options.batch_rows)
        self._is_filtered = options.subscription != ALL
        self._pipeline = Pipeline(
            part, depth=self._depth, batch_size=batch_size, is_filtered=self._is_filtered
        )
        self._handing_on = False
        self._idle = trio.lowlevel.ParkingLot()

    async def run(self) -> None:
        """Fetch until everything is handed over."""
        async with trio.open_nursery() as nursery:
            for _ in range(self._depth):
                nursery.start_soon(self._pull)

    async def _pull(self) -> None:
        pipeline = self._pipeline
        while not pipeline.is_done:
            slot = pipeline.next_pull()
            if slot is None:
                await self._idle.park()
                continue
            answer = await self._source.pull(self._part, slot.at, slot.end)
            rows = _row_count(answer.body) if self._is_filtered else None
            pipeline.answered(slot, answer.next_offset, answer.body, rows=rows)
            if self._is_filtered:
                self._idle.unpark()  # The next pull need not wait for the hand-over.
            if not self._handing_on:
                await self._hand_on()

    async def _hand_on(self) -> None:
        # This loop also sees what arrives meanwhile: no other task runs between its end and the change of the flag.
        self._handing_on = True
        if not self._turn.is_set():
            self._idle.unpark_all()  # Answers have a size now: others need not wait.
            await self._turn.wait()
        for rows, body in self._pipeline.take_ready():
            if self._fetcher.add(self._part, rows, body):
                await self._fetcher.flush()
        self._handing_on = False
        self._idle.unpark_all()  # Slots are free, or the size is known, or all is done.


def _row_count(body: Body) -> int | None:
    """Return the number of records, or None for damaged records; the decoder reports the damage."""
    try:
        return len(record_starts(body))
    except RemoteProtocolError:
        return None


@attrs.define(eq=False)
class Slot:
    """A part of a range that one pull after the other fills."""

    at: int
    """The next offset to pull."""
    end: int
    pulls: int = 0
    is_out: bool = False
    bodies: list[tuple[int, Body]] = attrs.Factory(list)
    """The rows and records of each answer."""

    @property
    def is_done(self) -> bool:
        return self.at >= self.end


class Pipeline:
    """Decides which pulls of one range to send next, and which answers can be handed over. Does no I/O."""

    def __init__(
        self, part: QueueRange, *, depth: int, batch_size: int, is_filtered: bool = False
    ) -> None:
        self.part = part
        self._is_filtered = is_filtered
        self._depth = depth
        self._batch_size = batch_size
        self._stride = 0  # unknown until the first answer
        self._full_in_a_row = 0
        self._next = part.start
        self._slots: deque[Slot] = deque()

    @property
    def is_done(self) -> bool:
        """True once nothing is left to pull or to hand over."""
        return not self._slots and self._next >= self.part.end

    def next_pull(self) -> Slot | None:
        """Return the slot to pull now, from `slot.at` to before `slot.end`, or None if no pull may be sent."""
        for slot in self._slots:
            if not slot.is_out and not slot.is_done:
                if self._is_filtered and len(slot.bodies) >= self._depth:
                    return None  # Enough answers wait to be handed over.
                slot.is_out = True
                return slot
        if len(self._slots) >= self._depth or self._next >= self.part.end:
            return None
        if self._is_filtered:
            return self._new_slot(self.part.end)
        if not self._stride and self._slots:
            return None
        return self._new_slot(min(self._next + (self._stride or self._batch_size), self.part.end))

    def _new_slot(self, end: int) -> Slot:
        slot = Slot(self._next, end, is_out=True)
        self._next = end
        self._slots.append(slot)
        return slot

    def answered(
        self, slot: Slot, next_offset: int, body: Body = b"", *, rows: int | None = None
    ) -> None:
        """Record that a pull for `slot` returned the messages up to `next_offset`; `body` may be empty.

        `rows` is their number, if that is less than the number of offsets. If `next_offset` lies beyond the slot, all
        messages up to there are lost, and none of these offsets is pulled any more.
        """
        slot.is_out = False
        slot.pulls += 1
        reached = min(next_offset, slot.end)
        offsets = reached - slot.at
        if len(body):
            slot.bodies.append((offsets if rows is None else rows, body))
            if not self._is_filtered:
                self._learn(slot, offsets)
        slot.at = reached
        if next_offset > slot.end and not len(body):
            self._skip(slot.end, min(next_offset, self.part.end))

    def _skip(self, start: int, end: int) -> None:
        self._next = max(self._next, end)
        for slot in self._slots:
            if slot.at >= start and not slot.is_out:  # Pulls under way bring answers of their own.
                slot.at = max(slot.at, min(end, slot.end))

    def _learn(self, slot: Slot, rows: int) -> None:
        is_first = not self._stride
        if is_first or slot.at + rows < slot.end:
            self._stride = max(1, rows)
            self._full_in_a_row = 0
            if is_first and slot.at + rows < slot.end:
                # The first slot was a guess: the rest of it is divided into slots of the size that is now known.
                slot.end = self._next = slot.at + rows
        elif slot.pulls == 1 and rows == self._stride:
            self._full_in_a_row += 1
            if self._full_in_a_row >= FULL_SLOTS_TO_GROW:
                self._full_in_a_row = 0
                self._stride = min(2 * self._stride, self._batch_size)

    def take_ready(self) -> Iterator[tuple[int, Body]]:
        """Yield the rows and records that are next in order, each once."""
        while self._slots:
            slot = self._slots[0]
            yield from slot.bodies
            slot.bodies.clear()
            if not slot.is_done:
                return
            self._slots.popleft()
