"""Measures how late the event loop runs what is due: what every send and pull waits for when the broker is busy.

Answers to: the watermarks of Java's thread pools, which this broker does not have.
"""

from collections import deque
from typing import Final

import trio

from rocketrio_protocol.histogram import Histogram

INTERVAL: Final = 0.1
WINDOW: Final = 10.0
"""Seconds for which the longest delay is kept."""
BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class LoopDelay:
    """Sleeps repeatedly, and notes how late it wakes."""

    def __init__(self) -> None:
        self.delays = Histogram(BOUNDS)
        self._last: deque[float] = deque(maxlen=round(WINDOW / INTERVAL))

    @property
    def longest(self) -> float:
        """The longest delay of the last `WINDOW` seconds."""
        return max(self._last, default=0.0)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Measure until cancelled."""
        task_status.started()
        while True:
            due = trio.current_time() + INTERVAL
            await trio.sleep_until(due)
            late = max(0.0, trio.current_time() - due)
            self.delays.add(late)
            self._last.append(late)
