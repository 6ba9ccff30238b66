"""Addresses that failed a moment ago, and how long to prefer others.

Invariant: at most a tenth of the time is spent on trying an address that stays dead.
Answers to: the idea of LatencyFaultTolerance; the rule is our own.
Unlike Java: reads use it too, and the pause follows from what the failed attempt cost: a refused connection costs
nothing and is tried again after a second, a silent host costs a timeout and is left alone for longer.
"""

from typing import Final

import attrs

AVOID_FACTOR: Final = 10
AVOID_MIN: Final = 1.0  # seconds
AVOID_MAX: Final = 30.0  # seconds; by then a fresh route tells more than an old failure


@attrs.define
class AddressFaults:
    """When each failed address may be preferred again; times are those of the caller's clock."""

    count: int = 0
    """Failures so far."""
    _until: dict[str, float] = attrs.Factory(dict)

    @property
    def are_any(self) -> bool:
        """Whether any address failed and has not answered since."""
        return bool(self._until)

    def mark(self, addr: str, *, now: float, spent: float) -> None:
        """An attempt that took `spent` seconds failed."""
        self.count += 1
        pause = min(max(spent * AVOID_FACTOR, AVOID_MIN), AVOID_MAX)
        self._until[addr] = max(now + pause, self._until.get(addr, 0.0))

    def clear(self, addr: str) -> bool:
        """It answered, or it is no longer known; whether it had failed."""
        return self._until.pop(addr, None) is not None

    def is_marked(self, addr: str) -> bool:
        """Whether it failed and has not answered since."""
        return addr in self._until

    def is_avoided(self, addr: str, *, now: float) -> bool:
        """Whether others go before it."""
        return self._until.get(addr, now) > now
