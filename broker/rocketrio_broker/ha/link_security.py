"""Authenticates and encrypts replication connections: TLS with certificates on both ends, a shared secret, or both.

    both   TLS 1.3, each end's certificate signed by the cluster's own authority
    both   hellos: each end's broker name, and the address at which the master is found or was dialled
    both   proofs that each end knows the secret, the slave's first; all frames after them are authenticated
    both   reports and transfers, as without a secret and TLS

Each part is used if it is configured (the hellos with either); with neither, the stream is Apache's to the byte.
`rocketrio_protocol/ha/link.py` defines the bytes. An attacker between the two can cut the connection, and read what TLS
does not hide, but can neither change nor add anything.

Invariant: a peer that proved nothing gets no byte of the log, and never counts as a slave.
Invariant: the secret never leaves the process, and each end proves that it knows it.
Invariant: a slave follows, or asks, only a broker of its name at the address that it dialled.
Unlike Java: Apache's replication port feeds every client.
"""

import hmac
import logging
import secrets
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from typing import Final

import attrs
import trio

from rocketrio_broker.ha.errors import LinkRefusedError
from rocketrio_broker.ha.sealed import SealedTransport
from rocketrio_protocol.errors import Error, NotReachable, RemoteProtocolError
from rocketrio_protocol.ha.link import (
    LINK_HEAD_SIZE,
    LINK_MAGIC,
    NONCE_SIZE,
    PROOF_SIZE,
    End,
    FrameOpener,
    FrameSealer,
    LinkHello,
    decode_hello,
    derive_keys,
    encode_hello,
    hello_size,
)
from rocketrio_protocol.remoting.ports import CONNECT_TIMEOUT, Dial, Transport, split_addr
from rocketrio_protocol.remoting.streams import StreamTransport, TransportStream

logger = logging.getLogger("rocketrio_broker.ha")

HANDSHAKE_LIMIT: Final = 5.0
"""Seconds both ends have to prove who they are."""

