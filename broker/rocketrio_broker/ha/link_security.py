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
from functools import partial
from typing import Final

import attrs
import trio

from rocketrio_broker.ha.errors import LinkRefusedError
from rocketrio_broker.ha.sealed import SealedTransport
from rocketrio_protocol.errors import NotReachableError, RemoteProtocolError
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
from rocketrio_protocol.remoting.ports import (
    CONNECT_TIMEOUT,
    Dial,
    Transport,
    is_loopback,
    split_addr,
)
from rocketrio_protocol.remoting.reloaded_files import ReloadedFiles
from rocketrio_protocol.remoting.tls import OneAtATime, TlsTransport, accept_tls, connect_tls

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
    peer_names: frozenset[str] = frozenset()
    """The names of which the other end's certificate must have one; none: any certificate of the authority counts."""
    files: ReloadedFiles["LinkSecurity"] | None = None
    """The files with secret, certificates and keys, which may have changed since."""
    _turn: OneAtATime = attrs.field(factory=OneAtATime, eq=False, repr=False)
    """Computes one handshake in each tick, however many hosts knock at once."""

    def with_files(self, files: ReloadedFiles["LinkSecurity"]) -> "LinkSecurity":
        """Return the same with the secret, certificates and keys of these files."""
        found = files.current
        return attrs.evolve(
            self,
            secret=found.secret,
            server_context=found.server_context,
            client_context=found.client_context,
            files=files,
        )

    @property
    def _latest(self) -> "LinkSecurity":
        """The same with the secret, certificates and keys that the files have now."""
        return self if self.files is None else self.with_files(self.files)

    @property
    def is_proof_asked(self) -> bool:
        """Whether peers must prove that they belong to this broker's name, by the secret or by a certificate.

        If so, the other end of a connection from `accept`, `connect` or a `secured_dial` has proved it.
        """
        return self.secret is not None or self.server_context is not None

    def warn_if_open(self) -> None:
        """Log a warning if hosts other than this machine can have the log, and acknowledge it, without a proof."""
        if not self.is_proof_asked and not is_loopback(self.address):
            logger.warning(
                "replication is open, any host that reaches this address gets the whole log, and its acknowledgements "
                "are trusted addr=%s remedy=%s",
                self.address,
                "set ha_secret_file or ha_tls_* on all brokers of this name",
            )

    async def accept(self, transport: Transport) -> Transport:
        """Do the master's part, and return the connection to use from now on.

        Raises LinkRefusedError or NotReachableError; on any error and on a cancel the connection is closed.
        """
        now = self._latest
        with_tls = None
        if now.server_context is not None:
            with_tls = partial(accept_tls, context=now.server_context, turn=self._turn)
        return await now._secured(transport, now._meet_slave, with_tls)

    async def connect(self, transport: Transport, dialled: str) -> Transport:
        """Do the slave's part on a connection to the address `dialled`, as `accept` does the master's."""
        now = self._latest
        with_tls = None
        if now.client_context is not None:
            with_tls = partial(connect_tls, context=now.client_context, host=split_addr(dialled)[0])
        meet = partial(now._meet_master, dialled=dialled)
        return await now._secured(transport, meet, with_tls)

    async def _secured(
        self,
        transport: Transport,
        meet: Callable[[Transport], Awaitable[Transport]],
        with_tls: Callable[[Transport], Awaitable[TlsTransport]] | None,
    ) -> Transport:
        if not self.is_proof_asked:
            return transport
        addr = transport.remote_addr
        try:
            with trio.move_on_after(HANDSHAKE_LIMIT):
                if with_tls is not None:
                    transport = await self._checked(with_tls(transport), addr)
                return await meet(transport)
            raise LinkRefusedError(
                f"The other end has not proved its identity within {HANDSHAKE_LIMIT:g} s",
                broker_addr=addr,
            )
        except BaseException:
            await transport.aclose()
            raise

    async def _checked(self, opening: Awaitable[TlsTransport], addr: str) -> TlsTransport:
        """Wait for the end of the handshake, and check whose certificate the other end has."""
        try:
            transport = await opening
        except NotReachableError as error:
            raise LinkRefusedError(
                f"No TLS connection ({error.what})", broker_addr=addr, remedy=_TLS_REMEDY
            ) from error
        names = _names(transport)
        if self.peer_names and not names & self.peer_names:
            await transport.aclose()
            raise LinkRefusedError(
                f"The other end's certificate is that of {', '.join(sorted(names)) or 'no name'}",
                broker_addr=addr,
                remedy="Add a name of it to ha_tls_peer_names, if it belongs to a broker of this name",
            )
        return transport

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
        # The slave proves first: one without the secret gets nothing computed from it, by which guesses could be tried.
        if not hmac.compare_digest(proof, keys.slave_proof):
            raise LinkRefusedError(
                "The slave has another secret: nothing was sent to it",
                broker_addr=transport.remote_addr,
                remedy=_SECRET_REMEDY,
            )
        await transport.send_all(keys.master_proof)
        sealer, opener = FrameSealer(keys.master_stream), FrameOpener(keys.slave_stream)
        return SealedTransport(transport, sealer, opener, keys.answers)

    async def _meet_master(self, transport: Transport, *, dialled: str) -> Transport:
        await transport.send_all(LINK_MAGIC)
        theirs, hello = await _receive_hello(transport, "master")
        self._check_name(hello, dialled)
        # A host at a wrong address may pass all on to the true master. The hello of that one names another address, and
        # cannot be changed, because the keys depend on it.
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
        return SealedTransport(transport, sealer, opener, keys.answers)

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


def warned_dial(dial: Dial) -> Dial:
    """Return a function that dials like `dial`, and warns once of each master that proves nothing and is elsewhere."""
    warned = ""

    async def dial_warned(addr: str, *, timeout: float = CONNECT_TIMEOUT) -> Transport:
        nonlocal warned
        transport = await dial(addr, timeout=timeout)
        if addr != warned and not is_loopback(addr):
            warned = addr
            logger.warning(
                "this slave copies what the host at the master's address sends, without a proof that it is the master "
                "master=%s remedy=%s",
                addr, "set ha_secret_file or ha_tls_* on all brokers of this name",
            )  # fmt: skip
        return transport

    return dial_warned


def secured_dial(dial: Dial, security: LinkSecurity) -> Dial:
    """Return a function that dials like `dial`, and returns a connection once the other end has proved its identity."""
    if not security.is_proof_asked:
        return dial

    async def dial_secured(addr: str, *, timeout: float = CONNECT_TIMEOUT) -> Transport:
        return await security.connect(await dial(addr, timeout=timeout), addr)

    return dial_secured


def _names(transport: TlsTransport) -> frozenset[str]:
    """Return the names in the other end's certificate: its subject's common name and the alternative names."""
    certificate = transport.peer_certificate()
    subject = [pair for part in certificate.get("subject", ()) for pair in part]
    alternatives = certificate.get("subjectAltName", ())
    return frozenset(
        [value for key, value in subject if key == "commonName"]
        + [value for _, value in alternatives]
    )


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

    Raises NotReachableError, which names what the other end closed the connection `instead_of`.
    """
    data = bytearray()
    buffer = memoryview(bytearray(min(size, _RECEIVE_SIZE)))
    while len(data) < size:
        count = await transport.receive_into(buffer[: size - len(data)])
        if not count:
            raise NotReachableError(
                f"The other end closed the connection instead of {instead_of}",
                broker_addr=transport.remote_addr,
                remedy=remedy,
            )
        data += buffer[:count]
    return bytes(data)
