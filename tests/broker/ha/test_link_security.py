"""The replication link: who is let in, and what others can read of it (`ha/link_security.py`)."""

import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trustme
from tests.broker.ha.support import FILE_SIZE, MASTER, MASTER_HA, REPORT, SLAVE, RawPeer
from trio.testing import MockClock

from rocketrio_broker.ha.errors import LinkRefusedError
from rocketrio_broker.ha.link_security import (
    HANDSHAKE_LIMIT,
    MAGIC,
    SECRET_SIZE_MIN,
    LinkSecurity,
    load_link_security,
    secured_dial,
)
from rocketrio_protocol.errors import ConfigError, Error, NotReachable, RemoteProtocolError
from rocketrio_protocol.ha import ReportDecoder
from rocketrio_protocol.remoting.memory_network import MemoryNetwork
from rocketrio_protocol.remoting.ports import Transport

SECRET = b"correct horse battery staple"
Secured = Callable[[Transport], Awaitable[Transport]]


class Wire(Transport):
    """A transport that remembers what went over it."""

    def __init__(self, transport: Transport) -> None:
        self.local_addr, self.remote_addr = transport.local_addr, transport.remote_addr
        self.seen = bytearray()
        self._transport = transport

    async def receive_into(self, buffer: memoryview) -> int:
        size = await self._transport.receive_into(buffer)
        self.seen += buffer[:size]
        return size

    def send_nowait(self, data: bytes | bytearray | memoryview) -> int:
        return 0

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self.seen += data
        await self._transport.send_all(data)

    async def aclose(self) -> None:
        await self._transport.aclose()


@asynccontextmanager
async def both_ends() -> AsyncGenerator[tuple[Transport, Wire]]:
    """The master's end and the slave's of one connection."""
    network = MemoryNetwork()
    listener = await network.host(MASTER).listen(MASTER_HA)
    slave = Wire(await network.host(SLAVE).dial(MASTER_HA))
    master = await listener.accept()
    yield master, slave
    for end in (slave, master):
        await end.aclose()


async def outcome(secure: Secured, end: Transport) -> Transport | Error:
    try:
        return await secure(end)
    except Error as error:
        return error


async def meet(
    master: LinkSecurity, slave: LinkSecurity, ends: tuple[Transport, Transport]
) -> list[Transport | Error]:
    """What each end makes of the other, the master first."""
    results: dict[int, Transport | Error] = {}

    async def at(number: int, secure: Secured) -> None:
        results[number] = await outcome(secure, ends[number])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(at, 0, master.accept)
        nursery.start_soon(at, 1, slave.connect)
    return [results[0], results[1]]


async def master_meets(
    security: LinkSecurity, master: Transport, act: Callable[[], Awaitable[None]]
) -> Transport | Error:
    """What the master makes of a slave that does this."""
    results: list[Transport | Error] = []

    async def accept() -> None:
        results.append(await outcome(security.accept, master))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(accept)
        await act()
    return results[0]


async def exchange(first: Transport, second: Transport) -> None:
    """Bytes pass unharmed, both ways."""
    for sender, receiver in ((first, second), (second, first)):
        data = bytes(range(256)) * 300
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sender.send_all, data)
            received = bytearray()
            buffer = memoryview(bytearray(8192))
            while len(received) < len(data):
                received += buffer[: await receiver.receive_into(buffer)]
        assert received == data


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


def with_tls(authority: trustme.CA, folder: Path, secret: Path | None = None) -> LinkSecurity:
    """A broker's settings, with a certificate of this authority."""
    folder.mkdir(exist_ok=True)
    authority.cert_pem.write_to_path(folder / "authority.pem")
    authority.issue_cert("broker-a").private_key_and_cert_chain_pem.write_to_path(
        folder / "broker.pem"
    )
    return load_link_security(
        secret_file=secret,
        certificate_file=folder / "broker.pem",
        authority_file=folder / "authority.pem",
    )


