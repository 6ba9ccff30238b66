"""Detects that a master was away while its slaves took commits, and asks them before it answers with its offsets.

A process that was stopped (SIGSTOP, a suspended machine) sees a gap in its own clock; a process that was cut off
receives nothing from its slaves. Clients commit to a slave meanwhile, and come back within a moment. From then on the
master's offsets are in doubt: a query for an offset waits until the slaves were asked, `ASK_LIMIT` at most.

Invariant: a query that comes after a gap waits, even if it is read before anything else happens.
Invariant: a slave that cannot be asked delays queries by `ASK_LIMIT` at most once in `ASK_AGAIN_AFTER`.
Unlike Java: Apache's master continues with what it last knew; its slaves take no commits.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

import trio

from rocketrio_broker.ha.gather_offsets import GatheredOffsets
from rocketrio_broker.waiting.watermark import Watermark
from rocketrio_protocol.remoting.tasks import every

logger = logging.getLogger("rocketrio_broker.ha")

TICK: Final = 1.0
"""Seconds between checks of the clock and of the slaves."""

AWAY_AFTER: Final = 2.5
"""Seconds without a check that count as a stop; delays of a loop that is only busy are shorter."""

SILENT_HEARTBEATS: Final = 1.5
"""Heartbeat intervals without a report after which a slave counts as out of reach."""

ASK_LIMIT: Final = 1.0
"""Seconds to wait for the slaves' answers."""

ASK_AGAIN_AFTER: Final = 3.0
"""Seconds for which offsets are answered without asking again, after a slave did not answer."""


class SlaveLink(Protocol):
    """The part of an HAConnection that is used here."""

    @property
    def last_report_age(self) -> float: ...


class Absence:
    """Decides for one master, while it leads, whether its offsets are in doubt."""

    def __init__(self, *, heartbeat_interval: float) -> None:
        self._silence_limit = SILENT_HEARTBEATS * heartbeat_interval
        self._links: Sequence[SlaveLink] = ()
        self._gather: Callable[[], Awaitable[GatheredOffsets]] | None = None
        self._checked_at: float | None = None
        self._is_in_doubt = False
        self._is_asking = False
        self._ask_again_at = 0.0
        self._wanted = trio.Event()
        self._asked = Watermark()

    def __repr__(self) -> str:
        return f"<Absence {'in doubt' if self._is_in_doubt else 'none'}>"

    def watch(
        self, links: Sequence[SlaveLink], gather: Callable[[], Awaitable[GatheredOffsets]]
    ) -> None:
        """Set the slaves' connections, a list that its owner updates; `gather` fetches and merges their offsets."""
        self._links = links
        self._gather = gather

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch until cancelled; the slaves must just have been asked."""
        self._checked_at = trio.current_time()
        self._is_in_doubt = False
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._tick)
                task_status.started()
                await self._ask_when_wanted()
        finally:
            self._checked_at = None
            self._is_asking = False

    async def _tick(self) -> None:
        async for _ in every(TICK):
            self._check()

    def _check(self) -> None:
        if self._checked_at is None:
            return
        now = trio.current_time()
        gap, self._checked_at = now - self._checked_at, now
        if self._is_in_doubt:
            return
        if gap > AWAY_AFTER:
            self._doubt(f"this process stood still for {gap:.1f} s")
        elif self._is_slave_silent():
            self._doubt("a slave is silent")

    def _is_slave_silent(self) -> bool:
        return any(link.last_report_age > self._silence_limit for link in self._links)

    def _doubt(self, why: str) -> None:
        logger.info("slaves are asked for newer offsets reason=%s", why)
        self._is_in_doubt = True
        self._ask_again_at = trio.current_time()
        self._wanted.set()

    @property
    def must_ask(self) -> bool:
        """Whether a query for an offset must wait for `slaves_asked` first."""
        # Here too, not at the next tick alone: a query that was waiting in the socket is read before the tick comes.
        self._check()
        if self._checked_at is None or not self._is_in_doubt:
            return False
        return self._is_asking or trio.current_time() >= self._ask_again_at

    async def slaves_asked(self) -> None:
        """Ask the slaves, and return once they have answered, after `ASK_LIMIT` at the latest."""
        self._wanted.set()
        with trio.move_on_after(ASK_LIMIT):
            await self._asked.wait_past(self._asked.value)

    async def _ask_when_wanted(self) -> None:
        while True:
            await self._wanted.wait()
            assert self._gather is not None
            self._is_asking = True
            gathered = await self._gather()
            self._is_asking = False
            self._wanted = trio.Event()
            # After an attempt without all answers queries are served until then:
            # a dead slave must not delay each of them.
            self._ask_again_at = trio.current_time() + ASK_AGAIN_AFTER
            if not gathered.slaves_missing and not self._is_slave_silent():
                self._is_in_doubt = False
            self._asked.advance(self._asked.value + 1)
