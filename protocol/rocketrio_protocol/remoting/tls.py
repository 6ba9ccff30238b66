"""TLS on one connection: an `ssl.SSLObject` between the channel and its transport, with two buffers in memory.

    channel  -- plain -->  SSLObject  -- outgoing -->  transport
    channel  <-- plain --  SSLObject  <-- incoming --  transport

The reactor reads it like a socket, and a channel sends on it without waiting: `trio.SSLStream` would need two task
switches for each chunk.

Invariant: a byte is reported as sent only when the transport below has accepted all of its ciphertext. Until then the
caller presents it again, and it is not encrypted again.
Invariant: what arrived is decrypted to its end at each read, because no event of the socket would announce the rest.
Answers to: TlsHelper, Netty's SslHandler.
"""

import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import trio

from rocketrio_protocol.errors import Error, NotReachableError, TlsError
from rocketrio_protocol.frame import Body
from rocketrio_protocol.remoting.ports import (
    CONNECT_TIMEOUT,
    Dial,
    PolledTransport,
    Transport,
    split_addr,
)

HANDSHAKE_TIMEOUT: Final = 10.0
"""Seconds for a handshake, the first byte included (Netty's SslHandler, which does not count the first byte)."""

RECORD_SIZE: Final = 5 + 16 * 1024 + 256
"""The most bytes of a TLS record: its head, 2^14 bytes of content, and what a cipher may add (RFC 8446, 5.2)."""

ENCRYPT_SIZE: Final = 64 * 1024
"""Bytes that are encrypted at once: four records. What is encrypted cannot be given back."""

CONTROL_SIZE_LIMIT: Final = 64 * 1024
"""Bytes of answers to key updates that may wait for a peer that does not read; each is 27 bytes long."""

LAST_WORD_TIMEOUT: Final = 1.0
"""Seconds to tell the other end why a handshake failed."""

_HANDSHAKE_READ_SIZE: Final = 16 * 1024

_AUTHORITY_REMEDY: Final = (
    "Name the authority that signed it: TlsOptions(authority_file=...), --tls-ca or ROCKETRIO_TLS_CA_FILE, "
    "peer_tls_authority_file of a broker"
)
_CLOCK_REMEDY: Final = "Renew it there, or correct the clock of this machine"
_HOST_REMEDY: Final = (
    "Brokers and name servers are dialled by the addresses that are configured and registered, so their certificates "
    "must name these. check_host_name=False accepts any name, for an authority that signs nothing else"
)
_REMEDIES: Final = {9: _CLOCK_REMEDY, 10: _CLOCK_REMEDY, 62: _HOST_REMEDY, 64: _HOST_REMEDY}
"""By X509_V_ERR_*: not yet valid, expired, other host, other address; all else concerns the authority."""
_CLIENT_REMEDY: Final = (
    "The other end needs a certificate of the authority in tls_client_authority_file"
)
_PLAIN_PEER: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST")
_ALERT: Final = "ALERT_"


Turn = Callable[[Callable[[], None]], Awaitable[None]]
"""Calls a function that takes milliseconds of CPU, after others have had their turn."""


class OneAtATime:
    """Gives turns in the order of the requests, one in each tick of the scheduler."""

    def __init__(self) -> None:
        self._lock = trio.Lock()

    async def __call__(self, do: Callable[[], None]) -> None:
        async with self._lock:
            do()


async def _at_once(do: Callable[[], None]) -> None:
    do()