async def test_ends_with_one_secret_trust_each_other(autojump_clock: MockClock) -> None:
    security = LinkSecurity(SECRET)
    async with both_ends() as ends:
        master, slave = await meet(security, security, ends)
        assert not isinstance(master, Error)
        assert not isinstance(slave, Error)
        await exchange(master, slave)
        assert SECRET not in ends[1].seen


async def test_another_secret_is_refused_by_both(autojump_clock: MockClock) -> None:
    async with both_ends() as ends:
        master, slave = await meet(
            LinkSecurity(SECRET), LinkSecurity(b"a guess of twenty bytes"), ends
        )
        assert isinstance(slave, LinkRefusedError)
        assert "another secret" in str(slave)
        # The slave, which was answered wrongly, has proved nothing itself: it went.
        assert isinstance(master, NotReachable)


async def test_slave_that_guesses_the_last_proof_gets_nothing(autojump_clock: MockClock) -> None:
    async with both_ends() as (master, slave):
        peer = RawPeer(slave)

        async def guess() -> None:
            await slave.send_all(MAGIC + bytes(32))
            assert len(await peer.read(64)) == 64
            await slave.send_all(bytes(32))
            assert await peer.read(1) == b""

        refusal = await master_meets(LinkSecurity(SECRET), master, guess)
        assert isinstance(refusal, LinkRefusedError)
        assert "it got nothing" in str(refusal)


async def test_a_proof_heard_before_is_worth_nothing(autojump_clock: MockClock) -> None:
    security = LinkSecurity(SECRET)
    async with both_ends() as ends:
        await meet(security, security, ends)
        heard = bytes(ends[1].seen)
    async with both_ends() as (master, slave):

        async def say_it_again() -> None:
            # What the slave said then: magic and nonce, and its proof after the master's answer.
            await slave.send_all(heard[:40] + heard[-32:])
            await RawPeer(slave).wait_ended()

        assert isinstance(await master_meets(security, master, say_it_again), LinkRefusedError)


async def test_apache_slave_gets_nothing_from_a_master_with_a_secret(
    autojump_clock: MockClock,
) -> None:
    async with both_ends() as (master, slave):

        async def report() -> None:
            peer = RawPeer(slave)
            await peer.report(FILE_SIZE)
            assert await peer.read(1) == b""

        assert "knows of no secret" in str(await master_meets(LinkSecurity(SECRET), master, report))


async def test_a_silent_peer_is_dropped_after_the_limit(autojump_clock: MockClock) -> None:
    async with both_ends() as (master, _):
        refusal = await outcome(LinkSecurity(SECRET).accept, master)
        assert isinstance(refusal, LinkRefusedError)
        assert trio.current_time() == HANDSHAKE_LIMIT


async def test_greeting_counts_as_no_acknowledgement_anywhere() -> None:
    """A 5.x master takes the greatest report of any slave for acknowledged, unchecked; ours drops who sends this."""
    async with both_ends() as (master, slave), trio.open_nursery() as nursery:
        greater = LinkSecurity(SECRET, new_nonce=lambda size: b"\x7f" * size)
        nursery.start_soon(outcome, greater.connect, slave)
        greeting = await RawPeer(master).read(len(MAGIC) + 32)
        await master.aclose()
    assert greeting.startswith(MAGIC)
    reports = REPORT.iter_unpack(greeting)  # a master may have read up to any of them
    assert all(report < 0 for (report,) in reports)
    with pytest.raises(RemoteProtocolError):
        ReportDecoder().feed(greeting)


async def test_tls_hides_what_is_said(
    autojump_clock: MockClock, authority: trustme.CA, tmp_path: Path
) -> None:
    security = with_tls(authority, tmp_path)
    async with both_ends() as ends:
        master, slave = await meet(security, security, ends)
        assert not isinstance(master, Error), master
        assert not isinstance(slave, Error), slave
        await exchange(master, slave)
        assert bytes(range(256)) not in ends[1].seen


