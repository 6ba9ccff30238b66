"""Who may replicate, and who may listen in: TLS with certificates on both ends, a shared secret, or both.

    both                 TLS 1.3, each end's certificate signed by the cluster's own authority
    slave -> master      magic (8) | nonce (32)
    master -> slave      nonce (32) | HMAC-SHA256(secret, "master" | slave's nonce | master's nonce)
    slave -> master      HMAC-SHA256(secret, "slave" | slave's nonce | master's nonce)
    both                 Apache's reports and transfers, as without all this

Each part is there when it is configured; with neither the stream is Apache's to the byte. The secret proves who
speaks, TLS also hides what is said: across networks that others can read, use TLS.

Invariant: a peer that proved nothing gets no byte of the log, and counts for nothing.
Invariant: the secret never leaves the process, and each end proves that it knows it.
Unlike Java: Apache's replication port feeds whoever asks.
"""

import hmac
import secrets
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs
import trio

from rocketrio_broker.ha.errors import LinkRefusedError
from rocketrio_protocol.errors import ConfigError, Error, NotReachable
from rocketrio_protocol.ha import REPORT_SIZE
from rocketrio_protocol.remoting.ports import CONNECT_TIMEOUT, Dial, Transport
from rocketrio_protocol.remoting.streams import StreamTransport, TransportStream

HANDSHAKE_LIMIT: Final = 5.0
"""Seconds both ends have to prove who they are."""

SECRET_SIZE_MIN: Final = 16
"""Bytes of a secret that nobody guesses."""

MAGIC: Final = b"\x8arktrio\x01"
"""What a slave with a secret says first. As reports this and its nonce are negative numbers: no master, Apache's
included, takes them for an acknowledgement, or has anything to send from there."""

_NONCE_SIZE: Final = 32
_SIGN_BIT: Final = 0x80
_RECEIVE_SIZE: Final = 64 << 10
_WASTE_SIZE: Final = 4096  # what a peer that was refused has said already is read and dropped
_LAST_WORD_LIMIT: Final = 1.0  # seconds until it is closed all the same
_PROOF_SIZE: Final = 32
_SECRET_REMEDY: Final = (
    "Give master and slaves the same ha_secret_file, or none of them any; "
    "Apache's brokers know no secret"
)
_TLS_REMEDY: Final = (
    "Give master and slaves certificates of one authority (ha_tls_*), or none of them any; "
    "Apache's brokers know no TLS here"
)

NewNonce = Callable[[int], bytes]


@attrs.frozen
class LinkSecurity:
    """What this broker asks of the other end of a replication connection."""

    secret: bytes | None = attrs.field(default=None, repr=False)
    server_context: ssl.SSLContext | None = None
    """How a master proves itself, and checks slaves; None: no TLS."""
    client_context: ssl.SSLContext | None = None
    """How a slave proves itself, and checks its master."""
    new_nonce: NewNonce = secrets.token_bytes
    """Bytes that never come again."""

    def __bool__(self) -> bool:
        """Whether anything is asked at all."""
        return self.secret is not None or self.server_context is not None

    async def accept(self, transport: Transport) -> Transport:
        """The master's end. Raises LinkRefusedError or NotReachable; whatever stops it, the connection is closed."""
        return await self._secured(transport, is_master=True)

    async def connect(self, transport: Transport) -> Transport:
        """The slave's end. Raises as `accept` does."""
        return await self._secured(transport, is_master=False)

    async def _secured(self, transport: Transport, *, is_master: bool) -> Transport:
        context = self.server_context if is_master else self.client_context
        prove = self._check_slave if is_master else self._check_master
        addr = transport.remote_addr
        try:
            with trio.move_on_after(HANDSHAKE_LIMIT) as waiting:
                if context is not None:
                    transport = await _with_tls(transport, context, is_master=is_master)
                if self.secret is not None:
                    await prove(transport, self.secret)
            if waiting.cancelled_caught:
                raise LinkRefusedError(
                    f"The other end has not proved who it is within {HANDSHAKE_LIMIT:g} s",
                    broker_addr=addr,
                )
        except BaseException:
            await transport.aclose()
            raise
        return transport

    async def _check_slave(self, transport: Transport, secret: bytes) -> None:
        magic = await _receive_exactly(transport, len(MAGIC))
        if magic != MAGIC:
            raise LinkRefusedError(
                "The slave knows of no secret: it got nothing",
                broker_addr=transport.remote_addr,
                remedy=_SECRET_REMEDY,
            )
        slave_nonce = await _receive_exactly(transport, _NONCE_SIZE)
        master_nonce = self.new_nonce(_NONCE_SIZE)
        nonces = slave_nonce + master_nonce
        await transport.send_all(master_nonce + _proof(secret, b"master", nonces))
        answer = await _receive_exactly(transport, _PROOF_SIZE)
        if not hmac.compare_digest(answer, _proof(secret, b"slave", nonces)):
            raise LinkRefusedError(
                "The slave has another secret: it got nothing",
                broker_addr=transport.remote_addr,
                remedy=_SECRET_REMEDY,
            )

    async def _check_master(self, transport: Transport, secret: bytes) -> None:
        slave_nonce = _negative(self.new_nonce(_NONCE_SIZE))
        await transport.send_all(MAGIC + slave_nonce)
        answer = await _receive_exactly(transport, _NONCE_SIZE + _PROOF_SIZE)
        nonces = slave_nonce + answer[:_NONCE_SIZE]
        if not hmac.compare_digest(answer[_NONCE_SIZE:], _proof(secret, b"master", nonces)):
            raise LinkRefusedError(
                "The master has another secret, or knows of none",
                broker_addr=transport.remote_addr,
                remedy=_SECRET_REMEDY,
            )
        await transport.send_all(_proof(secret, b"slave", nonces))


