"""The interface to a consumer's progress, which is kept at the brokers or in a local file.

Answers to: OffsetStore.
"""

from typing import Protocol

import attrs

from rocketrio.cluster.api import Offset
from rocketrio_protocol.errors import Error
from rocketrio_protocol.message import MessageQueue


class CommitRefusedError(Error):
    """A commit was out of date: a reset, another member, or a shorter log has overtaken it.

    An operator reset the group's offset, another member has the queue now, the topic or the group was deleted, or the
    log became shorter than what was read. The commit was not stored, and the position in the queue is unchanged. After
    a reset, commits of the queue are dropped until it is taken over again, which starts at the reset offset, or until
    `seek` sets a position. After a deletion the consumer claims the queue again within its commit interval. After the
    log became shorter, the next pull goes back to the group's offset.
    """


def lock_lost(queue: MessageQueue) -> CommitRefusedError:
    """Return the error for a commit of a queue that is locked for another member now."""
    return CommitRefusedError(
        f"{queue} is not committed: its lock has run out or went to another member",
        topic=queue.topic,
        remedy="Its messages come again, to the member that has the lock",
    )


def lost_meanwhile(queue: MessageQueue) -> CommitRefusedError:
    """Return the error for a commit whose queue went to another member before it was complete."""
    return CommitRefusedError(
        f"another member got {queue} during the commit, and whether it was stored is open",
        topic=queue.topic,
        remedy="Its new owner goes on from what is stored: messages since then are delivered again",
    )


@attrs.frozen
class StoredOffset:
    """The offset that is stored for a group on a queue."""

    offset: Offset
    is_from_slave: bool = False
    """Whether a slave answered, which may have an older offset, or none yet."""
    epoch: str | None = None
    """The epoch of the log that the offset belongs to; None if no broker reported one."""


@attrs.frozen
class PullCommit:
    """Progress that is sent with a pull: the offset, and the proof that this member owns the queue."""

    offset: int
    generation: str
    ownership: str


class OffsetStore(Protocol):
    """One group's progress. Offsets are noted synchronously and stored asynchronously."""

    @property
    def offset_table(self) -> dict[MessageQueue, int]:
        """The noted offsets by queue."""
        ...

    async def read_offset(self, queue: MessageQueue, *, zero_if_young: bool) -> StoredOffset:
        """Take a queue over; return where to start. Raises Error while no broker knows it."""
        ...

    async def committed(self, queue: MessageQueue) -> StoredOffset:
        """Return the offset that is stored now."""
        ...

    def update_offset(self, queue: MessageQueue, offset: int) -> None:
        """Note progress; a lower offset than before is ignored."""
        ...

    def reset_offset(self, queue: MessageQueue, offset: int) -> None:
        """Set an offset deliberately, even a lower one."""
        ...

    def with_pull(self, queue: MessageQueue, addr: str) -> PullCommit | None:
        """Return the progress that a pull from `addr` should commit; None if it should commit nothing."""
        ...

    def epoch(self, queue: MessageQueue) -> str | None:
        """Return the log epoch that the position belongs to; None if no broker reported one."""
        ...

    def set_epoch(self, queue: MessageQueue, epoch: str | None) -> None:
        """Note the log epoch that the position belongs to, as a broker reported it."""
        ...

    def cut(self, queue: MessageQueue, offset: int) -> None:
        """Lower the noted offset to `offset`, because the log became shorter."""
        ...

    def lose(self, queue: MessageQueue) -> None:
        """Note that another member owns the queue now."""
        ...

    def remove_offset(self, queue: MessageQueue) -> None:
        """Forget a queue, of which nothing is left to commit."""
        ...

    def overruled(self, queue: MessageQueue) -> CommitRefusedError | None:
        """Return the error of commits that are dropped because of a reset; None while commits are not dropped."""
        ...

    def is_void(self, queue: MessageQueue) -> bool:
        """Return whether commits are dropped because nothing of the group's progress is left."""
        ...

    def dropped_commits(self, queue: MessageQueue) -> int:
        """Return how many commits were dropped since the last one that was stored."""
        ...

    async def standing(self, queue: MessageQueue) -> StoredOffset:
        """Return what is stored for the present incarnation of the topic, and its place. Raises Error."""
        ...

    def claim_again(self, queue: MessageQueue) -> None:
        """Forget the claim: the next commit counts as one that knows of the last reset or deletion."""
        ...

    def begin_again(self, queue: MessageQueue, offset: int) -> None:
        """Forget everything noted of a queue that was created again, where this member continues at `offset`."""
        ...

    def doubt_all(self) -> None:
        """Note that stored offsets may differ from what this client knows."""
        ...

    async def persist(self, queue: MessageQueue) -> None:
        """Store the noted offset of one queue. Raises Error."""
        ...

    async def persist_all(self, queues: list[MessageQueue]) -> list[Error]:
        """Store the noted offsets of several queues; return the errors of queues that could not be stored."""
        ...

    async def persist_committed(self) -> list[Error]:
        """Store again what was stored before, in case it was lost; return errors."""
        ...

    async def commit_to_masters(self) -> list[Error]:
        """Send the masters the offsets that perhaps only slaves know; return errors."""
        ...
