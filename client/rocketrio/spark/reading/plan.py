"""Divides ranges of queues into Spark partitions: it splits large ranges, and small ones share a task. Pure.

A task costs about 30 ms whatever it does, as much as moving 30,000 rows; an idle core costs more.
Invariant: the parts of all partitions together are exactly the given ranges, without overlap.
Invariant: the same input gives the same plan.
Answers to: KafkaOffsetRangeCalculator, with packing added.
"""

import heapq
from collections.abc import Iterator, Sequence
from itertools import pairwise, repeat
from typing import Any, Final

import attrs

from rocketrio.spark.reading.offsets import QueueRange
from rocketrio_protocol.codes import MASTER_ID

PARTITION_VERSION: Final = 2
"""The version of the value that is sent to executors, which may run another release."""


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
