"""Where a consumer's progress is kept, as its parts see it: at the brokers, or in a file of its own.

Answers to: OffsetStore.
"""

from typing import Protocol

import attrs

from rocketrio.api import Offset
from rocketrio.consuming.queue_claim import CommitRefused
from rocketrio_protocol.errors import Error
from rocketrio_protocol.message import MessageQueue


@attrs.frozen
class StoredOffset:
    """What is stored for a group on a queue."""

    offset: Offset
    is_from_slave: bool = False
    """A slave may know an older one, or none yet."""
    epoch: str | None = None
    """Of the log that the offset belongs to; None when no broker told it."""


@attrs.frozen
class PullCommit:
    """Progress that a pull takes along: where, and what proves that it is ours."""

    offset: int
    generation: str
    ownership: str


class OffsetStore(Protocol):
    """Progress of one group; what is noted is synchronous, what is stored is not."""

    @property
    def offset_table(self) -> dict[MessageQueue, int]:
        """What is noted, by queue."""
        ...

    async def read_offset(self, queue: MessageQueue, *, zero_if_young: bool) -> StoredOffset:
        """Take a queue over. Raises Error while nobody can tell."""
        ...

    async def committed(self, queue: MessageQueue) -> StoredOffset:
        """What is stored now."""
        ...

    def update_offset(self, queue: MessageQueue, offset: int) -> None:
        """Note progress; a lower offset than before is ignored."""
        ...

    def reset_offset(self, queue: MessageQueue, offset: int) -> None:
        """Go to an offset on purpose."""
        ...

    def with_pull(self, queue: MessageQueue, addr: str) -> PullCommit | None:
        """What a pull of the queue may commit on its way to a broker; None where it is to commit nothing."""
        ...

    def epoch(self, queue: MessageQueue) -> str | None:
        """The epoch of the log that the position comes from; None when no broker told it."""
        ...

    def read_in(self, queue: MessageQueue, epoch: str | None) -> None:
        """The position is one of this epoch of the log, as a broker said."""
        ...

    def cut(self, queue: MessageQueue, offset: int) -> None:
        """The log became shorter: what is noted counts up to this offset only."""
        ...

    def lose(self, queue: MessageQueue) -> None:
        """Another member owns the queue now."""
        ...

    def remove_offset(self, queue: MessageQueue) -> None:
        """Nothing more is to be committed of a queue."""
        ...

    def overruled(self, queue: MessageQueue) -> CommitRefused | None:
        """Why commits of the queue are dropped; None while they are not."""
        ...

    def doubt_all(self) -> None:
        """What is stored may be something else than we think."""
        ...

    async def persist(self, queue: MessageQueue) -> None:
        """Store what is noted for one queue. Raises Error."""
        ...

    async def persist_all(self, queues: list[MessageQueue]) -> list[Error]:
        """Store what is noted for several; the errors of those that could not be."""
        ...

    async def persist_committed(self) -> list[Error]:
        """Repeat what was stored."""
        ...

    async def tell_masters(self) -> list[Error]:
        """Repeat to masters what perhaps only slaves know."""
        ...
