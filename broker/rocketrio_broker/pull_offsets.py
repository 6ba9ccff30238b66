"""How far each group was handed messages, whether it has committed them or not: what 5.x's tools call in flight.

In memory alone: it starts anew with the broker, and with the first pull of a queue it is right again.

Answers to: ConsumerOffsetManager.commitPullOffset of 5.x.
"""

from rocketrio_broker.offset_table import TopicAndGroup


class PullOffsets:
    """By topic and group, queue id to where the next pull goes on. As many entries as groups have queues."""

    def __init__(self) -> None:
        self._table: dict[TopicAndGroup, dict[int, int]] = {}

    def pulled(self, group: str, topic: str, queue_id: int, next_offset: int) -> None:
        """A pull was answered."""
        queues = self._table.get((topic, group))
        if queues is None:
            queues = self._table[topic, group] = {}
        queues[queue_id] = next_offset

    def of(self, group: str, topic: str, queue_id: int, *, committed: int, end: int) -> int:
        """Between what is committed and the end of the queue, which may have begun anew since."""
        pulled = self._table.get((topic, group), {}).get(queue_id, 0)
        return max(committed, min(pulled, end))
