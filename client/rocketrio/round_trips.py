"""Records how long each address takes to answer a cheap request.

Invariant: a single slow answer changes a figure by at most a quarter of its delay.
"""

from typing import Final

import attrs

NEWEST_SHARE: Final = 0.25
"""The weight of the newest measurement: a minute's measurements are enough to follow a change of route."""


@attrs.define
class RoundTrips:
    """Smoothed round trips in seconds, and when each was last measured."""

    _seconds: dict[str, float] = attrs.Factory(dict)
    _measured_at: dict[str, float] = attrs.Factory(dict)

    def note(self, addr: str, seconds: float, now: float) -> None:
        """Add a measurement."""
        before = self._seconds.get(addr, seconds)
        self._seconds[addr] = before + (seconds - before) * NEWEST_SHARE
        self._measured_at[addr] = now

    def seconds(self, addr: str) -> float | None:
        """Return the round trip to an address; None if it was never measured."""
        return self._seconds.get(addr)

    def age(self, addr: str, now: float) -> float:
        """Return the seconds since the last measurement; infinity without one."""
        return now - self._measured_at.get(addr, float("-inf"))

    def forget(self, addr: str) -> None:
        """Forget an address that is in no route any more."""
        self._seconds.pop(addr, None)
        self._measured_at.pop(addr, None)
