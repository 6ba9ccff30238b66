"""The progress of a broadcasting consumer: every member keeps its own, in a local file.

Invariant: a stored offset never goes back unless it is reset.
Answers to: LocalFileOffsetStore.
Unlike Java: offsets of queues that disappear for a while are kept.
"""

import attrs

from rocketrio.cluster.api import NOT_FOUND
from rocketrio.consuming.offset_file import OffsetFile
from rocketrio.consuming.offsets import PullCommit, StoredOffset
from rocketrio.consuming.queue_claim import CommitRefused
from rocketrio_protocol.errors import Error
from rocketrio_protocol.message import MessageQueue


@attrs.define(eq=False)
class LocalFileOffsetStore:
    """One group's offsets on this machine."""

    file: OffsetFile
    _table: dict[MessageQueue, int] = attrs.Factory(dict)
    _stored: dict[MessageQueue, int] = attrs.Factory(dict)
    _epochs: dict[MessageQueue, str] = attrs.Factory(dict)

    @classmethod
    def load(cls, file: OffsetFile) -> "LocalFileOffsetStore":
        """Load the store from the file. Raises ConfigError if the file cannot be read."""
        stored, epochs = file.read_all()
        return cls(file, dict(stored), stored, epochs)

    @property
    def offset_table(self) -> dict[MessageQueue, int]:
        """The noted offsets by queue."""
        return dict(self._table)

    async def read_offset(self, queue: MessageQueue, *, zero_if_young: bool) -> StoredOffset:
        """Return the noted offset, or NOT_FOUND also for a young queue: no broker decides where it begins."""
        return StoredOffset(self._table.get(queue, NOT_FOUND), epoch=self._epochs.get(queue))

    async def committed(self, queue: MessageQueue) -> StoredOffset:
        """Return the offset that the file holds."""
        return StoredOffset(self._stored.get(queue, NOT_FOUND))

    def update_offset(self, queue: MessageQueue, offset: int) -> None:
        """Note progress; a lower offset than before is ignored."""
        self._table[queue] = max(offset, self._table.get(queue, offset))

    def reset_offset(self, queue: MessageQueue, offset: int) -> None:
        """Set an offset deliberately, even a lower one."""
        self._table[queue] = offset
        self._epochs.pop(queue, None)

    def with_pull(self, queue: MessageQueue, addr: str) -> PullCommit | None:
        """Return None: pulls carry no progress to brokers."""
        return None

    def epoch(self, queue: MessageQueue) -> str | None:
        """Return the log epoch that the position belongs to; None if no broker reported one."""
        return self._epochs.get(queue)

    def read_in(self, queue: MessageQueue, epoch: str | None) -> None:
        """Note the log epoch that the position belongs to, if the broker reported one."""
        if epoch is not None:
            self._epochs[queue] = epoch

    def cut(self, queue: MessageQueue, offset: int) -> None:
        """Lower the noted offset to `offset`, because the log became shorter."""
        if queue in self._table:
            self._table[queue] = min(offset, self._table[queue])

    def lose(self, queue: MessageQueue) -> None:
        """Do nothing: the file has no other member's progress."""

    def remove_offset(self, queue: MessageQueue) -> None:
        """Do nothing: a queue that comes back continues where it was."""

    def overruled(self, queue: MessageQueue) -> CommitRefused | None:
        """Return None: operators do not reset files."""
        return None

    def doubt_all(self) -> None:
        """Do nothing: no other process writes the file."""

    async def persist(self, queue: MessageQueue) -> None:
        """Write the file if it has changed. Raises Error."""
        if self._table != self._stored:
            table = dict(self._table)
            self.file.write(table, self._epochs)
            self._stored = table

    async def persist_all(self, queues: list[MessageQueue]) -> list[Error]:
        """Write the file once for all queues; return its error, if any."""
        try:
            for queue in queues[:1]:
                await self.persist(queue)
        except Error as error:
            return [error]
        return []

    async def persist_committed(self) -> list[Error]:
        """Do nothing: a file does not lose offsets."""
        return []

    async def tell_masters(self) -> list[Error]:
        """Do nothing: no broker is involved."""
        return []
