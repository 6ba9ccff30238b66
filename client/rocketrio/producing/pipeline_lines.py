"""Messages that wait in a pipeline, in lines, and what a worker takes from them at once.

Invariant: a line gives messages in the order it got them.
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
    """A message that waits for its batch; `entry` is None for one that travels alone.

    A struct that the collector of garbage does not visit: thousands wait, and nothing in a message leads back to one.
    """

    message: Message
    unique_id: str
    entry: Entry | None
    size: int
    attempts: int = 0

    @property
    def is_odd(self) -> bool:
        """It cannot simply share a batch with its neighbours."""
        return self.entry is None or not self.message.wait_store_ok


@attrs.define(eq=False)
class Line:
    """Messages in order, for one queue or for any."""

    waiting: deque[Waiting] = attrs.Factory(deque)
    size: int = 0
    odd_count: int = 0
    lingering: trio.lowlevel.ParkingLot = attrs.Factory(trio.lowlevel.ParkingLot)
    """Workers that let a batch of it grow."""

    def is_full(self, batch_size: int) -> bool:
        """Whether a batch of it would grow no more."""
        return self.size >= batch_size or len(self.waiting) >= BATCH_MAX_MESSAGES

    def put_back(self, items: Sequence[Waiting]) -> None:
        """They were not stored: first in line again."""
        self.waiting.extendleft(reversed(items))
        self.size += sum(item.size for item in items)
        self.odd_count += sum(item.is_odd for item in items)

    def take(self, batch_size: int) -> list[Waiting]:
        """What fits one request: at least one message."""
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
    """Sends to one queue."""

    queue: MessageQueue
    takes_free: bool
    line: Line = attrs.Factory(Line)
    parked: trio.Event | None = None

    def wake(self) -> None:
        """There is something in its line."""
        if self.parked is not None:
            self.parked.set()


@attrs.define(eq=False)
class Topic:
    """Lines and workers of one topic."""

    free_line: Line = attrs.Factory(Line)
    idle: deque[Worker] = attrs.Factory(deque)
    by_queue: dict[MessageQueue, Worker] = attrs.Factory(dict)
    is_free_served: bool = False

    def end_lingering(self) -> None:
        """Whatever waits shall leave now."""
        for line in (self.free_line, *(worker.line for worker in self.by_queue.values())):
            line.lingering.unpark_all()

    takes_batches: bool = True
