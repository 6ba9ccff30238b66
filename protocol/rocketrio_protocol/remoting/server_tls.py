"""Decides by the first byte of a connection whether it uses TLS, and does the server's part of the handshake.

    mode         first byte 0x16    any other first byte
    permissive   TLS                plain
    enforcing    TLS                closed: not a byte of it is decoded

A server without TLS (disabled) does not use this module: to it a TLS client sends a frame that is too long.

Invariant: a newcomer always gets a place among the arrivals, and computes when its host has a turn; only a peer that
lets this end wait gives its place up.
Answers to: NettyRemotingServer.TlsModeHandler, TlsMode.
Unlike Java: an enforcing server of Java executes the plain request of the first packet before it closes.
"""

import ssl
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Final

import trio

from rocketrio_protocol.errors import Error, NotReachableError, TlsError
from rocketrio_protocol.frame import TLS_HANDSHAKE
from rocketrio_protocol.remoting.ports import Transport
from rocketrio_protocol.remoting.rare_log import RareLog
from rocketrio_protocol.remoting.reactor import Reactor
from rocketrio_protocol.remoting.server_limits import ConnectionPlaces, ServerLimits, host_of
from rocketrio_protocol.remoting.tls import HANDSHAKE_TIMEOUT, RECORD_SIZE, accept_tls

ARRIVALS_LIMIT: Final = 512
"""Connections of one server, over all its ports, that have not shown yet whether they use TLS or are in the handshake;
each takes some 50 KiB."""

HOST_ARRIVALS_LIMIT: Final = 256
"""The same for one host. A new one takes the place of that which has let this end wait longest."""

_RECORD_HEAD_SIZE: Final = 5
_PLAIN_REFUSAL: Final = bytes.fromhex("15 0303 0002 02 0a")
"""A fatal TLS alert (unexpected_message), by which a plain client learns that this port speaks TLS."""


class Arrival:
    """A connection whose first bytes decide whether it uses TLS, until its handshake is done."""

    def __init__(self, transport: Transport, reactor: Reactor) -> None:
        self.transport = transport
        self.remote_addr = transport.remote_addr
        self.last_received = trio.current_time()
        """Since when this end waits for bytes; infinite while the connection waits for its turn."""
        self.scope = trio.CancelScope()
        self._host = host_of(self.remote_addr)
        self._reactor = reactor

    def close(self, reason: str) -> None:
        """End the connection, because another one gets its place."""
        self.scope.cancel()

    async def turn(self, do: Callable[[], None]) -> None:
        """Compute in a turn of the connection's host."""
        # It waits for this end and not for its peer: such an arrival must not give its place up.
        self.last_received = inf
        await self._reactor.turn(self._host, do)
        self.last_received = trio.current_time()


class ServerTls:
    """How one server uses TLS."""

    def __init__(
        self,
        context: Callable[[], ssl.SSLContext],
        *,
        is_enforcing: bool = True,
        arrivals_limit: int = ARRIVALS_LIMIT,
        host_arrivals_limit: int = HOST_ARRIVALS_LIMIT,
    ) -> None:
        """`context` is asked at each handshake, so a renewed certificate counts from the next connection on."""
        self.refused_plain_count = 0
        """Connections that were closed because they did not begin with TLS."""
        self.failed_handshake_count = 0
        """Handshakes that ended with an error, took too long, or gave their place up."""
        self._context = context
        self._is_enforcing = is_enforcing
        self._rare_log = RareLog()
        limits = ServerLimits(connections=arrivals_limit, host_connections=host_arrivals_limit)
        self._arrivals = ConnectionPlaces(limits, self._rare_log, replaces_own=True)

    async def open(self, arrival: Arrival, buffer: memoryview) -> tuple[Transport, bytes] | None:
        """Return the connection to use, with its first bytes if it is plain; None if it was closed.

        The server's `buffer` is used for each read of the handshake.
        """
        transport = arrival.transport
        if not self._arrivals.has_room(arrival.remote_addr):
            await transport.aclose()
            return None
        self._arrivals.take(arrival)
        try:
            with arrival.scope, trio.move_on_after(HANDSHAKE_TIMEOUT):
                return await self._decided(arrival, buffer)
        finally:
            self._arrivals.leave(arrival)
        if arrival.scope.cancelled_caught:
            self.failed_handshake_count += 1
            self._rare_log.warning(
                "a silent handshake gave its place up peer=%s arrivals=%d",
                arrival.remote_addr, len(self._arrivals),
            )  # fmt: skip
        else:
            self._fail(transport, f"not done within {HANDSHAKE_TIMEOUT:g} s", is_fault=False)
        return None

    async def _decided(
        self, arrival: Arrival, buffer: memoryview
    ) -> tuple[Transport, bytes] | None:
        transport = arrival.transport
        try:
            opened = await self._opened(arrival, buffer)
        except Error as error:
            self._fail(transport, error.what, is_fault=isinstance(error, TlsError))
            opened = None
        except BaseException:
            await transport.aclose()
            raise
        if opened is None:
            await transport.aclose()
        return opened

    async def _opened(self, arrival: Arrival, buffer: memoryview) -> tuple[Transport, bytes] | None:
        transport = arrival.transport
        size = await transport.receive_into(buffer)
        if not size:
            return None
        received = bytes(buffer[:size])
        # Before anything is decoded: Java's enforcing server executes the plain request of the first packet.
        if received[0] != TLS_HANDSHAKE:
            if not self._is_enforcing:
                return transport, received
            self._refuse_plain(transport)
            return None
        received += await _rest_of_record(transport, received, buffer)
        return await accept_tls(transport, self._context(), received, arrival.turn, buffer), b""

    def _refuse_plain(self, transport: Transport) -> None:
        self.refused_plain_count += 1
        self._rare_log.warning(
            "a connection without TLS was refused peer=%s remedy=%s",
            transport.remote_addr,
            "let that client use TLS",
        )
        with suppress(NotReachableError):
            transport.send_nowait(_PLAIN_REFUSAL)

    def _fail(self, transport: Transport, what: str, *, is_fault: bool) -> None:
        """Count a handshake that failed; what any network does to connections is not worth a warning."""
        self.failed_handshake_count += 1
        if is_fault:
            self._rare_log.warning("TLS failed peer=%s error=%s", transport.remote_addr, what)


async def _rest_of_record(transport: Transport, received: bytes, buffer: memoryview) -> bytes:
    """Receive what the first TLS record lacks: OpenSSL takes 50 KiB for a connection, and a stranger sends a byte."""
    rest = b""
    while len(received) + len(rest) < _record_size(received + rest):
        size = await transport.receive_into(buffer[:RECORD_SIZE])
        if not size:
            break
        rest += buffer[:size]
    return rest


def _record_size(head: bytes) -> int:
    """Return the size of a record by its head, at most the largest that there is."""
    if len(head) < _RECORD_HEAD_SIZE:
        return _RECORD_HEAD_SIZE
    return min(_RECORD_HEAD_SIZE + int.from_bytes(head[3:_RECORD_HEAD_SIZE]), RECORD_SIZE)