_RECEIVE_SIZE: Final = 64 << 10
_WASTE_SIZE: Final = 4096  # bytes per read; drops what a refused peer has already sent
_LAST_WORD_LIMIT: Final = 1.0  # seconds until the connection is closed anyway
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
    """What this broker requires of the other end of a replication connection."""

    secret: bytes | None = attrs.field(default=None, repr=False)
    server_context: ssl.SSLContext | None = None
    """How a master proves its identity, and checks slaves; None: no TLS."""
    client_context: ssl.SSLContext | None = None
    """How a slave proves its identity, and checks its master."""
    broker_name: str = ""
    """The name of this broker: peers of another name are refused, and not followed."""
    address: str = ""
    """The address at which this broker serves its log, as it announces it."""
    fixed_address: str | None = None
    """An address that an operator configured: the broker there may announce a different address."""
    new_nonce: NewNonce = secrets.token_bytes
    """Returns random bytes that are never repeated."""

    @property
    def is_proof_asked(self) -> bool:
        """Whether peers must prove that they belong to this broker's name, by the secret or by a certificate.

        If so, the other end of a connection from `accept`, `connect` or a `secured_dial` has proved it.
        """
        return self.secret is not None or self.server_context is not None

    def warn_if_open(self) -> None:
        """Log a warning if hosts other than this machine can have the log, and acknowledge it, without a proof."""
        if not self.is_proof_asked and not _is_loopback(self.address):
            logger.warning(
                "replication is open: any host that reaches this address gets the whole log, and its acknowledgements "
                "are trusted addr=%s remedy=set ha_secret_file or ha_tls_* on all brokers of this name",
                self.address,
            )

    async def accept(self, transport: Transport) -> Transport:
        """Do the master's part, and return the connection to use from now on.

        Raises LinkRefusedError or NotReachable; on any error and on a cancel the connection is closed.
        """
        return await self._secured(transport, self._meet_slave, self.server_context, is_master=True)

    async def connect(self, transport: Transport, dialled: str) -> Transport:
        """Do the slave's part on a connection to the address `dialled`, as `accept` does the master's."""
        meet = partial(self._meet_master, dialled=dialled)
        return await self._secured(transport, meet, self.client_context, is_master=False)

    async def _secured(
        self,
        transport: Transport,
        meet: Callable[[Transport], Awaitable[Transport]],
        context: ssl.SSLContext | None,
        *,
        is_master: bool,
    ) -> Transport:
        if not self.is_proof_asked:
            return transport
        addr = transport.remote_addr
        try:
            with trio.move_on_after(HANDSHAKE_LIMIT):
                if context is not None:
                    transport = await _with_tls(transport, context, is_master=is_master)
                return await meet(transport)
            raise LinkRefusedError(
                f"The other end has not proved its identity within {HANDSHAKE_LIMIT:g} s",
                broker_addr=addr,
            )
        except BaseException:
            await transport.aclose()
            raise

    async def _meet_slave(self, transport: Transport) -> Transport:
        magic = await _receive_exactly(transport, len(LINK_MAGIC))
        if magic != LINK_MAGIC:
            raise LinkRefusedError(
                "The slave has no secret, or is not a rocketrio broker: nothing was sent to it",
                broker_addr=transport.remote_addr,
                remedy=_SECRET_REMEDY,
            )
        own = self._hello("master", self.address)
        await transport.send_all(own)
        theirs, hello = await _receive_hello(transport, "slave")
        self._check_name(hello, transport.remote_addr)
        if self.secret is None:
            return transport
        keys = derive_keys(self.secret, own + theirs)
        proof = await _receive_exactly(transport, PROOF_SIZE)
        if not hmac.compare_digest(proof, keys.slave_proof):
            raise LinkRefusedError(
                "The slave has another secret: nothing was sent to it",
                broker_addr=transport.remote_addr,
                remedy=_SECRET_REMEDY,
            )
        await transport.send_all(keys.master_proof)
        sealer, opener = FrameSealer(keys.master_stream), FrameOpener(keys.slave_stream)
        return SealedTransport(transport, sealer, opener)

    async def _meet_master(self, transport: Transport, *, dialled: str) -> Transport:
        await transport.send_all(LINK_MAGIC)
        theirs, hello = await _receive_hello(transport, "master")
        self._check_name(hello, dialled)
        if hello.address != dialled and dialled != self.fixed_address:
            raise LinkRefusedError(
                f"The broker says that it is at {hello.address!r}, and {dialled} was dialled",
                broker_addr=dialled,
                remedy="The name server may list a wrong address. If this address is right, "
                "set ha_address there to it, or ha_master_address here",
            )
        own = self._hello("slave", dialled)
        if self.secret is None:
            await transport.send_all(own)
            return transport
        keys = derive_keys(self.secret, theirs + own)
        await transport.send_all(own + keys.slave_proof)
        proof = await _receive_exactly(
            transport, PROOF_SIZE, "proving that it has the same secret, and not another secret"
        )
        if not hmac.compare_digest(proof, keys.master_proof):
            raise LinkRefusedError(
                "The master has another secret",
                broker_addr=dialled,
                remedy=_SECRET_REMEDY,
            )
        sealer, opener = FrameSealer(keys.slave_stream), FrameOpener(keys.master_stream)
        return SealedTransport(transport, sealer, opener)

    def _hello(self, end: End, address: str) -> bytes:
        return encode_hello(
            LinkHello(
                end=end,
                broker_name=self.broker_name,
                address=address,
                nonce=self.new_nonce(NONCE_SIZE),
            )
        )

    def _check_name(self, hello: LinkHello, addr: str) -> None:
        if hello.broker_name != self.broker_name:
            raise LinkRefusedError(
                f"The other end is a broker of the name {hello.broker_name!r}, this one's is {self.broker_name!r}",
                broker_addr=addr,
                remedy="The name server may list a wrong address; "
                "a slave has the broker_name of its master",
            )


def secured_dial(dial: Dial, security: LinkSecurity) -> Dial:
    """Return a function that dials like `dial`, and returns a connection once the other end has proved its identity."""
    if not security.is_proof_asked:
        return dial

    async def dial_secured(addr: str, *, timeout: float = CONNECT_TIMEOUT) -> Transport:
        return await security.connect(await dial(addr, timeout=timeout), addr)

    return dial_secured


def _is_loopback(addr: str) -> bool:
    host, _ = split_addr(addr)
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


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
    """Read and drop what the other end sends: closing with unread bytes would look like a broken network to it."""
    buffer = memoryview(bytearray(_WASTE_SIZE))
    with trio.move_on_after(_LAST_WORD_LIMIT), suppress(Error):
        while await transport.receive_into(buffer):
            pass


async def _receive_hello(transport: Transport, end: End) -> tuple[bytes, LinkHello]:
    """Receive a hello; return its bytes, and its content."""
    head = await _receive_exactly(transport, LINK_HEAD_SIZE)
    try:
        body = await _receive_exactly(transport, hello_size(head))
        return head + body, decode_hello(body, end)
    except RemoteProtocolError as error:
        raise LinkRefusedError(
            error.what, broker_addr=transport.remote_addr, remedy=_SECRET_REMEDY
        ) from error


async def _receive_exactly(
    transport: Transport, size: int, instead_of: str = "proving its identity"
) -> bytes:
    return await receive_exactly(transport, size, instead_of=instead_of, remedy=_SECRET_REMEDY)


async def receive_exactly(
    transport: Transport, size: int, *, instead_of: str, remedy: str | None = None
) -> bytes:
    """Receive `size` bytes of a handshake; memory grows with the bytes received, not with a size that the peer claims.

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
