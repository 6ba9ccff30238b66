"""What a handler has: one message, or several of one queue; and each one's place in its queue until it is done.

A place outlives its message: of what is done behind a message that is not, only an offset is kept.
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
    """In the order of offsets."""

    offset: int
    """What is committed when this one is the lowest that is not done."""
    work: Optional["InWork"] = None
    """None: it is done."""


@attrs.define(eq=False)
class InWork:
    """One message, from the moment it is handed out until its handler has finished."""

    process_queue: "ProcessQueue"
    chunk: "Chunk"
    given: MessageExt
    place: Place
    is_stale: bool = False
    """Its queue went elsewhere meanwhile: what becomes of it moves nothing."""

    @property
    def works(self) -> Sequence["InWork"]:
        """This one, as a batch of one."""
        return (self,)

    def done(self) -> None:
        """Its handler has finished."""
        self.process_queue.done(self)

    def again(self) -> None:
        """Its handler is to get it once more: its `reconsume_times` is one more."""
        self.given = redelivered(self.given, getattr(self.given, "attempts_here", 0) + 1)

    def part(self, works: Sequence["InWork"]) -> "InWork | None":
        """What of it is left."""
        return self if works else None


@attrs.define(eq=False)
class BatchInWork:
    """Several messages of one queue, in order, that one handler has together; there is at least one."""

    works: Sequence[InWork]

    @property
    def given(self) -> list[MessageExt]:
        """What the handler gets."""
        return [work.given for work in self.works]

    @property
    def process_queue(self) -> "ProcessQueue":
        """Where they come from."""
        return self.works[0].process_queue

    @property
    def is_stale(self) -> bool:
        """As of each of them: they were taken together."""
        return self.works[0].is_stale

    def done(self) -> None:
        """The handler has finished with all of them."""
        for work in self.works:
            work.done()

    def again(self) -> None:
        """The handler is to get them once more."""
        for work in self.works:
            work.again()

    def part(self, works: Sequence[InWork]) -> "BatchInWork | None":
        """Those that are left."""
        return BatchInWork(works) if works else None


Unit: TypeAlias = InWork | BatchInWork
"""What one call of a handler is about."""
