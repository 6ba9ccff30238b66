"""Fetches what one Spark task reads: it pulls in a pipeline and joins answers to blocks for decoding.

Each range has `pullPipelineDepth` pulls under way. Their answers are joined, one range after the other, until a block
is large enough: decoding answers of 32 messages one by one would be ten times slower. Ranges whose turn has not come
fetch ahead as far as their pulls reach.

Invariant: rows leave in the order of the task's ranges and of their offsets: a task that is run again, or a micro-batch
that is replayed, gives the same rows in the same order. A write's stamps depend on it.
Invariant: an answer is handed over at most once, and nothing beyond a range's end is.
"""

import logging
from typing import Final

import attrs
import trio

from rocketrio.client import ClientInstance
from rocketrio.consuming.subscription import ALL
from rocketrio.spark.reading.offsets import QueueRange
from rocketrio.spark.reading.options import ReadOptions
from rocketrio.spark.reading.pipeline import Pipeline
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
