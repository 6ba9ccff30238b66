"""The offset up to which each group has pulled, committed or not: 5.x's tools show the difference as in flight.

It is kept in memory only: it begins empty with the broker, and is right again after the first pull of a queue.

Answers to: ConsumerOffsetManager.commitPullOffset of 5.x.
"""

from typing import Final

from rocketrio_broker.offsets.table import TopicAndGroup

QUEUES_LIMIT: Final = 500_000
"""The largest number of queues of groups, some 50 MB; beyond it the group that came first is dropped."""


class PullOffsets:
    """By topic and group: queue id to the offset of the next pull. One entry per group and queue."""

    def __init__(self) -> None:
        self._table: dict[TopicAndGroup, dict[int, int]] = {}
        self._size = 0

    def pulled(self, group: str, topic: str, queue_id: int, next_offset: int) -> None:
        """Record the next offset of an answered pull."""
        queues = self._table.get((topic, group))
        if queues is None:
            queues = self._table[topic, group] = {}
        size = len(queues)
        queues[queue_id] = next_offset
        if len(queues) > size:
            self._size += 1
            if self._size > QUEUES_LIMIT:
                self._size -= len(self._table.pop(next(iter(self._table))))

    def of(self, group: str, topic: str, queue_id: int, *, committed: int, end: int) -> int:
        """Return the next offset, at least the committed one; the queue may be a new one that ends before it."""
        pulled = self._table.get((topic, group), {}).get(queue_id, 0)
        return max(committed, min(pulled, end))
