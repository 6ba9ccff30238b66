"""Measures how far a slave is with a long copy: bytes, rate and time left, for its log and for status queries.

The replication stream does not contain where the master's log ends. A rocketrio master says it when a connection
begins; otherwise the slave asks for it (28, `commitLogMaxOffset`), and repeatedly while a long copy is under way.

Invariant: nothing here delays a transfer; if the master does not answer, only these numbers are missing.
Answers to: nothing of Java's; there an operator checks the size of the directory.
"""

import logging
from collections import deque
from math import inf
from typing import Final

import attrs
import trio

from rocketrio_broker.ha.client import HAClient, HAClientState
from rocketrio_broker.ha.master_address import MasterAddress
from rocketrio_broker.ha.peers import PeerCaller, ask_log_end
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_protocol.errors import Error
from rocketrio_protocol.log_lines import rounded

logger = logging.getLogger("rocketrio_broker.ha")

LOG_INTERVAL: Final = 10.0
"""Seconds after which the next line is logged at the latest."""
REPORT_SHARE: Final = 0.05
"""The share of the whole copy after which the next line is logged earlier."""
CHECK_INTERVAL: Final = 1.0
"""Seconds between two measurements; a copy that takes no longer is not logged at all."""
RATE_SPAN: Final = 10
"""The number of measurements over which the rate is computed."""

_NO_COPY: Final = frozenset({HAClientState.DIVERGED, HAClientState.MISSING_HISTORY})
"""States in which nothing is copied, however far behind the slave is."""


@attrs.frozen
class CopyProgress:
    """A copy under way, in bytes of the log."""

    begin: int
    """Where this copy began; the bytes before it were there already."""
    position: int
    goal: int
    """Where the master's log ended when it was last asked."""
    rate: float
    """Bytes per second, over the last ten seconds."""

    @property
    def copied(self) -> int:
        return self.position - self.begin

    @property
    def total(self) -> int:
        return self.goal - self.begin

    @property
    def share(self) -> float:
        """The part of the copy that is done, from 0 to 1."""
        return min(1.0, self.copied / self.total) if self.total else 1.0

    @property
    def seconds_left(self) -> float | None:
        """The seconds until the copy is complete; None while no bytes arrive."""
        return (self.goal - self.position) / self.rate if self.rate > 0 else None

    def __str__(self) -> str:
        left = self.seconds_left
        return (
            f"copied={self.copied} of={self.total} percent={100 * self.share:.0f}"
            f" rate={self.rate / 1e6:.1f}MB/s left={'unknown' if left is None else f'{left:.0f}s'}"
        )


class CopyMeter:
    """Computes the numbers of one copy, without I/O."""

    def __init__(self, now: float, position: int, goal: int) -> None:
        self.begin = position
        self.goal = goal
        self._samples = deque([(now, position)], RATE_SPAN + 1)
        self._logged_at = now
        self._logged_share = 0.0
        self._began_at = now

    def measure(self, now: float, position: int, first: int) -> CopyProgress:
        """Record the position at a time, and return the progress.

        `first` is the first address of the log; a log that was empty begins there.
        """
        if self.begin < first:
            self.begin = first
            self._samples = deque([(now, max(position, first))], RATE_SPAN + 1)
        else:
            self._samples.append((now, position))
        since, before = self._samples[0]
        rate = (position - before) / (now - since) if now > since else 0.0
        return CopyProgress(self.begin, position, max(self.goal, position), max(rate, 0.0))

    def is_line_due(self, now: float, progress: CopyProgress) -> bool:
        """Return whether to log a line now; if so, the line counts as logged."""
        is_due = (
            now - self._logged_at >= LOG_INTERVAL
            or progress.share >= self._logged_share + REPORT_SHARE
        )
        if is_due:
            self._logged_at, self._logged_share = now, progress.share
        return is_due

    def seconds(self, now: float) -> float:
        """Return how many seconds the copy has taken."""
        return now - self._began_at


class CopyWatch:
    """Watches one slave's copy, and logs its progress."""

    def __init__(
        self, client: HAClient, store: MessageStore, *, call: PeerCaller, master: MasterAddress
    ) -> None:
        """`master` is the address at which the master answers requests."""
        self.progress: CopyProgress | None = None
        """The copy under way; None if there is none, or if its length is unknown."""
        self.master_end = 0
        """Where the log of the present master ended when that last answered; 0 before."""
        self._client = client
        self._store = store
        self._call = call
        self._master = master

    def __repr__(self) -> str:
        return f"<CopyWatch {self.progress or 'of nothing'}>"

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch until cancelled."""
        task_status.started()
        connections, pause = 0, inf
        while True:
            with trio.move_on_after(pause):
                connections = await self._client.connected.wait_past(connections)
            goal = self._greeted_end()
            if goal is None:
                goal = await self._master_end()
            pause = LOG_INTERVAL if goal is None else inf  # The master may only be busy.
            if goal is not None and goal > self._position():
                await self._watch(goal)

    async def _watch(self, goal: int) -> None:
        store = self._store
        meter = CopyMeter(trio.current_time(), self._position(), goal)
        await trio.sleep(CHECK_INTERVAL)
        if self._position() >= goal or self._client.state in _NO_COPY:
            return
        logger.info("copying from the master begin=%d bytes=%d", meter.begin, goal - meter.begin)
        asked_at = trio.current_time()
        try:
            while True:
                await trio.sleep(CHECK_INTERVAL)
                now, position = trio.current_time(), self._position()
                if position < meter.begin or self._client.state in _NO_COPY:
                    return  # The log was cut, or dropped: the next connection starts a new measurement.
                self.progress = progress = meter.measure(now, position, store.min_physical_offset)
                if position >= meter.goal:
                    break
                if meter.is_line_due(now, progress):
                    logger.info(
                        "copying from the master copied=%d of=%d percent=%.0f bytes_a_second=%.0f seconds_left=%s",
                        progress.copied, progress.total, 100 * progress.share, progress.rate,
                        rounded(progress.seconds_left),
                    )  # fmt: skip
                if now - asked_at >= LOG_INTERVAL:
                    asked_at = now
                    meter.goal = max(meter.goal, await self._master_end() or 0)
        finally:
            self.progress = None
        logger.info(
            "copied from the master bytes=%d seconds=%.1f offset=%d",
            progress.copied, meter.seconds(now), position,
        )  # fmt: skip

    def _position(self) -> int:
        return self._store.max_physical_offset

    def _greeted_end(self) -> int | None:
        """Return where the master's log ended when this connection began, if the master said that."""
        end = None if self._client.state in _NO_COPY else self._client.greeted_end
        if end is not None:
            self.master_end = end
        return end

    async def _master_end(self) -> int | None:
        """Return where the master's log ends; None if it does not answer."""
        # If the replication address is configured, this address becomes known a moment later.
        addr = await self._master.wait_known()
        if self._client.state in _NO_COPY:
            return None
        try:
            end = await ask_log_end(self._call, addr)
        except Error as error:
            logger.debug("the length of the copy is not known reason=%s", error)
            return None
        self.master_end = end
        return end