def load_link_security(
    *,
    secret_file: Path | None = None,
    certificate_file: Path | None = None,
    key_file: Path | None = None,
    authority_file: Path | None = None,
) -> LinkSecurity:
    """What the settings ask for; blocks. Raises ConfigError naming the file that is missing or wrong."""
    secret = None if secret_file is None else _read_secret(secret_file)
    if certificate_file is None and authority_file is None and key_file is None:
        return LinkSecurity(secret)
    if certificate_file is None or authority_file is None:
        raise ConfigError(
            "TLS for replication needs this broker's certificate and the authority that signs all of them",
            remedy="Set ha_tls_certificate_file and ha_tls_authority_file "
            "(ha_tls_key_file where the key is not in the certificate's file)",
        )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # The authority signs nothing but this cluster's brokers, and they are dialled by addresses that change.
    client.check_hostname = False
    for context in (server, client):
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_cert_chain(certificate_file, key_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"ha_tls_certificate_file {certificate_file} cannot be used: {error}"
            ) from error
        try:
            context.load_verify_locations(authority_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"ha_tls_authority_file {authority_file} cannot be used: {error}"
            ) from error
    return LinkSecurity(secret, server, client)


def secured_dial(dial: Dial, security: LinkSecurity) -> Dial:
    """Dials as `dial` does, and hands over a connection when the master has proved who it is."""
    if not security:
        return dial

    async def dial_secured(addr: str, *, timeout: float = CONNECT_TIMEOUT) -> Transport:
        return await security.connect(await dial(addr, timeout=timeout))

    return dial_secured


def _read_secret(path: Path) -> bytes:
    try:
        secret = path.read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"ha_secret_file {path} cannot be read: {error.strerror}") from error
    if len(secret) < SECRET_SIZE_MIN:
        raise ConfigError(
            f"ha_secret_file {path} holds {len(secret)} bytes, at least {SECRET_SIZE_MIN} are needed",
            remedy="Write one with: openssl rand -hex 32 > FILE",
        )
    return secret


def _negative(nonce: bytes) -> bytes:
    """With the sign of each eight bytes set, which a master that knows no secret reads as reports."""
    return bytes(
        byte if place % REPORT_SIZE else byte | _SIGN_BIT for place, byte in enumerate(nonce)
    )


def _proof(secret: bytes, role: bytes, nonces: bytes) -> bytes:
    return hmac.digest(secret, role + nonces, "sha256")


async def _with_tls(
    transport: Transport, context: ssl.SSLContext, *, is_master: bool
) -> StreamTransport:
    stream = trio.SSLStream(TransportStream(transport), context, server_side=is_master)
    try:
        await stream.do_handshake()
    except trio.BrokenResourceError as error:
        if is_master:
            await _wait_closed(transport)
        raise LinkRefusedError(
            f"No TLS connection ({error.__cause__ or error})",
            broker_addr=transport.remote_addr,
            remedy=_TLS_REMEDY,
        ) from error
    return StreamTransport(
        stream, local_addr=transport.local_addr, remote_addr=transport.remote_addr
    )


async def _wait_closed(transport: Transport) -> None:
    """Take what the other end says: to close with bytes unread would look to it like a broken network."""
    buffer = memoryview(bytearray(_WASTE_SIZE))
    with trio.move_on_after(_LAST_WORD_LIMIT), suppress(Error):
        while await transport.receive_into(buffer):
            pass


async def _receive_exactly(transport: Transport, size: int) -> bytes:
    return await receive_exactly(
        transport, size, instead_of="proving who it is", remedy=_SECRET_REMEDY
    )


async def receive_exactly(
    transport: Transport, size: int, *, instead_of: str, remedy: str | None = None
) -> bytes:
    """Receive so many bytes of a handshake; memory is taken as they come, not for a size that was claimed.

    Raises NotReachable, which names what the other end closed the connection `instead_of`.
    """
    data = bytearray()
    buffer = memoryview(bytearray(min(size, _RECEIVE_SIZE)))
    while len(data) < size:
        count = await transport.receive_into(buffer[: size - len(data)])
        if not count:
            raise NotReachable(
                f"The other end closed the connection instead of {instead_of}",
                broker_addr=transport.remote_addr,
                remedy=remedy,
            )
        data += buffer[:count]
    return bytes(data)
