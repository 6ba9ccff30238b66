"""A broadcasting consumer's progress: every member has its own, in a file beside it.

Invariant: what was stored never goes back unless it is reset.
Answers to: LocalFileOffsetStore.
Unlike Java: offsets of queues that are away for a while are kept.
"""

import attrs

from rocketrio.api import NOT_FOUND
from rocketrio.consuming.offset_file import OffsetFile
from rocketrio.consuming.offsets import PullCommit, StoredOffset
from rocketrio.consuming.queue_claim import CommitRefused
from rocketrio_protocol.errors import Error
from rocketrio_protocol.message import MessageQueue


@attrs.define(eq=False)
class LocalFileOffsetStore:
    """Offsets of one group on this machine."""

    file: OffsetFile
    _table: dict[MessageQueue, int] = attrs.Factory(dict)
    _stored: dict[MessageQueue, int] = attrs.Factory(dict)
    _epochs: dict[MessageQueue, str] = attrs.Factory(dict)

    @classmethod
    def load(cls, file: OffsetFile) -> "LocalFileOffsetStore":
        """With what the file holds. Raises ConfigError when it cannot be read."""
        stored, epochs = file.read_all()
        return cls(file, dict(stored), stored, epochs)

    @property
    def offset_table(self) -> dict[MessageQueue, int]:
        """What is noted, by queue."""
        return dict(self._table)

    async def read_offset(self, queue: MessageQueue, *, zero_if_young: bool) -> StoredOffset:
        """A young queue is no matter of brokers here: what the file does not hold is not found."""
        return StoredOffset(self._table.get(queue, NOT_FOUND), epoch=self._epochs.get(queue))

    async def committed(self, queue: MessageQueue) -> StoredOffset:
        """What the file holds."""
        return StoredOffset(self._stored.get(queue, NOT_FOUND))

    def update_offset(self, queue: MessageQueue, offset: int) -> None:
        """Note progress; a lower offset than before is ignored."""
        self._table[queue] = max(offset, self._table.get(queue, offset))

    def reset_offset(self, queue: MessageQueue, offset: int) -> None:
        """Go to an offset on purpose."""
        self._table[queue] = offset
        self._epochs.pop(queue, None)

    def with_pull(self, queue: MessageQueue, addr: str) -> PullCommit | None:
        """No broker is told."""
        return None

    def epoch(self, queue: MessageQueue) -> str | None:
        """The epoch of the log that the position comes from; None when no broker told it."""
        return self._epochs.get(queue)

    def read_in(self, queue: MessageQueue, epoch: str | None) -> None:
        """The position is one of this epoch of the log, as a broker said."""
        if epoch is not None:
            self._epochs[queue] = epoch

    def cut(self, queue: MessageQueue, offset: int) -> None:
        """The log became shorter: what is noted counts up to this offset only."""
        if queue in self._table:
            self._table[queue] = min(offset, self._table[queue])

    def lose(self, queue: MessageQueue) -> None:
        """Nobody else's progress is here."""

    def remove_offset(self, queue: MessageQueue) -> None:
        """A queue that comes back goes on where it was."""

    def overruled(self, queue: MessageQueue) -> CommitRefused | None:
        """Nobody resets a file."""
        return None

    def doubt_all(self) -> None:
        """Nobody else writes the file."""

    async def persist(self, queue: MessageQueue) -> None:
        """Write the file, if it has changed. Raises Error."""
        if self._table != self._stored:
            table = dict(self._table)
            self.file.write(table, self._epochs)
            self._stored = table

    async def persist_all(self, queues: list[MessageQueue]) -> list[Error]:
        """The same for all queues at once."""
        try:
            for queue in queues[:1]:
                await self.persist(queue)
        except Error as error:
            return [error]
        return []

    async def persist_committed(self) -> list[Error]:
        """A file forgets nothing."""
        return []

    async def tell_masters(self) -> list[Error]:
        """No broker is told."""
        return []
