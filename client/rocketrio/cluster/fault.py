"""Records addresses that failed recently, and how long to prefer other addresses.

Invariant: at most a tenth of the time is spent on trying an address that stays dead.
Answers to: the idea of LatencyFaultTolerance; the rule is rocketrio's own.
Unlike Java: reads use it too, and the pause depends on the cost of the failed attempt: a refused connection costs
nothing and is tried again after a second, a silent host costs a timeout and is avoided for longer.
"""

from collections.abc import Callable
from typing import Final

import attrs
import trio

AVOID_FACTOR: Final = 10
AVOID_MIN: Final = 1.0  # seconds
AVOID_MAX: Final = 30.0  # seconds; by then a fresh route is better evidence than an old failure


@attrs.define
class AddressFaults:
    """When each failed address may be preferred again."""

    now: Callable[[], float] = trio.current_time
    """The clock, in seconds."""

    count: int = 0
    """The number of failures so far."""
    _until: dict[str, float] = attrs.Factory(dict)

    @property
    def has_any(self) -> bool:
        """Whether any address failed and has not answered since."""
        return bool(self._until)

    def mark(self, addr: str, *, spent: float) -> None:
        """Note that an attempt failed after `spent` seconds."""
        self.count += 1
        pause = min(max(spent * AVOID_FACTOR, AVOID_MIN), AVOID_MAX)
        self._until[addr] = max(self.now() + pause, self._until.get(addr, 0.0))

    def clear(self, addr: str) -> bool:
        """Forget the failures of an address that answered, or is not known any more; return whether there were any."""
        return self._until.pop(addr, None) is not None

    def is_marked(self, addr: str) -> bool:
        """Return whether an address failed and has not answered since."""
        return addr in self._until

    def is_avoided(self, addr: str) -> bool:
        """Return whether other addresses are preferred."""
        until = self._until.get(addr)
        return until is not None and until > self.now()
