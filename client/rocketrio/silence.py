"""Notices within two seconds that a connection has gone silent on which pulls wait, and when its broker is back.

A held pull is silent by right, so silence is told by a question: each second the broker is asked for the end of a
queue, on the same connection. No byte for a second after that, and the pulls there fail, if there is another replica.

    pulls wait on a connection     one prober: asks each second             none waits any more: it ends
    a question unanswered          its pulls and commits fail, the address is passed over, and asked on
    three in a row unanswered      the connection is closed, the next question dials anew
    an address that failed         asked each second until it answers, or no route names it any more

Invariant: one task an address, none while nobody waits and nothing has failed.
Invariant: bytes count, not answers: a slow link on which a large answer arrives is not silent.
Unlike Java: there nobody notices before the pull's own timeout of 30 s, or the name server's of 120 s.
"""

import logging
from collections.abc import Callable
from typing import Final

import attrs
import trio

from rocketrio.api import max_offset_header
from rocketrio.fault import AddressFaults
from rocketrio.routing import Router
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.errors import Error, RequestTimeout
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.remoting.pool import ChannelPool

PROBE_INTERVAL: Final = 1.0
"""Seconds between questions on a connection that pulls wait on."""
PROBE_TIMEOUT: Final = 1.0
"""Seconds without a byte after a question until a connection counts as silent. Pauses of Java's garbage collection are
mostly shorter; one that is longer costs a pull elsewhere."""
SILENCE_LIMIT: Final = PROBE_INTERVAL + PROBE_TIMEOUT
"""Seconds after which, at the latest, a silent connection is noticed."""
QUESTIONS_IN_VAIN: Final = 3
"""Unanswered in a row, after which a connection counts as dead: calls of others may wait on it, so not the first."""

_GIVEN_UP: Final = (
    RequestCode.PULL_MESSAGE,
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.UPDATE_CONSUMER_OFFSET,
)
"""Calls that fail with a silent connection: asked of another replica too they do no harm, as sends would."""

logger = logging.getLogger("rocketrio.pull")


@attrs.define(eq=False)
class Watched:
    """One address: how many pulls wait there."""

    addr: str
    queue: MessageQueue
    """Whose end is asked for: a queue that was pulled there."""
    waiting: int = 0
    is_probed: bool = False


@attrs.define(eq=False)
class SilenceWatch:
    """The probers of one client."""

    pool: ChannelPool
    routing: Router
    faults: AddressFaults
    mark_unreachable: Callable[[str, float], None]
    """Called with an address and the seconds that noticing took."""
    mark_reachable: Callable[[str], None]
    _watched: dict[str, Watched] = attrs.Factory(dict)
    _nursery: trio.Nursery | None = None

    async def run(self) -> None:
        """Probe for as long as the client lives."""
        async with trio.open_nursery() as self._nursery:
            for watched in self._watched.values():
                if watched.is_probed:  # Since before this task had its first turn.
                    self._nursery.start_soon(self._probe, watched)
            try:
                await trio.sleep_forever()
            finally:
                # What is still asked when a client ends is not watched. In here: the nursery closes a turn before its
                # block is left, and a pull that begins in that turn would fail.
                self._nursery = None

    def begin(self, addr: str, queue: MessageQueue) -> Watched:
        """A pull is sent there; `waiting` is to be lowered when it is over."""
        watched = self._watched.get(addr)
        if watched is None:
            watched = self._watched[addr] = Watched(addr, queue)
        watched.waiting += 1
        if not watched.is_probed:
            watched.queue = queue
            self._start(watched)
        return watched

    def failed(self, addr: str, queue: MessageQueue) -> None:
        """A pull failed there: ask until the address answers."""
        watched = self._watched.setdefault(addr, Watched(addr, queue))
        if not watched.is_probed:
            watched.queue = queue
            self._start(watched)

    def _start(self, watched: Watched) -> None:
        watched.is_probed = True
        if self._nursery is not None:
            self._nursery.start_soon(self._probe, watched)

    async def _probe(self, watched: Watched) -> None:
        """Until nobody waits there and the address counts as healthy."""
        addr, in_vain = watched.addr, 0
        try:
            while True:
                await trio.sleep(PROBE_INTERVAL)
                is_marked = self.faults.is_marked(addr)
                if is_marked:
                    if not self._is_routed(watched):
                        return
                    is_heard = await self._asked_anyhow(watched)
                elif watched.waiting:
                    is_heard = await self._asked_on_connection(watched)
                else:
                    return
                in_vain = 0 if is_heard else in_vain + 1
                if is_heard and self.faults.is_marked(addr):
                    logger.info("answers again addr=%s", addr)
                    self.mark_reachable(addr)
                elif not is_heard:
                    self._heard_nothing(watched, in_vain)
        finally:
            watched.is_probed = False
            if not watched.waiting:
                self._watched.pop(addr, None)

    async def _asked_on_connection(self, watched: Watched) -> bool:
        """Whether anything came from the broker, on the connection that pulls wait on."""
        channel = self.pool.standing(watched.addr)
        if channel is None:
            return True  # It is dialled, or its pulls have failed already.
        asked_at = trio.current_time()
        try:
            await channel.call(
                max_offset_header(watched.queue), timeout=PROBE_TIMEOUT, now=asked_at
            )
        except RequestTimeout:
            return channel.last_received > asked_at
        except Error:
            return True  # It is over: its pulls know.
        return True

    async def _asked_anyhow(self, watched: Watched) -> bool:
        """Whether the address answers, dialled if need be."""
        try:
            await self.pool.call(
                watched.addr, max_offset_header(watched.queue), timeout=PROBE_TIMEOUT
            )
        except Error:
            return False
        return True

    def _heard_nothing(self, watched: Watched, in_vain: int) -> None:
        """Let its pulls move on, where there is another replica; a connection that stays silent is closed."""
        addr = watched.addr
        if self._has_alternative(watched):
            was_marked = self.faults.is_marked(addr)
            self.mark_unreachable(addr, SILENCE_LIMIT)  # Also again: for as long as it is silent.
            if not was_marked:
                logger.warning(
                    "silent, its pulls move on addr=%s waiting=%d", addr, watched.waiting
                )
            channel = self.pool.standing(addr)
            if channel is not None:
                reason = (
                    f"{addr} is silent: nothing came for {PROBE_TIMEOUT:g} s after it was asked"
                )
                for code in _GIVEN_UP:
                    channel.give_up_calls(code, reason)
        if in_vain >= QUESTIONS_IN_VAIN:
            self.pool.drop(addr)

    def _has_alternative(self, watched: Watched) -> bool:
        live = self.routing.live(watched.queue.broker_name)
        return any(found.addr != watched.addr for found in live)

    def _is_routed(self, watched: Watched) -> bool:
        addrs = self.routing.broker_addr_table.get(watched.queue.broker_name, {})
        return watched.addr in addrs.values()
