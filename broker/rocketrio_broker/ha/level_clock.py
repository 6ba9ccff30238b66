"""Knows when a slave was last level with its master: when it had everything that the master had at its last transfer.

A master does not send where its log ends, but it sends all that there is, up to a limit of its own. A transfer that is
shorter than the limit, and does not end because a file ends, was all there was; a heartbeat shows the same.

Invariant: the time is never later than the true one: a transfer that may have been full does not count.
Invariant: messages count once their queues have them, because that is what readers see.
Unlike Java: a slave there does not report how old its view is.
"""

from collections.abc import Callable
from typing import Final

import trio

SMALLEST_BATCH_LIMIT: Final = 32 * 1024
"""The most bytes of one transfer of an Apache master (haTransferBatchSize); rocketrio masters send more at once."""


class LevelClock:
    """The clock of one broker; unused on a master."""

    def __init__(self, *, file_size: int, dispatched: Callable[[], int]) -> None:
        """`dispatched` returns the address up to which queues are built."""
        self._file_size = file_size
        self._dispatched = dispatched
        self._largest = SMALLEST_BATCH_LIMIT
        self._level_at: float | None = None
        self._pending: tuple[float, int] | None = None

    def __repr__(self) -> str:
        return f"<LevelClock {self.age_millis()} ms ago>"

    def begin(self) -> None:
        """Prepare for another connection or another master, whose log may be further by now."""
        self._largest = SMALLEST_BATCH_LIMIT

    def forget(self) -> None:
        """Forget when this slave was level, because it follows another master from now on."""
        self._level_at = self._pending = None

    def took(self, size: int, end: int) -> None:
        """Note that the last byte of a transfer of this size, which ends at `end`, has been appended."""
        # A transfer never crosses a file's end: one that ends there may have been cut short, and shows nothing.
        is_short = size < self._largest and (end % self._file_size or not size)
        self._largest = max(self._largest, size)
        if is_short:
            # Not while an older moment waits for its queues: renewed by each transfer it might never come.
            self._settle()
            if self._pending is None:
                self._pending = trio.current_time(), end

    def age_millis(self) -> int | None:
        """Return the milliseconds since the slave was last level; None if it never was."""
        self._settle()
        if self._level_at is None:
            return None
        return max(0, round((trio.current_time() - self._level_at) * 1000))

    def _settle(self) -> None:
        if self._pending is not None and self._dispatched() >= self._pending[1]:
            self._level_at, self._pending = self._pending[0], None
