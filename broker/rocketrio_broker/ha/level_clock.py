"""When a slave was last level with its master: it had everything that the master had when it sent the last bytes.

A master says nothing of its log's end, but it sends as much at once as there is, up to a limit of its own. A transfer
that is shorter than the limit, and does not just end a file, was all there was; a heartbeat says the same.

Invariant: never later than it was: what may have been a full transfer does not count.
Invariant: messages count once their queues have them, because that is what readers see.
Unlike Java: a slave there tells nobody how old its view is.
"""

from collections.abc import Callable
from typing import Final

import trio

SMALLEST_BATCH_LIMIT: Final = 32 * 1024
"""Bytes of one transfer of an Apache master at most (haTransferBatchSize); ours send more at once."""


class LevelClock:
    """Of one broker; on a master it stands still, and nobody looks."""

    def __init__(self, *, file_size: int, dispatched: Callable[[], int]) -> None:
        """`dispatched` is the address up to which queues are built."""
        self._file_size = file_size
        self._dispatched = dispatched
        self._largest = SMALLEST_BATCH_LIMIT
        self._level_at: float | None = None
        self._pending: tuple[float, int] | None = None

    def __repr__(self) -> str:
        return f"<LevelClock {self.age_millis()} ms ago>"

    def begin(self) -> None:
        """Another master, or another connection to it: it may be further by now."""
        self._largest = SMALLEST_BATCH_LIMIT

    def forget(self) -> None:
        """Nothing is known of the master that is followed from now on."""
        self._level_at = self._pending = None

    def took(self, size: int, end: int) -> None:
        """The last byte of a transfer of that size, up to that address, has been appended."""
        is_short = size < self._largest and (end % self._file_size or not size)
        self._largest = max(self._largest, size)
        if is_short:
            self._settle()
            if self._pending is None:
                self._pending = trio.current_time(), end

    def age_millis(self) -> int | None:
        """Milliseconds since the slave was last level; None when it never was."""
        self._settle()
        if self._level_at is None:
            return None
        return max(0, round((trio.current_time() - self._level_at) * 1000))

    def _settle(self) -> None:
        if self._pending is not None and self._dispatched() >= self._pending[1]:
            self._level_at, self._pending = self._pending[0], None