class TlsTransport:
    """A transport with TLS on top of another one. `accept_tls` and `connect_tls` create it."""

    def __init__(
        self,
        transport: Transport,
        context: ssl.SSLContext,
        *,
        server_side: bool,
        host: str | None = None,
    ) -> None:
        self.local_addr = transport.local_addr
        self.remote_addr = transport.remote_addr
        self._transport = transport
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=host
        )
        self._unsent: memoryview = memoryview(b"")  # Ciphertext that the transport has not taken.
        self._encrypted_size = 0  # Bytes of the caller's next data that are encrypted already.
        self._is_sending = False  # `send_all` waits, and nothing else may be sent.
        self._is_established = False
        self._peer_ended = False
        self._error: Error | None = None  # What the next read raises.

    @property
    def version(self) -> str | None:
        """The version of the protocol, such as TLSv1.3; None before the handshake."""
        return self._tls.version()

    def peer_certificate(self) -> dict[str, Any]:
        """Return the verified certificate of the other end as `ssl.SSLSocket.getpeercert` does; empty without one."""
        return dict(self._tls.getpeercert() or {})

    def shown_certificate(self) -> bytes | None:
        """Return the certificate that the other end has shown, in DER, verified or not."""
        return self._tls.getpeercert(binary_form=True)

    async def handshake(
        self, received: Body = b"", turn: Turn = _at_once, buffer: memoryview | None = None
    ) -> None:
        """Agree on keys with the other end, computing them in turns.

        `received` are the first bytes of the other end, if they were read already. Others may share `buffer`. Raises
        TlsError, which names what one end does not accept, and NotReachableError.
        """
        if buffer is None:
            buffer = memoryview(bytearray(_HANDSHAKE_READ_SIZE))
        self._incoming.write(received)
        while True:
            try:
                await turn(self._tls.do_handshake)
            except ssl.SSLWantReadError:
                await self._send_handshake()
                size = await self._transport.receive_into(buffer)
                if not size:
                    raise NotReachableError(
                        "The other end closed the connection during the TLS handshake",
                        broker_addr=self.remote_addr,
                        remedy="If this repeats, that port does not speak TLS",
                    ) from None
                self._incoming.write(buffer[:size])
            except ssl.SSLError as error:
                await self._send_last_word(buffer)
                raise self._fault(error) from error
            else:
                break
        await self._send_handshake()
        self._is_established = True

    async def receive_into(self, buffer: memoryview) -> int:
        # Not after `_decrypt`: many connections share the buffer, so nothing may wait between its filling and its use.
        await trio.lowlevel.checkpoint()
        while not self._peer_ended:
            size = self._decrypt(buffer)
            if size:
                return size
            if self._peer_ended:
                break
            count = await self._transport.receive_into(buffer)
            if not count:
                self._peer_ended = True
            self._incoming.write(buffer[:count])
        return 0

    def send_nowait(self, data: Body) -> int:
        """Send as much as possible without waiting; return how many bytes, possibly 0.

        The caller presents the bytes that were not sent again, before any others.
        """
        if self._is_sending:
            return 0
        taken, total = 0, len(data)
        if self._unsent or self._encrypted_size:  # The latter alone if a read has flushed the rest.
            if not self._flush():
                return 0
            # These bytes of the caller were encrypted before, and count as sent
            # only now: encrypted again they would come twice.
            taken, self._encrypted_size = self._encrypted_size, 0
        with memoryview(data) as view:
            while taken < total:
                self._encrypt(view[taken : taken + ENCRYPT_SIZE])
                if not self._flush():
                    break
                taken += self._encrypted_size
                self._encrypted_size = 0
        return taken

    async def send_all(self, data: Body) -> None:
        with memoryview(data) as view:
            taken = self.send_nowait(view)
            while taken < len(view):
                if not self._unsent and not self._encrypted_size:
                    self._encrypt(view[taken : taken + ENCRYPT_SIZE])
                await self._send_unsent()
                taken += self._encrypted_size
                self._encrypted_size = 0

    async def aclose(self) -> None:
        """Close at once, even if cancelled; the peer reads the end of the stream."""
        if self._is_established and not self._is_sending and not self._unsent:
            self._is_established = False
            with suppress(ssl.SSLError):  # SSLWantReadError: its own farewell has not arrived.
                self._tls.unwrap()
            with suppress(NotReachableError):
                self._flush()
        await self._transport.aclose()

    def _decrypt(self, buffer: memoryview) -> int:
        """Read plain bytes until nothing more can be decrypted or the buffer is full; return how many."""
        if self._error is not None:
            raise self._error
        size, incoming, read, pending = 0, self._incoming, self._tls.read, self._tls.pending
        try:
            while size < len(buffer):
                count: int = read(len(buffer) - size, buffer[size:])  # type: ignore[assignment]
                if not count:
                    self._peer_ended = True
                    break
                size += count
                # A read of nothing would raise SSLWantReadError, which costs as much as a small frame.
                if not incoming.pending and not pending():
                    break
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._is_established = False
            self._error = self._fault(error)
            with suppress(NotReachableError):
                self._flush()  # The alert, which says why.
            if not size:
                raise self._error from error
        if self._outgoing.pending:  # The answer to a key update.
            self._flush()
            if self._outgoing.pending > CONTROL_SIZE_LIMIT:
                self._error = TlsError(
                    "The other end sends key updates and reads no answer",
                    broker_addr=self.remote_addr,
                )
                raise self._error
        return size

    def _encrypt(self, data: memoryview) -> None:
        position = 0
        try:
            while position < len(data):
                position += self._tls.write(data[position:])
        except ssl.SSLError as error:
            raise self._fault(error) from error
        self._encrypted_size = len(data)
        self._unsent = memoryview(self._outgoing.read())

    def _flush(self) -> bool:
        """Send ciphertext without waiting; return whether none is left."""
        if self._is_sending:
            return False
        while True:
            if not self._unsent:
                if not self._outgoing.pending:
                    return True
                self._unsent = memoryview(self._outgoing.read())
            sent = self._transport.send_nowait(self._unsent)
            self._unsent = self._unsent[sent:]
            if self._unsent:
                return False

    async def _send_unsent(self) -> None:
        """Wait until the transport has taken all ciphertext."""
        self._is_sending = True
        while self._unsent or self._outgoing.pending:
            unsent = self._unsent or memoryview(self._outgoing.read())
            self._unsent = memoryview(b"")
            await self._transport.send_all(unsent)
        self._is_sending = False  # Not after an error or a cancel: the connection cannot be used.

    async def _send_handshake(self) -> None:
        if self._outgoing.pending:
            await self._transport.send_all(self._outgoing.read())

    async def _send_last_word(self, buffer: memoryview) -> None:
        """Send the alert, and drop what arrives: closing with unread bytes would look like a broken network."""
        with trio.move_on_after(LAST_WORD_TIMEOUT), suppress(Error):
            await self._send_handshake()
            if self._tls.server_side:
                while await self._transport.receive_into(buffer):
                    pass

    def _fault(self, error: ssl.SSLError) -> Error:
        return _tls_fault(error, self.remote_addr, is_server=bool(self._tls.server_side))


