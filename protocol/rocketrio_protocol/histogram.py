"""A histogram in plain numbers: adding a value costs a search in a tuple, and no lock."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import accumulate


class Histogram:
    """Counts values by size; a value counts for the first bound that it does not exceed."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Iterable[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def join(self, other: "Histogram") -> None:
        """Add what another one with the same bounds counted."""
        self.counts = [
            mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)
        ]
        self.sum += other.sum

    def buckets(self) -> Iterator[tuple[str, int]]:
        """Yield each bound as Prometheus writes it, with the number of values that do not exceed it."""
        bounds = (*map(str, self.bounds), "+Inf")
        return zip(bounds, accumulate(self.counts), strict=True)
