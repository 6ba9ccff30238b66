"""Detects dead connections under long polls within two seconds, and notices when their brokers are back.

A held pull sends nothing, so a probe distinguishes idle from dead: each second the broker is asked for the end of a
queue, on the same connection. If no byte arrives within a second, the pulls there fail, if there is another replica.

    pulls wait on a connection     one prober: probes each second           no pull waits any more: it ends
    a probe unanswered             its pulls and commits fail, the address is avoided, and probed further
    three in a row unanswered      the connection is closed, the next probe connects again
    an address that failed         probed each second until it answers, or is in no route any more

Invariant: there is one task per address, and none if no pull waits there and the address has not failed.
Invariant: bytes count, not answers: a slow link on which a large answer arrives is not dead.
Unlike Java: Java notices only at the pull's own timeout of 30 s, or at the name server's of 120 s.
"""

import logging
from collections.abc import Callable
from typing import Final

import attrs
import trio

from rocketrio.cluster.api import max_offset_header
from rocketrio.cluster.fault import AddressFaults
from rocketrio.routing import Router
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.errors import Error, RequestTimeoutError
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.remoting.pool import ChannelPool

PROBE_INTERVAL: Final = 1.0
"""Seconds between probes on a connection on which pulls wait."""
PROBE_TIMEOUT: Final = 1.0
"""Seconds without a byte after a probe until a connection counts as silent. Pauses of Java's garbage collection are
usually shorter; a longer one moves a pull elsewhere."""
SILENCE_LIMIT: Final = PROBE_INTERVAL + PROBE_TIMEOUT
"""Seconds within which a silent connection is noticed."""
UNANSWERED_PROBES: Final = 3
"""Consecutive unanswered probes after which a connection counts as dead. Not the first one: other calls may wait on
it."""

_GIVEN_UP: Final = (
    RequestCode.PULL_MESSAGE,
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.UPDATE_CONSUMER_OFFSET,
)
"""Calls that fail with a silent connection: repeating them at another replica is harmless, unlike repeating sends."""

logger = logging.getLogger("rocketrio.pull")


@attrs.define(eq=False)
class WatchedAddress:
    """One address, and the number of pulls that wait there."""

    addr: str
    queue: MessageQueue
    """The queue whose end is requested: one that was pulled there."""
    waiting: int = 0
    is_probed: bool = False


@attrs.define(eq=False)
class ProbeService:
    """Probes the addresses of one client."""

    pool: ChannelPool
    routing: Router
    faults: AddressFaults
    mark_unreachable: Callable[[str, float], None]
    """Called with an address and the seconds until the silence was noticed."""
    mark_reachable: Callable[[str], None]
    _watched: dict[str, WatchedAddress] = attrs.Factory(dict)
    _nursery: trio.Nursery | None = None

    async def run(self) -> None:
        """Probe until cancelled."""
        async with trio.open_nursery() as self._nursery:
            for watched in self._watched.values():
                if watched.is_probed:  # Begun before this task had its first turn.
                    self._nursery.start_soon(self._probe, watched)
            try:
                await trio.sleep_forever()
            finally:
                # Requests at the end of a client are not watched. This is inside the nursery: it closes a turn before
                # its block is left, and a pull that begins in that turn would fail.
                self._nursery = None

    def begin(self, addr: str, queue: MessageQueue) -> WatchedAddress:
        """Note that a pull is sent; the caller must decrement `waiting` when it is over."""
        watched = self._watched.get(addr)
        if watched is None:
            watched = self._watched[addr] = WatchedAddress(addr, queue)
        watched.waiting += 1
        if not watched.is_probed:
            watched.queue = queue
            self._start(watched)
        return watched

    def failed(self, addr: str, queue: MessageQueue) -> None:
        """Probe an address where a pull failed, until it answers."""
        watched = self._watched.setdefault(addr, WatchedAddress(addr, queue))
        if not watched.is_probed:
            watched.queue = queue
            self._start(watched)

    def _start(self, watched: WatchedAddress) -> None:
        watched.is_probed = True
        if self._nursery is not None:
            self._nursery.start_soon(self._probe, watched)

    async def _probe(self, watched: WatchedAddress) -> None:
        """Probe until no pull waits there and the address counts as healthy."""
        addr, unanswered = watched.addr, 0
        try:
            while True:
                await trio.sleep(PROBE_INTERVAL)
                is_marked = self.faults.is_marked(addr)
                if is_marked:
                    if not self._is_routed(watched):
                        return
                    is_answered = await self._probe_address(watched)
                elif watched.waiting:
                    is_answered = await self._probe_connection(watched)
                else:
                    return
                unanswered = 0 if is_answered else unanswered + 1
                if is_answered and self.faults.is_marked(addr):
                    logger.info("answers again addr=%s", addr)
                    self.mark_reachable(addr)
                elif not is_answered:
                    self._handle_silence(watched, unanswered)
        finally:
            watched.is_probed = False
            if not watched.waiting:
                self._watched.pop(addr, None)

    async def _probe_connection(self, watched: WatchedAddress) -> bool:
        """Probe on the pulls' connection; return whether anything arrived from the broker."""
        channel = self.pool.open_channel(watched.addr)
        if channel is None:
            return True  # It is being opened, or its pulls have failed already.
        sent_at = trio.current_time()
        try:
            await channel.call(max_offset_header(watched.queue), timeout=PROBE_TIMEOUT, now=sent_at)
        except RequestTimeoutError:
            return channel.last_received > sent_at
        except Error:
            return True  # The connection has ended, which its pulls notice themselves.
        return True

    async def _probe_address(self, watched: WatchedAddress) -> bool:
        """Probe over any connection, opened if necessary; return whether the address answers."""
        try:
            await self.pool.call(
                watched.addr, max_offset_header(watched.queue), timeout=PROBE_TIMEOUT
            )
        except Error:
            return False
        return True

    def _handle_silence(self, watched: WatchedAddress, unanswered: int) -> None:
        """Fail the pulls if there is another replica; close a connection that stays silent."""
        addr = watched.addr
        if self._has_alternative(watched):
            was_marked = self.faults.is_marked(addr)
            self.mark_unreachable(addr, SILENCE_LIMIT)  # Repeated while the address is silent.
            if not was_marked:
                logger.warning(
                    "silent, its pulls move on addr=%s waiting=%d", addr, watched.waiting
                )
            channel = self.pool.open_channel(addr)
            if channel is not None:
                reason = f"{addr} is silent: nothing came for {PROBE_TIMEOUT:g} s after a probe"
                for code in _GIVEN_UP:
                    channel.give_up_calls(code, reason)
        if unanswered >= UNANSWERED_PROBES:
            self.pool.drop(addr)

    def _has_alternative(self, watched: WatchedAddress) -> bool:
        live = self.routing.live(watched.queue.broker_name)
        return any(found.addr != watched.addr for found in live)

    def _is_routed(self, watched: WatchedAddress) -> bool:
        addrs = self.routing.broker_addr_table.get(watched.queue.broker_name, {})
        return watched.addr in addrs.values()
