"""One queue's messages that were pulled and not handed out, and the consumer's offsets in the queue.

    done_offset <= position <= fetch_offset

`fetch_offset` is pulled next, `position` is handed out next, and all messages before `done_offset` are done: it may be
committed. Concurrent handlers finish in any order; `in_work` lists the unfinished messages. Its places outlive their
messages: for messages that finish out of order only the offset is kept.

Invariant: every change is synchronous, so that a cancel finds all three consistent.
Invariant: the result of a pull counts only if the queue was not moved meanwhile (`epoch`).
Answers to: ProcessQueue, and the flow control of DefaultMQPushConsumerImpl.
Unlike Java: pulled chunks are kept as they arrived, not in a tree of messages by offset.
"""

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from typing import Final, Optional, TypeAlias

import attrs
import trio

from rocketrio.consuming.pull_budget import PullBudget
from rocketrio.consuming.pull_result import PullResult
from rocketrio.consuming.redelivered import redelivered
from rocketrio.wakeup import Wakeup
from rocketrio_protocol.message import MessageExt, MessageQueue
from rocketrio_protocol.names import RETRY_PREFIX
from rocketrio_protocol.record.compression import INFLATE_LIMIT

PULL_THRESHOLD_FOR_QUEUE: Final = 1000  # messages; pullThresholdForQueue
PULL_THRESHOLD_SIZE_FOR_QUEUE: Final = 100 * 1024 * 1024  # bytes; pullThresholdSizeForQueue

CONSUME_MAX_SPAN: Final = 2000
"""Messages after an unfinished one at which pulling stops (consumeConcurrentlyMaxSpan): all of them would be delivered
again if the consumer died."""
FINISH_POLL_INTERVAL: Final = 1.0  # fallback poll interval, seconds


@attrs.define(eq=False)
class PulledChunk:
    """The messages of one pull, and the offset where the queue continues after them."""

    messages: Sequence[MessageExt]
    next_offset: int
    size: int
    is_held: bool = True
    """Whether the budget counts it."""
    index: int = 0
    """Messages before it are with handlers, or done."""
    in_work: int = 0


@attrs.define(eq=False)
class QueueCounts:
    """Counts since the queue was taken over."""

    pulls: int = 0
    """Pulls that returned messages."""
    pull_seconds: float = 0.0
    """The total time of these pulls; a broker holds a pull until there is a message."""
    pulled: int = 0
    """Pulled messages that were wanted."""
    forgotten: int = 0
    """Pulled messages that were dropped instead of handed out: the queue moved to another offset, or was paused."""
    failed: int = 0
    """The number of times that a message could not be handled."""
    handed_back: int = 0
    """Messages that went back to the group, or to the dead letters."""
    log_cuts: int = 0
    """The number of times that the log had become shorter than what was read."""
    last_pull: float | None = None
    """When the last pull began, by the clock of deadlines."""

    def count_pull(self, now: float) -> None:
        """Count the last pull: it has returned messages."""
        if self.last_pull is not None:
            self.pulls += 1
            self.pull_seconds += now - self.last_pull


@attrs.define(eq=False)
class OffsetPlace:
    """A message's place in the order of offsets."""

    offset: int
    """The offset that is committed while this is the lowest unfinished message."""
    work: Optional["InWork"] = None
    """None when the message is done."""


@attrs.define(eq=False)
class InWork:
    """One message, from the time it is handed out until its handler has finished."""

    process_queue: "ProcessQueue"
    chunk: "PulledChunk"
    given: MessageExt
    place: OffsetPlace
    is_stale: bool = False
    """Whether the queue moved to another offset meanwhile: then the outcome changes no offset."""

    @property
    def works(self) -> Sequence["InWork"]:
        """The message as a batch of one."""
        return (self,)

    def done(self) -> None:
        """Mark the message as done."""
        self.process_queue.done(self)

    def again(self) -> None:
        """Prepare the message for another attempt here: its `reconsume_times` increases by one."""
        self.given = redelivered(self.given, getattr(self.given, "attempts_here", 0) + 1)

    def part(self, works: Sequence["InWork"]) -> "InWork | None":
        """Return this message if `works`, what is left of the unit, is not empty; else None."""
        return self if works else None


