"""Narrows a planned read by a query's conditions: topics, queues, offsets, times, tags. Pure.

Invariant: what is omitted cannot meet the conditions, provided that store times grow along a queue.
"""

from typing import Any, Final, TypeVar

import attrs
import msgspec

from rocketrio.consuming.subscription import ALL, Subscription
from rocketrio.spark.reading.offsets import MAX_OFFSET, QueueRange
from rocketrio_protocol.message import MessageQueue

T = TypeVar("T")


@attrs.frozen
class Narrowing:
    """The conditions that narrow a read; None means no condition. Bounds are inclusive below and exclusive above."""

    topics: frozenset[str] | None = None
    broker_names: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    partitions: frozenset[int] | None = None
    """Queue numbers as `schemaMode=kafka` counts them."""
    start: int = 0
    end: int = MAX_OFFSET
    from_ms: int | None = None
    before_ms: int | None = None
    tags: frozenset[str] | None = None

    def wants(
        self, part: QueueRange | MessageQueue, first_partitions: dict[str, dict[str, int]]
    ) -> bool:
        """Return True if rows of this queue can meet the conditions."""
        if self.partitions is not None:
            number = first_partitions[part.topic][part.broker_name] + part.queue_id
            if number not in self.partitions:
                return False
        return (
            (self.topics is None or part.topic in self.topics)
            and (self.broker_names is None or part.broker_name in self.broker_names)
            and (self.queue_ids is None or part.queue_id in self.queue_ids)
        )

    @property
    def by_time(self) -> bool:
        """Whether the offsets of times must be looked up."""
        return self.from_ms is not None or self.before_ms is not None

    def within(self, part: QueueRange) -> QueueRange:
        """Return the range without the offsets that cannot meet the conditions; it may be empty."""
        start = min(max(part.start, self.start), part.end)
        return attrs.evolve(part, start=start, end=max(start, min(part.end, self.end)))

    def widened(self, other: "Narrowing") -> "Narrowing":
        """Return a narrowing that keeps everything that either of the two keeps."""
        return Narrowing(
            topics=_union(self.topics, other.topics),
            broker_names=_union(self.broker_names, other.broker_names),
            queue_ids=_union(self.queue_ids, other.queue_ids),
            partitions=_union(self.partitions, other.partitions),
            start=min(self.start, other.start),
            end=max(self.end, other.end),
            from_ms=None
            if self.from_ms is None or other.from_ms is None
            else min(self.from_ms, other.from_ms),
            before_ms=None
            if self.before_ms is None or other.before_ms is None
            else max(self.before_ms, other.before_ms),
            tags=_union(self.tags, other.tags),
        )

    def subscription(self, asked: Subscription) -> Subscription | None:
        """Return the filter for brokers to apply, or None if no message can pass."""
        if self.tags is None or asked.is_sql92:
            return asked
        tags = self.tags if asked == ALL or asked.tags is None else self.tags & asked.tags
        return Subscription(" || ".join(sorted(tags)), tags) if tags else None

    def to_value(self) -> dict[str, Any]:
        """Return plain values, which can be sent to a process without this package."""
        value: dict[str, Any] = msgspec.to_builtins(attrs.asdict(self))
        return value

    @classmethod
    def from_value(cls, value: dict[str, Any]) -> "Narrowing":
        """Return the narrowing that `to_value` described."""
        return msgspec.convert(value, cls)


def _union(one: frozenset[T] | None, other: frozenset[T] | None) -> frozenset[T] | None:
    return None if one is None or other is None else one | other


EVERYTHING: Final = Narrowing()
