"""How long the next pull of a queue waits where the last answers led nowhere.

A broker that errs, or means harm, answers at once and moves nothing: without a pause each such answer costs the next
pull, thousands a second. What counts is how many came in a row, whatever lies between them:

    moved elsewhere     again and again, without coming beyond where it was before
    nothing there       at once, though the broker was to hold the pull until something came

Invariant: the first answer of a row costs nothing: a log that became shorter, or was deleted, moves a consumer once,
and a slave that sends it home answers at once.
Unlike Java: it waits ten seconds after each move, and never where a broker does not hold a pull.
"""

from typing import Final

import attrs

FIRST_PAUSE: Final = 0.05
"""Seconds after the second answer of a row; each further one doubles them."""
MOVED_PAUSE_LIMIT: Final = 30.0
"""Seconds between moves that lead nowhere, at last."""
EARLY_PAUSE_LIMIT: Final = 1.0
"""Seconds between pulls that nobody holds, at last: as a broker without long polling holds them."""
HELD_LEAST: Final = 0.5
"""Seconds; a pull that was answered sooner was not held. Brokers without long polling hold one for a second."""


@attrs.define
class PullPace:
    """The pace of one queue."""

    moves: int = 0
    """In a row."""
    early_ends: int = 0
    """In a row."""
    _reached: int = -1
    """The highest offset that an answer named since the row began."""

    def moved(self, offset: int, to: int) -> float:
        """A broker says that a pull from `offset` shall go on elsewhere; the seconds to wait."""
        self._reached = max(self._reached, offset, to)
        self.moves += 1
        return _pause(self.moves, MOVED_PAUSE_LIMIT)

    def went_on(self, to: int) -> None:
        """There was something, and it goes on at `to`."""
        self.early_ends = 0
        if to > self._reached:
            self.moves = 0

    def found_nothing(self, after: float) -> float:
        """A broker that was to hold the pull ended it `after` so many seconds; the seconds to wait."""
        if after >= HELD_LEAST:
            self.early_ends = 0
            return 0.0
        self.early_ends += 1
        return _pause(self.early_ends, EARLY_PAUSE_LIMIT)


def _pause(in_a_row: int, limit: float) -> float:
    if in_a_row < 2:
        return 0.0
    # A row may be longer than what a float holds of powers.
    return min(limit, FIRST_PAUSE * 2.0 ** min(in_a_row - 2, 32))
