"""Narrows ranges of queues by a query's conditions, and divides them into Spark partitions. Pure.

Large ranges are split, and small ones share a task: a task costs about 30 ms whatever it does, as much as moving 30,000
rows; an idle core costs more.

Invariant: what is omitted cannot meet the conditions, provided that store times grow along a queue.
Invariant: the parts of all partitions together are exactly the given ranges, without overlap.
Invariant: the same input gives the same plan.
Answers to: KafkaOffsetRangeCalculator, with packing added.
"""

import heapq
from collections.abc import Iterator, Sequence
from itertools import pairwise, repeat
from typing import Any, Final, TypeVar

import attrs
import msgspec

from rocketrio.consuming.subscription import ALL, Subscription
from rocketrio.spark.reading.offsets import MAX_OFFSET, QueueRange
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.message import MessageQueue

T = TypeVar("T")

PARTITION_VERSION: Final = 2
"""The version of the value that is sent to executors, which may run another release."""


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


@attrs.frozen
class ReadTask:
    """What one Spark task reads, and where; the task needs no name server."""

    ranges: tuple[QueueRange, ...]
    addresses: dict[str, dict[int, str]]
    """Broker name to broker id to address, of the brokers of `ranges`."""
    first_ids: tuple[int, ...] = ()
    """The broker id to begin with, for each range; if empty, every range begins at its master."""
    first_partitions: dict[str, dict[str, int]] = attrs.Factory(dict)
    """Topic to broker to the number of its queue 0; needed only with `schemaMode=kafka`."""

    def beginnings(self) -> Iterator[tuple[QueueRange, int]]:
        """Return pairs of a range and the broker id to begin with."""
        return zip(self.ranges, self.first_ids or repeat(MASTER_ID), strict=False)

    def to_value(self) -> dict[str, Any]:
        """Return plain values: a partition must be readable before this package is imported."""
        return {
            "version": PARTITION_VERSION,
            "ranges": [attrs.astuple(part) for part in self.ranges],
            "addresses": self.addresses,
            "first_ids": self.first_ids,
            "first_partitions": self.first_partitions,
        }

    @classmethod
    def from_value(cls, value: Any) -> "ReadTask":
        """Return the task that `to_value` described. Raises ValueError for a value of another release."""
        if not isinstance(value, dict) or value.get("version") != PARTITION_VERSION:
            raise ValueError(
                f"a partition of another release of rocketrio: {value!r:.80};"
                " install the same one on driver and executors"
            )
        ranges = tuple(QueueRange(*part) for part in value["ranges"])
        return cls(ranges, value["addresses"], tuple(value["first_ids"]), value["first_partitions"])


def plan_partitions(
    ranges: Sequence[QueueRange],
    *,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
    min_records_per_partition: int = 1,
    max_partitions: int | None = None,
) -> list[list[QueueRange]]:
    """Return the ranges of each partition; the list is empty if there is nothing to read."""
    parts = [part for part in ranges if part.rows > 0]
    if max_records_per_partition is not None:
        parts = [
            piece
            for part in parts
            for piece in _cut(part, -(-part.rows // max_records_per_partition))
        ]
        # A packed bin stays below three times the number of rows that it should hold at least.
        least = max(1, max_records_per_partition // 3)
        min_records_per_partition = min(min_records_per_partition, least)
    if min_partitions is not None and len(parts) < min_partitions:
        parts = _cut_in_proportion(parts, min_partitions)
    bins = _pack(parts, min_partitions or 1, min_records_per_partition, max_partitions)
    return sorted(_joined(sorted(held)) for held in bins)


def _cut(part: QueueRange, count: int) -> list[QueueRange]:
    """Split a range into `count` pieces whose sizes differ by one at most."""
    edges = [part.start + part.rows * place // count for place in range(count + 1)]
    return [
        attrs.evolve(part, start=start, end=end) for start, end in pairwise(edges) if end > start
    ]


def _cut_in_proportion(parts: list[QueueRange], wanted: int) -> list[QueueRange]:
    total = sum(part.rows for part in parts)
    if not total:
        return parts
    wanted = min(wanted, total)
    counts = [max(1, part.rows * wanted // total) for part in parts]
    # Pieces that are left over by rounding go to the ranges whose pieces are largest.
    queue = [
        (-part.rows / count, place)
        for place, (part, count) in enumerate(zip(parts, counts, strict=True))
    ]
    heapq.heapify(queue)
    for _ in range(wanted - sum(counts)):
        _, place = queue[0]
        counts[place] += 1
        heapq.heapreplace(queue, (-parts[place].rows / counts[place], place))
    return [piece for part, count in zip(parts, counts, strict=True) for piece in _cut(part, count)]


def _pack(
    parts: list[QueueRange], min_partitions: int, min_records: int, max_partitions: int | None
) -> list[list[QueueRange]]:
    large = [[part] for part in parts if part.rows >= min_records]
    small = [part for part in parts if part.rows < min_records]
    bin_count = 0
    if small:
        enough = sum(part.rows for part in small) // min_records
        bin_count = min(len(small), max(1, enough, min_partitions - len(large)))
    if max_partitions is not None and len(large) + bin_count > max_partitions:
        return _fill(parts, max_partitions)
    return large + _fill(small, bin_count)


def _fill(parts: list[QueueRange], bin_count: int) -> list[list[QueueRange]]:
    """Put the largest range first, each range into the bin with the fewest rows."""
    if not parts:
        return []
    bins: list[list[QueueRange]] = [[] for _ in range(min(bin_count, len(parts)))]
    emptiest = [(0, place) for place in range(len(bins))]
    for part in sorted(parts, key=lambda part: (-part.rows, part)):
        rows, place = emptiest[0]
        bins[place].append(part)
        heapq.heapreplace(emptiest, (rows + part.rows, place))
    return bins


def _joined(parts: list[QueueRange]) -> list[QueueRange]:
    """Join adjacent ranges of one queue."""
    joined = parts[:1]
    for part in parts[1:]:
        last = joined[-1]
        if attrs.evolve(last, start=last.end, end=part.end) == part:
            joined[-1] = attrs.evolve(last, end=part.end)
        else:
            joined.append(part)
    return joined
