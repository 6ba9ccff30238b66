"""Computes the pause before the next pull of a queue after answers without progress.

A faulty or malicious broker answers immediately without moving the queue. Without a pause each such answer would
cause the next pull, thousands per second. The pause depends on how many such answers came in a row, whatever came in
between:

    moved elsewhere     again and again, without getting beyond where the queue was before
    nothing there       immediately, although the broker should hold the pull until a message arrives

Invariant: the first answer of a row causes no pause: a log that became shorter, or was deleted, moves a consumer once,
and a slave that redirects it to its home broker answers immediately.
Unlike Java: Java waits ten seconds after each move, and never if a broker does not hold a pull.
"""

from typing import Final

import attrs

FIRST_PAUSE: Final = 0.05
"""Seconds of pause after the second answer of a row; each further answer doubles the pause."""
MOVED_PAUSE_LIMIT: Final = 30.0
"""Maximum pause in seconds between moves without progress."""
EARLY_PAUSE_LIMIT: Final = 1.0
"""Maximum pause in seconds between pulls that are not held: a broker without long polling holds them as long."""
SHORTEST_HOLD: Final = 0.5
"""Seconds; a pull answered sooner was not held. Brokers without long polling hold one for a second."""


@attrs.define
class PullPace:
    """The pace of one queue's pulls."""

    moves: int = 0
    """Moves in a row."""
    early_ends: int = 0
    """Pulls in a row that were not held."""
    _reached: int = -1
    """The highest offset that an answer named since the row began."""

    def moved(self, offset: int, to: int) -> float:
        """Count an answer that moves a pull from `offset` elsewhere; return the seconds to wait."""
        self._reached = max(self._reached, offset, to)
        self.moves += 1
        return _pause(self.moves, MOVED_PAUSE_LIMIT)

    def advanced(self, to: int) -> None:
        """Count an answer with progress, after which the queue continues at `to`."""
        self.early_ends = 0
        if to > self._reached:
            self.moves = 0

    def found_nothing(self, after: float) -> float:
        """Count an empty answer to a pull that was to be held, `after` seconds; return the seconds to wait."""
        if after >= SHORTEST_HOLD:
            self.early_ends = 0
            return 0.0
        self.early_ends += 1
        return _pause(self.early_ends, EARLY_PAUSE_LIMIT)


def _pause(in_a_row: int, limit: float) -> float:
    if in_a_row < 2:
        return 0.0
    # The exponent is limited because a row may be longer than a float's range allows.
    return min(limit, FIRST_PAUSE * 2.0 ** min(in_a_row - 2, 32))
