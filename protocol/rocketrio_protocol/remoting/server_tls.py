"""Decides by the first byte of a connection whether it uses TLS, and does the server's part of the handshake.

    mode         first byte 0x16    any other first byte
    permissive   TLS                plain
    enforcing    TLS                closed: not a byte of it is decoded

A server without TLS (disabled) does not use this module: to it a TLS client sends a frame that is too long.

Answers to: NettyRemotingServer.TlsModeHandler, TlsMode.
Unlike Java: an enforcing server of Java executes the plain request of the first packet before it closes.
"""

import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

import attrs
import trio

from rocketrio_protocol.errors import Error, NotReachableError, TlsError
from rocketrio_protocol.frame import TLS_HANDSHAKE
from rocketrio_protocol.remoting.ports import Transport
from rocketrio_protocol.remoting.rare_log import RareLog
from rocketrio_protocol.remoting.server_limits import host_of
from rocketrio_protocol.remoting.tls import HANDSHAKE_TIMEOUT, accept_tls

HANDSHAKES_LIMIT: Final = 256
"""Handshakes of one server under way at the same time; further ones wait for a place, within their 10 s."""

HOST_HANDSHAKES_LIMIT: Final = 128
"""The same for one host, so that a host whose handshakes never end does not take all places."""

_PLAIN_REFUSAL: Final = bytes.fromhex("15 0303 0002 02 0a")
"""A fatal TLS alert (unexpected_message), by which a plain client learns that this port speaks TLS."""


@attrs.define
class _Host:
    """The handshakes of one host."""

    places: trio.Semaphore
    count: int = 0
    """Those under way, and those that wait."""


class ServerTls:
    """How one server uses TLS."""

    def __init__(
        self,
        context: Callable[[], ssl.SSLContext],
        *,
        is_enforcing: bool = True,
        handshakes_limit: int = HANDSHAKES_LIMIT,
        host_handshakes_limit: int = HOST_HANDSHAKES_LIMIT,
    ) -> None:
        """`context` is asked at each handshake, so a renewed certificate counts from the next connection on."""
        self.refused_plain_count = 0
        """Connections that were closed because they did not begin with TLS."""
        self.failed_handshake_count = 0
        """Handshakes that ended with an error, or took too long."""
        self._context = context
        self._is_enforcing = is_enforcing
        self._places = trio.Semaphore(handshakes_limit)
        self._host_limit = host_handshakes_limit
        self._hosts: dict[str, _Host] = {}
        self._rare_log = RareLog()

    async def open(
        self, transport: Transport, buffer: memoryview
    ) -> tuple[Transport, bytes] | None:
        """Return the connection to use, with its first bytes if it is plain; None if it was closed.

        The server's `buffer` is used for the first read alone.
        """
        with trio.move_on_after(HANDSHAKE_TIMEOUT):
            try:
                opened = await self._opened(transport, buffer)
            except Error as error:
                self._fail(transport, error.what, is_fault=isinstance(error, TlsError))
                opened = None
            except BaseException:
                await transport.aclose()
                raise
            if opened is None:
                await transport.aclose()
            return opened
        self._fail(transport, f"not done within {HANDSHAKE_TIMEOUT:g} s", is_fault=False)
        return None

    async def _opened(
        self, transport: Transport, buffer: memoryview
    ) -> tuple[Transport, bytes] | None:
        size = await transport.receive_into(buffer)
        if not size:
            return None
        received = bytes(buffer[:size])
        if received[0] != TLS_HANDSHAKE:
            if not self._is_enforcing:
                return transport, received
            self._refuse_plain(transport)
            return None
        async with self._place(transport.remote_addr):
            return await accept_tls(transport, self._context(), received), b""

    @asynccontextmanager
    async def _place(self, addr: str) -> AsyncGenerator[None]:
        """Wait for a place, and hold it."""
        name = host_of(addr)
        host = self._hosts.setdefault(name, _Host(trio.Semaphore(self._host_limit)))
        host.count += 1
        try:
            async with host.places, self._places:
                yield
        finally:
            host.count -= 1
            if not host.count:
                del self._hosts[name]

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