class PolledTlsTransport(TlsTransport):
    """TLS on a transport that a reactor can read."""

    def __init__(
        self,
        transport: PolledTransport,
        context: ssl.SSLContext,
        *,
        server_side: bool,
        host: str | None = None,
    ) -> None:
        super().__init__(transport, context, server_side=server_side, host=host)
        self.holds_bytes = True  # The first ones may have come with the end of the handshake.
        self._polled = transport

    def fileno(self) -> int:
        """Return the descriptor that an epoll object watches."""
        return self._polled.fileno()

    def receive_nowait(self, buffer: memoryview) -> int:
        """Receive without waiting; return 0 at the end. Raises BlockingIOError when no plain bytes have arrived.

        The ciphertext is read into `buffer` too. It is so much shorter than `buffer` that its content, and that of a
        record whose beginning arrived before, fits.
        """
        if self._peer_ended:
            return 0
        if self._error is not None:
            raise self._error
        if self.holds_bytes:
            self.holds_bytes = False
        else:
            size = self._polled.receive_nowait(buffer[: len(buffer) - RECORD_SIZE])
            if not size:  # Frames carry their length, so an end without a farewell is an end.
                self._peer_ended = True
                return 0
            self._incoming.write(buffer[:size])
        size = self._decrypt(buffer)
        if not size and not self._peer_ended:
            raise BlockingIOError
        return size