@attrs.define(eq=False)
class BatchInWork:
    """Several messages of one queue, in order, that one handler has together; at least one."""

    works: Sequence[InWork]

    @property
    def given(self) -> list[MessageExt]:
        """What the handler gets."""
        return [work.given for work in self.works]

    @property
    def process_queue(self) -> "ProcessQueue":
        """The queue of the messages."""
        return self.works[0].process_queue

    @property
    def is_stale(self) -> bool:
        """The same for all messages, because they were taken together."""
        return self.works[0].is_stale

    def done(self) -> None:
        """Mark all messages as done."""
        for work in self.works:
            work.done()

    def again(self) -> None:
        """Prepare all messages for another attempt here."""
        for work in self.works:
            work.again()

    def part(self, works: Sequence[InWork]) -> "BatchInWork | None":
        """Return the remaining messages as a batch, or None if there are none."""
        return BatchInWork(works) if works else None


Unit: TypeAlias = InWork | BatchInWork
"""The messages that one call of a handler gets."""


@attrs.define(eq=False)
class ProcessQueue:
    """One queue while this consumer owns it."""

    queue: MessageQueue
    threshold_messages: int = PULL_THRESHOLD_FOR_QUEUE
    threshold_bytes: int = PULL_THRESHOLD_SIZE_FOR_QUEUE
    budget: PullBudget = attrs.Factory(PullBudget)
    """Shared by all queues of the consumer."""
    is_lazy: bool = False
    """Whether whole chunks are wanted, as columns: then a message is decoded only when it is requested."""
    may_inflate: bool = False
    """Whether some of its messages were compressed."""
    is_paused: bool = False
    is_locked: bool = True
    """Whether this member is known to hold the queue's lock; always true if no order is required."""
    locked_until: float = math.inf
    """When the lock expires; in the past if it was lost, infinite if no order is required."""
    may_be_behind: bool = False
    """Whether another member may have had the queue and be further: the lock was lost for a while, or no broker
    answered."""
    must_start_again: bool = False
    """Whether the topic or the group was deleted, so that the position may mean nothing and the claim means nothing."""
    is_dropped: bool = False
    """Whether another member owns the queue now: nothing more is handed out."""
    epoch: int = 0
    fetch_offset: int | None = None
    """None until the start offset is known."""
    position: int | None = None
    done_offset: int | None = None
    chunks: deque[PulledChunk] = attrs.Factory(deque)
    current: PulledChunk | None = None
    """The chunk that is being handed out."""
    in_work: deque[OffsetPlace] = attrs.Factory(deque)
    """Places from the lowest unfinished message on."""
    message_count: int = 0
    size: int = 0
    max_offset: int | None = None
    """As reported by the last pull answer."""
    counts: QueueCounts = attrs.Factory(QueueCounts)
    room: Wakeup = attrs.Factory(Wakeup)
    """Woken when more may be pulled."""

    def start(self, offset: int) -> None:
        """Begin at `offset`, or move there: pulled messages are dropped."""
        self._forget()
        # Handlers still have these: what becomes of them must not move the offsets of the new position.
        for work in self.unfinished:
            work.is_stale = True
        self.in_work.clear()
        self.fetch_offset = self.position = self.done_offset = offset
        self.may_be_behind = self.must_start_again = False

    def rewind(self) -> None:
        """Drop pulled messages that were not handed out, so that they are pulled again."""
        self._forget()
        self.fetch_offset = self.position

    def drop(self) -> None:
        """Drop the queue: another member owns it."""
        self.is_dropped = True
        self._forget()
        self.budget.forget(self)

    def _forget(self) -> None:
        # A pull that is under way was sent for the former position: its answer must not be taken for this one's.
        self.epoch += 1
        self.counts.forgotten += self.waiting_count(self.position)
        for chunk in self.chunks:
            self._release(chunk)
        if self.current is not None:
            self._release(self.current)
        self.chunks.clear()
        self.current = None
        self.message_count = self.size = 0

    def _release(self, chunk: PulledChunk) -> None:
        # Once: a chunk is released by its last handler, or by a move of the queue, whichever comes first.
        if chunk.is_held:
            chunk.is_held = False
            self.budget.give(chunk.size)

    @property
    def needs_lock(self) -> bool:
        """Whether a lock that may expire reserves the queue for one member."""
        return self.locked_until < math.inf

    @property
    def is_lost(self) -> bool:
        """Whether the lock has expired or went to another member, which may be working on the queue."""
        return trio.current_time() >= self.locked_until

    @property
    def is_retry(self) -> bool:
        """Whether this is a queue of the retry topic, which redelivers failed messages."""
        return self.queue.topic.startswith(RETRY_PREFIX)

    @property
    def is_lagging(self) -> bool:
        """Whether a pull will return messages immediately, as far as is known."""
        return (
            self.max_offset is None
            or self.fetch_offset is None
            or self.fetch_offset < self.max_offset
        )

    @property
    def has_room(self) -> bool:
        """Whether more should be pulled."""
        if self.is_paused or not self.is_locked:
            return False
        if len(self.in_work) >= CONSUME_MAX_SPAN:
            return False
        return self.message_count < self.threshold_messages and self.size < self.threshold_bytes

    def put(self, result: PullResult) -> bool:
        """Take over the result of a pull from `fetch_offset`; return whether there is something to hand out."""
        messages: Sequence[MessageExt] = ()
        if result.body:
            messages = result.undecoded() if self.is_lazy else result.messages()
            self.may_inflate = self.may_inflate or result.has_compressed
        if messages and self.is_retry:
            messages = [redelivered(message) for message in messages]
        self.fetch_offset = result.next_begin_offset
        self.max_offset = result.max_offset
        if messages:
            chunk = PulledChunk(messages, result.next_begin_offset, len(result.body))
            self.chunks.append(chunk)
            self.message_count += len(messages)
            self.size += chunk.size
            self.counts.pulled += len(messages)
            self.budget.take(chunk.size)
            return True
        # All messages were filtered out: the position moves behind them once everything before is handed out.
        last = self.chunks[-1] if self.chunks else self.current
        if last is not None:
            last.next_offset = result.next_begin_offset
        else:
            is_done = self.done_offset == self.position
            self.position = result.next_begin_offset
            if is_done:
                self.done_offset = self.position
        return False

    def take(self) -> PulledChunk:
        """Return the oldest chunk, to be handed out; it is `current` until `finish`."""
        assert self.current is None
        chunk = self.current = self.chunks.popleft()
        self.message_count -= len(chunk.messages)
        self.size -= chunk.size
        self.room.wake()
        return chunk

    def finish(self) -> None:
        """Finish the current chunk: all of it is handed out."""
        assert self.current is not None
        self.position = self.current.next_offset
        self._release(self.current)
        self.current = None

    # ----------------------------------------------------------------------- handing messages to handlers

    def begin(self) -> InWork | None:
        """Take the next message for a handler; return None if there is none."""
        chunk = self.current
        if chunk is None:
            if not self.chunks:
                return None
            chunk = self.take()
            if type(chunk.messages) is not list:
                chunk.messages = list(chunk.messages)
        assert self.position is not None
        place = OffsetPlace(self.position)
        work = place.work = InWork(self, chunk, chunk.messages[chunk.index], place)
        chunk.index += 1
        chunk.in_work += 1
        self.in_work.append(place)
        if chunk.index < len(chunk.messages):
            self.position = chunk.messages[chunk.index].queue_offset
        else:
            self.position = chunk.next_offset
            self.current = None
        return work

    def begin_batch(self, max_messages: int) -> list[InWork]:
        """Take the next available messages, up to `max_messages`, for one handler together.

        It stops when their decompressed bodies exceed the limit together.
        """
        works: list[InWork] = []
        size = 0
        while len(works) < max_messages and (work := self.begin()) is not None:
            works.append(work)
            if self.may_inflate:
                size += work.given.inflated_size
                if size > INFLATE_LIMIT:
                    break
        return works

    def done(self, work: InWork) -> None:
        """Mark a message as done, after its handler has finished."""
        work.place.work = None
        if self.may_inflate:
            work.given.forget_body()
        chunk = work.chunk
        chunk.in_work -= 1
        if not chunk.in_work and chunk is not self.current:
            self._release(chunk)
        if work.is_stale:
            return
        in_work = self.in_work
        waits = len(in_work) >= CONSUME_MAX_SPAN or self.is_dropped
        while in_work and in_work[0].work is None:
            in_work.popleft()
        # The lowest unfinished one, whatever is done after it: committed further, it would be lost with this process.
        self.done_offset = in_work[0].offset if in_work else self.position
        if waits:
            self.room.wake()

    def abandon(self, work: InWork) -> None:
        """Leave a message of a lost queue undone: the next owner of the queue gets it again."""
        self._release(work.chunk)
        work.is_stale = True
        self.in_work.clear()
        # As if it had never been handed out: nothing of it is committed, and the next owner begins with it.
        self.position = self.done_offset
        self.room.wake()

    async def finished(self) -> None:
        """Wait until no message of a lost queue is in work."""
        while self.in_work or self.done_offset != self.position:
            await self.room.wait(FINISH_POLL_INTERVAL)

    def put_current_back(self, index: int) -> None:
        """Put the rest of the current chunk, from `index` on, back to be handed out again."""
        chunk = self.current
        assert chunk is not None
        self.current = None
        chunk.messages = chunk.messages[index:]
        chunk.index = 0
        self.chunks.appendleft(chunk)
        self.message_count += len(chunk.messages)
        self.size += chunk.size

    # -------------------------------------------------------------------------- messages that are held

    def waiting(self, position: int | None) -> Sequence[MessageExt]:
        """Return the messages of the current chunk that are not handed out, with the queue at `position`."""
        return () if self.current is None else self.current.messages[self._index_of(position) :]

    def waiting_count(self, position: int | None) -> int:
        """Return the number of messages that were pulled and are not handed out."""
        if self.current is None:
            return self.message_count
        return self.message_count + len(self.current.messages) - self._index_of(position)

    def _index_of(self, position: int | None) -> int:
        assert self.current is not None
        assert position is not None
        return bisect_left(self.current.messages, position, key=_queue_offset)

    @property
    def unfinished(self) -> list[InWork]:
        """The messages that handlers have, in order."""
        return [place.work for place in self.in_work if place.work is not None]

    def reclaim(self) -> None:
        """Take unfinished messages back after the last handler has ended, to hand them out first."""
        if self.is_dropped:
            return
        if self.current is not None:
            self.put_current_back(self.current.index)
        unfinished = self.unfinished
        if not unfinished:
            return
        for work in unfinished:
            work.is_stale = True
            if not self.chunks or work.chunk is not self.chunks[0]:
                self._release(work.chunk)
        self.in_work.clear()
        assert self.position is not None
        messages = [work.given for work in unfinished]
        # Its bytes belong to chunks that were already counted.
        self.chunks.appendleft(PulledChunk(messages, self.position, 0, is_held=False))
        self.message_count += len(messages)
        self.position = messages[0].queue_offset


def _queue_offset(message: MessageExt) -> int:
    return message.queue_offset
