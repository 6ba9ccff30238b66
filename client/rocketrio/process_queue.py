"""The messages of one queue that were pulled and not handed out, and where its consumer stands.

    done_offset <= position <= fetch_offset

`fetch_offset` is pulled next, `position` is handed out next, and all before `done_offset` was worked on: that is
what may be committed.

Invariant: every change is synchronous, so that a cancel finds all three consistent.
Invariant: what a pull brought counts only if nobody moved the queue meanwhile (`epoch`).
Answers to: ProcessQueue, and the flow control of DefaultMQPushConsumerImpl.
Unlike Java: pulled chunks are kept as they came; no tree of messages by offset.
"""

from collections import deque
from typing import Final

import attrs

from rocketrio.pull_budget import PullBudget
from rocketrio.pull_result import PullResult
from rocketrio.wakeup import Wakeup
from rocketrio_protocol.message import MessageExt, MessageQueue

PULL_THRESHOLD_FOR_QUEUE: Final = 1000  # messages; pullThresholdForQueue
PULL_THRESHOLD_SIZE_FOR_QUEUE: Final = 100 * 1024 * 1024  # bytes; pullThresholdSizeForQueue


@attrs.define(eq=False)
class Chunk:
    """The messages of one pull, and where the queue goes on behind them."""

    messages: list[MessageExt]
    next_offset: int
    size: int
    is_held: bool = True
    """Counted by the budget."""


@attrs.define(eq=False)
class ProcessQueue:
    """One queue while this consumer owns it."""

    queue: MessageQueue
    threshold_messages: int = PULL_THRESHOLD_FOR_QUEUE
    threshold_bytes: int = PULL_THRESHOLD_SIZE_FOR_QUEUE
    budget: PullBudget = attrs.Factory(PullBudget)
    """Of all queues of the consumer."""
    is_paused: bool = False
    is_dropped: bool = False
    """Another member owns it now: nothing more is handed out."""
    epoch: int = 0
    fetch_offset: int | None = None
    """None until it is known where to start."""
    position: int | None = None
    done_offset: int | None = None
    chunks: deque[Chunk] = attrs.Factory(deque)
    current: Chunk | None = None
    """Being handed out."""
    message_count: int = 0
    size: int = 0
    max_offset: int | None = None
    """As the last pull answer said."""
    room: Wakeup = attrs.Factory(Wakeup)
    """Caused when more may be pulled."""

    def start(self, offset: int) -> None:
        """Begin at `offset`, or go there: what was pulled is forgotten."""
        self._forget()
        self.fetch_offset = self.position = self.done_offset = offset

    def rewind(self) -> None:
        """What was pulled and not handed out is to be pulled again."""
        self._forget()
        self.fetch_offset = self.position

    def drop(self) -> None:
        """The queue is no longer ours."""
        self.is_dropped = True
        self._forget()
        self.budget.forget(self)

    def _forget(self) -> None:
        self.epoch += 1
        for chunk in self.chunks:
            self._release(chunk)
        if self.current is not None:
            self._release(self.current)
        self.chunks.clear()
        self.current = None
        self.message_count = self.size = 0

    def _release(self, chunk: Chunk) -> None:
        if chunk.is_held:
            chunk.is_held = False
            self.budget.give(chunk.size)

    @property
    def is_lagging(self) -> bool:
        """Whether a pull will bring something at once, as far as is known."""
        return (
            self.max_offset is None
            or self.fetch_offset is None
            or self.fetch_offset < self.max_offset
        )

    @property
    def has_room(self) -> bool:
        """Whether more should be pulled."""
        if self.is_paused:
            return False
        return self.message_count < self.threshold_messages and self.size < self.threshold_bytes

    def put(self, result: PullResult) -> bool:
        """Take over what a pull from `fetch_offset` brought; whether there is something to hand out."""
        messages = result.messages() if result.body else []
        self.fetch_offset = result.next_begin_offset
        self.max_offset = result.max_offset
        if messages:
            chunk = Chunk(messages, result.next_begin_offset, len(result.body))
            self.chunks.append(chunk)
            self.message_count += len(messages)
            self.size += chunk.size
            self.budget.take(chunk.size)
            return True
        # Nothing of it was wanted: the queue stands behind it once all before it is handed out.
        last = self.chunks[-1] if self.chunks else self.current
        if last is not None:
            last.next_offset = result.next_begin_offset
        else:
            is_done = self.done_offset == self.position
            self.position = result.next_begin_offset
            if is_done:
                self.done_offset = self.position
        return False

    def take(self) -> Chunk:
        """The oldest chunk, to be handed out; it is `current` until `finish`."""
        assert self.current is None
        chunk = self.current = self.chunks.popleft()
        self.message_count -= len(chunk.messages)
        self.size -= chunk.size
        self.room.wake()
        return chunk

    def finish(self) -> None:
        """All of the current chunk is handed out."""
        assert self.current is not None
        self.position = self.current.next_offset
        self._release(self.current)
        self.current = None