async def test_certificate_of_another_authority_gets_nothing(
    autojump_clock: MockClock, authority: trustme.CA, tmp_path: Path
) -> None:
    ours, theirs = with_tls(authority, tmp_path / "a"), with_tls(trustme.CA(), tmp_path / "b")
    async with both_ends() as ends:
        master, slave = await meet(ours, theirs, ends)
        assert isinstance(master, Error)
        assert isinstance(slave, LinkRefusedError)
        assert "certificate" in str(slave)


async def test_slave_hears_that_its_certificate_is_refused(
    autojump_clock: MockClock, authority: trustme.CA, tmp_path: Path
) -> None:
    """Not before it reads: in TLS 1.3 its end is done when the master looks at the certificate."""
    ours, theirs = with_tls(authority, tmp_path / "a"), with_tls(trustme.CA(), tmp_path / "b")
    assert theirs.client_context is not None
    theirs.client_context.load_verify_locations(tmp_path / "a" / "authority.pem")

    async def follow(end: Transport) -> Transport:
        secured = await theirs.connect(end)
        await secured.send_all(REPORT.pack(0))
        assert await secured.receive_into(memoryview(bytearray(1)))
        return secured

    async with both_ends() as (master, slave):
        results: list[Transport | Error] = []

        async def slave_end() -> None:
            results.append(await outcome(follow, slave))
            await slave.aclose()

        refusal = await master_meets(ours, master, slave_end)
    assert isinstance(refusal, LinkRefusedError)
    assert isinstance(results[0], NotReachable)
    assert "certificate; its log says which" in str(results[0])


async def test_plain_slave_gets_nothing_from_a_master_with_tls(
    autojump_clock: MockClock, authority: trustme.CA, tmp_path: Path
) -> None:
    security = with_tls(authority, tmp_path)
    async with both_ends() as (master, slave):

        async def report() -> None:
            peer = RawPeer(slave)
            await peer.report(0)
            await peer.wait_ended()

        assert isinstance(await master_meets(security, master, report), LinkRefusedError)


async def test_secret_inside_tls(
    autojump_clock: MockClock, authority: trustme.CA, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_bytes(SECRET + b"\n")
    security = with_tls(authority, tmp_path, tmp_path / "secret")
    async with both_ends() as ends:
        master, slave = await meet(security, security, ends)
        assert not isinstance(master, Error)
        assert not isinstance(slave, Error)
        assert MAGIC not in ends[1].seen


async def test_dial_without_security_is_the_dial_itself() -> None:
    dial = MemoryNetwork().host(SLAVE).dial
    assert secured_dial(dial, LinkSecurity()) is dial


def test_secret_is_not_shown() -> None:
    assert "correct" not in repr(LinkSecurity(SECRET))


def test_files_that_are_missing_or_wrong_are_named(tmp_path: Path, authority: trustme.CA) -> None:
    with pytest.raises(ConfigError, match=r"ha_secret_file .*none cannot be read"):
        load_link_security(secret_file=tmp_path / "none")
    (tmp_path / "short").write_text("x" * (SECRET_SIZE_MIN - 1))
    with pytest.raises(ConfigError, match="openssl rand"):
        load_link_security(secret_file=tmp_path / "short")
    (tmp_path / "text").write_text("no certificate")
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    with pytest.raises(ConfigError, match=r"ha_tls_certificate_file .*text cannot be used"):
        load_link_security(
            certificate_file=tmp_path / "text", authority_file=tmp_path / "authority.pem"
        )
    with pytest.raises(ConfigError, match="ha_tls_authority_file"):
        load_link_security(certificate_file=tmp_path / "text")


def test_old_tls_is_not_spoken(authority: trustme.CA, tmp_path: Path) -> None:
    security = with_tls(authority, tmp_path)
    for context in (security.server_context, security.client_context):
        assert context is not None
        assert context.minimum_version is ssl.TLSVersion.TLSv1_3
        assert context.verify_mode is ssl.CERT_REQUIRED
