"""Messages that a handler has: one, or several of one queue; and the place of each in its queue.

Places outlive messages: for messages that finish out of order only the offset is kept.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Optional, TypeAlias

import attrs

from rocketrio.consuming.redelivered import redelivered
from rocketrio_protocol.message import MessageExt

if TYPE_CHECKING:
    from rocketrio.consuming.process_queue import Chunk, ProcessQueue


@attrs.define(eq=False)
class Place:
    """A message's place in the order of offsets."""

    offset: int
    """The offset that is committed while this is the lowest unfinished message."""
    work: Optional["InWork"] = None
    """None when the message is done."""


@attrs.define(eq=False)
class InWork:
    """One message, from the time it is handed out until its handler has finished."""

    process_queue: "ProcessQueue"
    chunk: "Chunk"
    given: MessageExt
    place: Place
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
