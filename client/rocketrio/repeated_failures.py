"""Decides which of many equal failures are logged: work that is tried again every second fails for one cause for long.

Invariant: a cause is logged when it begins, and then once in `LOG_INTERVAL` at most, with the failures since the last
line, whether the work succeeds in between or not.
"""

from collections.abc import Hashable
from math import inf
from typing import Final

import attrs
import trio

LOG_INTERVAL: Final = 60.0
"""Seconds between log lines about one cause."""

CAUSES_LIMIT: Final = 100
"""Causes that are remembered, because texts of peers are in them; the oldest is forgotten first."""


@attrs.define
class _Cause:
    count: int = 0
    logged_at: float = -inf


class RepeatedFailures:
    """The failures of one piece of work that is repeated."""

    def __init__(self) -> None:
        self._causes: dict[Hashable, _Cause] = {}
        self._total = 0
        self._is_logged = False

    def failed(self, cause: Hashable) -> int:
        """Count a failure; return how many of this cause to log now, or 0 if it was logged a short time ago."""
        self._total += 1
        known = self._causes.get(cause)
        if known is None:
            if len(self._causes) >= CAUSES_LIMIT:
                del self._causes[next(iter(self._causes))]
            known = self._causes[cause] = _Cause()
        known.count += 1
        now = trio.current_time()
        if now - known.logged_at < LOG_INTERVAL:
            return 0
        self._is_logged = True
        count, known.count, known.logged_at = known.count, 0, now
        return count

    def succeeded(self) -> int:
        """Return how many failures this success ends, if any of them was logged; 0 otherwise."""
        if not self._is_logged:
            return 0
        total, self._total, self._is_logged = self._total, 0, False
        return total
