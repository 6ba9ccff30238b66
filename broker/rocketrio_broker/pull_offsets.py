"""How far each group was handed messages, whether it has committed them or not: what 5.x's tools call in flight.

In memory alone: it starts anew with the broker, and with the first pull of a queue it is right again.

Answers to: ConsumerOffsetManager.commitPullOffset of 5.x.
"""

from typing import Final

from rocketrio_broker.offset_table import TopicAndGroup

QUEUES_LIMIT: Final = 500_000
"""Queues of groups that are known, some 50 MB; then those of the group that came first are forgotten."""


class PullOffsets:
    """By topic and group, queue id to where the next pull goes on. One entry per group and queue."""

    def __init__(self) -> None:
        self._table: dict[TopicAndGroup, dict[int, int]] = {}
        self._size = 0

    def pulled(self, group: str, topic: str, queue_id: int, next_offset: int) -> None:
        """A pull was answered."""
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
        """Between what is committed and the end of the queue, which may have begun anew since."""
        pulled = self._table.get((topic, group), {}).get(queue_id, 0)
        return max(committed, min(pulled, end))
