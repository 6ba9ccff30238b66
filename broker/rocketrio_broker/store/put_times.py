"""Counts how long puts took until they could be answered.

With synchronous flush or replication that is when the disk and the slaves had them. The current minute and the last
full one are counted, in the steps that Apache's brokers use.

Answers to: StoreStatsService's putMessageDistributeTime, putMessageEntireTimeMax, findPutMessageEntireTimePX.
"""

from bisect import bisect_right
from itertools import accumulate, pairwise, repeat
from typing import Final

UNKNOWN: Final = "null"
"""The value that Apache's brokers report before the first minute is over."""

_STEPS: Final = ((1, 20), (2, 15), (5, 10), (10, 10), (50, 6), (100, 5), (1000, 9))
_BOUNDS: Final = tuple(accumulate(step for size, times in _STEPS for step in repeat(size, times)))
"""Milliseconds: each count is for times below its bound and not below the one before; the last one has no bound."""
SHORT: Final = _BOUNDS[0] / 1000
"""Seconds: nearly all puts take less, if they wait for neither disk nor slaves. These need only be counted."""
_RANGES: Final = {
    0: "[<=0ms]", 1: "[0~10ms]", 10: "[10~50ms]", 50: "[50~100ms]", 100: "[100~200ms]", 200: "[200~500ms]",
    500: "[500ms~1s]", 1000: "[1~2s]", 2000: "[2~3s]", 3000: "[3~4s]", 4000: "[4~5s]", 5000: "[5~10s]",
    10_000: "[10s~]",
}  # fmt: skip
"""The names of the ranges by the millisecond at which each begins; Java truncates times to whole milliseconds."""


_NO_PUTS: Final = -1.0


class PutTimes:
    """The counts of one broker's puts by duration."""

    def __init__(self) -> None:
        self.short = 0
        """The puts of this minute that took less than SHORT and were not added."""
        self._counts = [0] * (len(_BOUNDS) + 1)
        self._last: list[int] | None = None
        self._longest = 0.0

    def add(self, seconds: float) -> None:
        """Count one put."""
        self._counts[bisect_right(_BOUNDS, seconds * 1000)] += 1
        self._longest = max(self._longest, seconds)

    def end_minute(self) -> None:
        """Begin a new minute; the minute that ends is reported from now on."""
        self._counts[0] += self.short
        self.short = 0
        self._last, self._counts = self._counts, [0] * len(self._counts)

    def runtime_info(self) -> dict[str, str]:
        """Return the keys that an Apache admin tool reads."""
        return {
            "putMessageEntireTimeMax": str(int(self._longest * 1000)),
            "putMessageDistributeTime": self._distribution(),
            "putLatency99": f"{self._percentile(0.99):.2f}",
            "putLatency999": f"{self._percentile(0.999):.2f}",
        }

    def _distribution(self) -> str:
        if self._last is None:
            return UNKNOWN
        begins = [0, *_BOUNDS]
        firsts = [begins.index(begin) for begin in _RANGES]
        counts = (sum(self._last[a:b]) for a, b in pairwise([*firsts, len(begins)]))
        return "".join(f"{name}:{n} " for name, n in zip(_RANGES.values(), counts, strict=True))

    def _percentile(self, share: float) -> float:
        """Return the ms within which this share of the puts were done, to a step's accuracy; -1 without puts."""
        counts = self._last or []
        wanted = sum(counts) * share
        for index, passed in enumerate(accumulate(counts)):
            if passed and passed >= wanted:
                low = _BOUNDS[index - 1] if index else 0
                high = _BOUNDS[min(index, len(_BOUNDS) - 1)]
                return high - (high - low) * (passed - wanted) / counts[index]
        return _NO_PUTS
