"""The lines in which a pipeline's messages wait, and the batches that workers take from them.

Invariant: a line returns messages in the order in which it got them.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

import attrs
import msgspec
import trio

from rocketrio.producing.outgoing import Entry
from rocketrio_protocol.message import Message, MessageQueue

BATCH_MAX_MESSAGES: Final = 1000


class Waiting(msgspec.Struct, gc=False, eq=False):
    """A message that waits for its batch; `entry` is None for a message that is sent alone.

    A struct without garbage collection: thousands wait, and messages have no reference back to their struct.
    """

    message: Message
    unique_id: str
    entry: Entry | None
    size: int
    attempts: int = 0

    @property
    def is_odd(self) -> bool:
        """Whether it cannot simply share a batch with its neighbours."""
        return self.entry is None or not self.message.wait_store_ok


@attrs.define(eq=False)
class Line:
    """Messages in order, for one queue or for any."""

    waiting: deque[Waiting] = attrs.Factory(deque)
    size: int = 0
    odd_count: int = 0
    lingering: trio.lowlevel.ParkingLot = attrs.Factory(trio.lowlevel.ParkingLot)
    """Workers that wait for a batch of this line to grow."""

    def is_full(self, batch_size: int) -> bool:
        """Return whether a batch of this line cannot grow any more."""
        return self.size >= batch_size or len(self.waiting) >= BATCH_MAX_MESSAGES

    def put_back(self, items: Sequence[Waiting]) -> None:
        """Put messages that were not stored back at the front."""
        self.waiting.extendleft(reversed(items))
        self.size += sum(item.size for item in items)
        self.odd_count += sum(item.is_odd for item in items)

    def take(self, batch_size: int) -> list[Waiting]:
        """Take the messages that fit one request: at least one."""
        waiting = self.waiting
        if not self.odd_count and self.size <= batch_size and len(waiting) <= BATCH_MAX_MESSAGES:
            taken = list(waiting)
            waiting.clear()
            self.size = 0
            return taken
        taken, size = [], 0
        while waiting and len(taken) < BATCH_MAX_MESSAGES:
            item = waiting[0]
            is_alone = item.entry is None
            differs = bool(taken) and item.message.wait_store_ok != taken[0].message.wait_store_ok
            if taken and (is_alone or differs or size + item.size > batch_size):
                break
            taken.append(waiting.popleft())
            size += item.size
            self.odd_count -= item.is_odd
            if is_alone:
                break
        self.size -= size
        return taken


@attrs.define(eq=False)
class Worker:
    """The task that sends to one queue."""

    queue: MessageQueue
    takes_free: bool
    line: Line = attrs.Factory(Line)
    parked: trio.Event | None = None

    def wake(self) -> None:
        """Wake the worker: its line has a message."""
        if self.parked is not None:
            self.parked.set()


@attrs.define(eq=False)
class Topic:
    """The lines and workers of one topic."""

    free_line: Line = attrs.Factory(Line)
    idle: deque[Worker] = attrs.Factory(deque)
    by_queue: dict[MessageQueue, Worker] = attrs.Factory(dict)
    is_free_served: bool = False

    def end_lingering(self) -> None:
        """Let waiting workers send their batches now."""
        for line in (self.free_line, *(worker.line for worker in self.by_queue.values())):
            line.lingering.unpark_all()

    takes_batches: bool = True
