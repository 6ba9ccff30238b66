"""Compares the wall clock with the monotonic clock and with the log's store times, and reports discrepancies.

    store time   of the last message; it never falls, so a clock that was ahead leaves it in the future
    settled time the lowest time that the wall clock showed within `SETTLES_AFTER`, advanced by the monotonic clock

What cannot be undone (deleting files by age, giving up transactions) uses settled time, so a clock that is ahead for
less than a day has no effect on it. At a start the log's last store time counts as one of the times shown: a machine
that boots with a wrong clock deletes nothing in its first day.

Invariant: settled time is never after the wall clock.
Invariant: store time that is ahead of the clock is logged when it is found, again each time the duration has doubled,
and once when it is over.
Answers to: nothing in Java, where delayed messages and file ages use the wall clock alone.
"""

import logging
from collections import deque
from typing import Final

import trio

from rocketrio_broker.waiting.watermark import LogPosition
from rocketrio_protocol.remoting.ports import WallClock
from rocketrio_protocol.remoting.tasks import every

_LOG: Final = logging.getLogger("rocketrio_broker.store")

CHECK_INTERVAL: Final = 1.0
"""Seconds between two comparisons."""

JUMP_LIMIT_MS: Final = 5000
"""The smallest step of the wall clock that is reported; a clock that is being adjusted moves by a thousandth."""

AHEAD_LIMIT_MS: Final = 5000
"""How far store time may be ahead of the clock before that is a problem."""

SETTLES_AFTER: Final = 86_400.0
"""Seconds that a time must last before it counts for deleting files and giving up transactions."""

_CLAIMS: Final = 24
_CLAIM_SECONDS: Final = SETTLES_AFTER / _CLAIMS

LOGGED_AGAIN_AFTER: Final = 60.0
"""Seconds until a store time that stays ahead is logged a second time."""


class ClockWatch:
    """Watches the clock for one store."""

    def __init__(self, dispatched: LogPosition, *, wall_clock: WallClock) -> None:
        self.problem = ""
        """What is wrong with the clock; empty if nothing is."""
        self._dispatched = dispatched
        self._wall_clock = wall_clock
        # Wall clock minus monotonic clock, in ms: the current one, and the lowest of each hour.
        self._offset_ms: int | None = None
        self._claims: deque[int] = deque(maxlen=_CLAIMS + 1)
        self._next_claim = 0.0
        self._jumped_ms = 0
        self._jump_settles = 0.0
        self._ahead_since: float | None = None
        self._log_again_at = 0.0

    def __repr__(self) -> str:
        return f"<ClockWatch {self.problem or 'nothing wrong'}>"

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Compare the clocks periodically until cancelled."""
        self.compare()
        task_status.started()
        async for _ in every(CHECK_INTERVAL):
            self.compare()

    @property
    def ahead_ms(self) -> int:
        """How far the last store time is ahead of the clock, in ms; 0 if it is not."""
        return max(0, self._dispatched.store_time_ms - self._wall_clock.now_ms())

    def settled_ms(self) -> int:
        """Return the time in ms by which files are deleted and transactions given up."""
        # First: the clock may have been set back since the last comparison, and settled time must not be after it.
        self.compare()
        return min(self._claims) + round(1000 * trio.current_time())

    def compare(self) -> None:
        """Compare the clocks once."""
        now = trio.current_time()
        offset_ms = self._wall_clock.now_ms() - round(1000 * now)
        if self._offset_ms is None:
            last_ms = self._dispatched.store_time_ms
            self._claims.append(
                min(offset_ms, last_ms - round(1000 * now)) if last_ms else offset_ms
            )
            self._next_claim = now + _CLAIM_SECONDS
        elif abs(jump_ms := offset_ms - self._offset_ms) >= JUMP_LIMIT_MS:
            self._jumped_ms += jump_ms
            self._jump_settles = now + SETTLES_AFTER
            _LOG.error("clock jumped by=%s in_all=%s", duration(jump_ms), duration(self._jumped_ms))
        self._offset_ms = offset_ms
        if now >= self._jump_settles:
            self._jumped_ms = 0
        if now >= self._next_claim:
            self._claims.append(offset_ms)
            self._next_claim = now + _CLAIM_SECONDS
        else:
            # The lowest of each hour: a clock that was ahead for a moment must not count for the rest of it.
            self._claims[-1] = min(self._claims[-1], offset_ms)
        self._check_store_time(now)

    def _check_store_time(self, now: float) -> None:
        ahead_ms = self.ahead_ms
        if ahead_ms >= AHEAD_LIMIT_MS:
            self.problem = (
                f"store time is {duration(ahead_ms)} ahead of the clock: delayed messages and transaction checks"
                " are counted from when this broker saw them"
            )
            if self._ahead_since is None:
                self._ahead_since, self._log_again_at = now, now
            if now >= self._log_again_at:
                for_seconds = now - self._ahead_since
                self._log_again_at = now + max(for_seconds, LOGGED_AGAIN_AFTER)
                _LOG.error(
                    "store time ahead by=%s seconds=%.0f problem=%s",
                    duration(ahead_ms), for_seconds, self.problem,
                )  # fmt: skip
            return
        if self._ahead_since is not None:
            _LOG.warning("store time caught up seconds=%.0f", now - self._ahead_since)
            self._ahead_since = None
        self.problem = ""
        if self._jumped_ms >= JUMP_LIMIT_MS:
            self.problem = (
                f"the clock jumped ahead by {duration(self._jumped_ms)}: no file is deleted by that time until it has"
                f" lasted for {duration(round(1000 * SETTLES_AFTER))}"
            )


def duration(milliseconds: int) -> str:
    """Format a span of time in its largest unit: `40 d`, `-3.5 h`, `12 s`."""
    seconds = milliseconds / 1000
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if abs(seconds) >= size:
            return f"{round(seconds / size, 1):g} {unit}"
    return f"{round(seconds, 1):g} s"
