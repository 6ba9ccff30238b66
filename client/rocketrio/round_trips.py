"""How long each address takes to answer a cheap request, as measured now and then.

Invariant: a pause of one moment moves a figure by a quarter of what it cost at most.
"""

from typing import Final

import attrs

NEWEST_SHARE: Final = 0.25
"""How much the newest measurement counts; enough of them in a minute to follow a change of route."""


@attrs.define
class RoundTrips:
    """Smoothed round trips in seconds, and when each was measured last."""

    _seconds: dict[str, float] = attrs.Factory(dict)
    _measured_at: dict[str, float] = attrs.Factory(dict)

    def note(self, addr: str, seconds: float, now: float) -> None:
        """One more measurement."""
        before = self._seconds.get(addr, seconds)
        self._seconds[addr] = before + (seconds - before) * NEWEST_SHARE
        self._measured_at[addr] = now

    def seconds(self, addr: str) -> float | None:
        """None for an address that was never measured."""
        return self._seconds.get(addr)

    def age(self, addr: str, now: float) -> float:
        """Seconds since the last measurement; endless without one."""
        return now - self._measured_at.get(addr, float("-inf"))

    def forget(self, addr: str) -> None:
        """No route names it any more."""
        self._seconds.pop(addr, None)
        self._measured_at.pop(addr, None)