async def accept_tls(
    transport: Transport,
    context: ssl.SSLContext,
    received: Body = b"",
    turn: Turn = _at_once,
    buffer: memoryview | None = None,
) -> TlsTransport:
    """Do the server's part of the handshake; `received` are the client's first bytes, if they were read already.

    Others may share `buffer`. What costs CPU is done in turns, of which a server gives each host its share. Raises
    TlsError and NotReachableError; on any error and on a cancel the connection is closed.
    """
    return await _opened(
        transport,
        context,
        server_side=True,
        host=None,
        received=received,
        turn=turn,
        buffer=buffer,
    )


async def connect_tls(transport: Transport, context: ssl.SSLContext, host: str) -> TlsTransport:
    """Do the client's part of the handshake with `host`, as `accept_tls` does the server's."""
    return await _opened(
        transport,
        context,
        server_side=False,
        host=host,
        received=b"",
        turn=_at_once,
        buffer=None,
    )


async def _opened(
    transport: Transport,
    context: ssl.SSLContext,
    *,
    server_side: bool,
    host: str | None,
    received: Body,
    turn: Turn,
    buffer: memoryview | None,
) -> TlsTransport:
    try:
        opened = (
            PolledTlsTransport(transport, context, server_side=server_side, host=host)
            if isinstance(transport, PolledTransport)
            else TlsTransport(transport, context, server_side=server_side, host=host)
        )
        await opened.handshake(received, turn, buffer)
        return opened
    except BaseException:
        await transport.aclose()
        raise


def tls_dial(dial: Dial, context: Callable[[], ssl.SSLContext], *, trusted: str = "") -> Dial:
    """Return a function that dials like `dial` and begins TLS, with the host that is dialled as the server's name.

    `context` is asked at each dial. `trusted` says in errors which authorities it trusts.
    """

    async def dial_tls(addr: str, *, timeout: float = CONNECT_TIMEOUT) -> Transport:
        with trio.move_on_after(timeout):
            transport = await dial(addr, timeout=timeout)
            host = split_addr(addr)[0].partition("%")[0]
            try:
                return await connect_tls(transport, context(), host)
            except TlsError as error:
                what = f"{error.what}; {addr} was dialled{trusted and f', and {trusted} trusted'}"
                raise TlsError(what, broker_addr=addr, remedy=error.advice) from error
        raise NotReachableError(
            f"No TLS connection to {addr} within {timeout:g} s",
            broker_addr=addr,
            remedy="Check the network, the load of that server, and whether the port speaks TLS",
        )

    return dial_tls


def _tls_fault(error: ssl.SSLError, addr: str, *, is_server: bool) -> Error:
    """Return the error that says what one end does not accept."""
    if isinstance(error, ssl.SSLCertVerificationError):
        remedy = (
            _CLIENT_REMEDY if is_server else _REMEDIES.get(error.verify_code, _AUTHORITY_REMEDY)
        )
        what = f"The certificate of the other end is not accepted: {error.verify_message}"
        return TlsError(what, broker_addr=addr, remedy=remedy)
    reason = error.reason or str(error)
    if reason in _PLAIN_PEER:
        return TlsError("The other end does not speak TLS on this port", broker_addr=addr)
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        what = "The other end has sent no certificate, and this server requires one"
        return TlsError(what, broker_addr=addr, remedy=_CLIENT_REMEDY)
    words = reason.replace("_", " ").lower()
    if _ALERT in reason:
        alert = reason.rpartition(_ALERT)[2].replace("_", " ").lower()
        return TlsError(f"The other end refuses this end's TLS: {alert}", broker_addr=addr)
    return TlsError(f"TLS failed: {words}", broker_addr=addr)
