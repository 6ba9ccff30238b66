"""The replication link: who is let in, and what others can read of it (`ha/link_security.py`)."""

import random
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trustme
from tests.support.replication import (
    FILE_SIZE,
    MASTER,
    MASTER_HA,
    REPORT,
    SLAVE,
    RawPeer,
    secret_file,
    write_private,
)
from tests.support.transports import Forwarding
from trio.testing import MockClock

from rocketrio_broker.ha.errors import LinkRefusedError
from rocketrio_broker.ha.link_files import load_link_security
from rocketrio_broker.ha.link_security import (
    HANDSHAKE_LIMIT,
    LinkSecurity,
    secured_dial,
    warned_dial,
)
from rocketrio_broker.testing.memory_network import MemoryNetwork
from rocketrio_protocol.errors import Error, NotReachableError, RemoteProtocolError
from rocketrio_protocol.frame import Body
from rocketrio_protocol.ha.link import (
    LINK_HEAD_SIZE,
    LINK_HELLO_SIZE_LIMIT,
    LINK_MAGIC,
    NONCE_SIZE,
    PROOF_SIZE,
    End,
    LinkHello,
    decode_hello,
    derive_keys,
    encode_hello,
    hello_size,
)
from rocketrio_protocol.ha.stream import ReportDecoder
from rocketrio_protocol.remoting.ports import SystemWallClock, Transport
from rocketrio_protocol.remoting.reloaded_files import ReloadedFiles

SECRET = b"correct horse battery staple"
SECURITY = LinkSecurity(SECRET, broker_name="broker-a", address=MASTER_HA)
Secured = Callable[[Transport], Awaitable[Transport]]


@attrs.define(eq=False)
class Wire(Forwarding):
    """A transport that remembers what went over it."""

    seen: bytearray = attrs.Factory(bytearray)

    async def receive_into(self, buffer: memoryview) -> int:
        size = await self.inner.receive_into(buffer)
        self.seen += buffer[:size]
        return size

    def send_nowait(self, data: Body) -> int:
        return 0

    async def send_all(self, data: Body) -> None:
        self.seen += data
        await self.inner.send_all(data)


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
        nursery.start_soon(at, 1, partial(slave.connect, dialled=MASTER_HA))
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


def with_tls(authority: trustme.CA, folder: Path, secret: Path | None = None) -> LinkSecurity:
    """A broker's settings, with a certificate of this authority."""
    folder.mkdir(exist_ok=True)
    authority.cert_pem.write_to_path(folder / "authority.pem")
    write_private(authority.issue_cert("broker-a"), folder / "broker.pem")
    security = load_link_security(
        secret_file=secret,
        certificate_file=folder / "broker.pem",
        authority_file=folder / "authority.pem",
    )
    return attrs.evolve(security, broker_name="broker-a", address=MASTER_HA)


async def test_ends_with_one_secret_trust_each_other(autojump_clock: MockClock) -> None:
    async with both_ends() as ends:
        master, slave = await meet(SECURITY, SECURITY, ends)
        assert not isinstance(master, Error)
        assert not isinstance(slave, Error)
        await exchange(master, slave)
        assert SECRET not in ends[1].seen


async def test_another_secret_is_refused_by_both(autojump_clock: MockClock) -> None:
    async with both_ends() as ends:
        guessing = attrs.evolve(SECURITY, secret=b"a guess of twenty bytes")
        master, slave = await meet(SECURITY, guessing, ends)
        assert isinstance(master, LinkRefusedError)
        assert "another secret: nothing was sent" in str(master)
        assert isinstance(slave, NotReachableError)
        assert "another secret" in str(slave)


async def read_hello(peer: RawPeer) -> bytes:
    head = await peer.read(LINK_HEAD_SIZE)
    return head + await peer.read(hello_size(head))


def hello_of(name: str = "broker-a", end: End = "slave") -> bytes:
    """What a peer says of itself."""
    return encode_hello(
        LinkHello(end=end, broker_name=name, address=MASTER_HA, nonce=bytes(NONCE_SIZE))
    )


async def test_slave_proves_the_secret_first_and_one_that_guesses_gets_no_proof(
    autojump_clock: MockClock,
) -> None:
    async with both_ends() as (master, slave):
        peer = RawPeer(slave)

        async def guess() -> None:
            await slave.send_all(LINK_MAGIC)
            said = decode_hello((await read_hello(peer))[LINK_HEAD_SIZE:], "master")
            assert said.broker_name == "broker-a"
            await slave.send_all(hello_of() + bytes(PROOF_SIZE))
            assert await peer.read(1) == b""

        refusal = await master_meets(SECURITY, master, guess)
        assert isinstance(refusal, LinkRefusedError)
        assert "nothing was sent to it" in str(refusal)


async def test_master_that_guesses_the_proof_is_not_followed(autojump_clock: MockClock) -> None:
    """Whatever the slave has proved to it, it cannot say it back: each end has a proof of its own."""
    async with both_ends() as (master, slave):
        peer = RawPeer(master)
        results: list[Transport | Error] = []

        async def follow() -> None:
            results.append(await outcome(partial(SECURITY.connect, dialled=MASTER_HA), slave))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            assert await peer.read(len(LINK_MAGIC)) == LINK_MAGIC
            await master.send_all(hello_of(end="master"))
            await read_hello(peer)
            await master.send_all(await peer.read(PROOF_SIZE))
        assert isinstance(results[0], LinkRefusedError)


async def test_replayed_proof_is_refused(autojump_clock: MockClock) -> None:
    async with both_ends() as ends:
        await meet(SECURITY, SECURITY, ends)
        heard = bytes(ends[1].seen)
    hello = heard.index(LINK_MAGIC, heard.index(b'"master"'))
    async with both_ends() as (master, slave):

        async def say_it_again() -> None:
            # What the slave said then, its proof after the master's hello.
            await slave.send_all(LINK_MAGIC)
            await read_hello(RawPeer(slave))
            await slave.send_all(heard[hello:-PROOF_SIZE])
            await RawPeer(slave).wait_ended()

        refusal = await master_meets(SECURITY, master, say_it_again)
        assert "another secret" in str(refusal)


async def test_slave_of_another_name_gets_nothing_though_it_knows_the_secret(
    autojump_clock: MockClock,
) -> None:
    async with both_ends() as (master, slave):
        peer = RawPeer(slave)

        async def ask() -> None:
            await slave.send_all(LINK_MAGIC)
            own = hello_of("broker-b")
            keys = derive_keys(SECRET, await read_hello(peer) + own)
            await slave.send_all(own + keys.slave_proof)
            assert await peer.read(1) == b""

        refusal = await master_meets(SECURITY, master, ask)
        assert isinstance(refusal, LinkRefusedError)
        assert "'broker-b', this one's is 'broker-a'" in str(refusal)


async def test_slave_follows_no_master_of_another_name(
    autojump_clock: MockClock, authority: trustme.CA, tmp_path: Path
) -> None:
    for security in (SECURITY, with_tls(authority, tmp_path)):
        async with both_ends() as ends:
            other = attrs.evolve(security, broker_name="broker-b")
            master, slave = await meet(security, other, ends)
            assert isinstance(slave, LinkRefusedError)
            assert "'broker-a', this one's is 'broker-b'" in str(slave)
            assert isinstance(master, NotReachableError)


async def test_slave_follows_no_master_that_is_elsewhere_than_it_dialled(
    autojump_clock: MockClock, authority: trustme.CA, tmp_path: Path
) -> None:
    """The name server has a stranger's address as the master's, and the stranger passes everything on."""
    for security in (SECURITY, with_tls(authority, tmp_path)):
        there = attrs.evolve(security, address="10.0.0.9:10912")
        async with both_ends() as ends:
            _, slave = await meet(there, security, ends)
            assert isinstance(slave, LinkRefusedError)
            assert f"it is at '10.0.0.9:10912', and {MASTER_HA} was dialled" in str(slave)
        async with both_ends() as ends:
            fixed = attrs.evolve(security, fixed_address=MASTER_HA)
            assert not any(isinstance(end, Error) for end in await meet(there, fixed, ends))


async def test_apache_slave_gets_nothing_from_a_master_with_a_secret(
    autojump_clock: MockClock,
) -> None:
    async with both_ends() as (master, slave):

        async def report() -> None:
            peer = RawPeer(slave)
            await peer.report(FILE_SIZE)
            assert await peer.read(1) == b""

        assert "has no secret" in str(await master_meets(SECURITY, master, report))


async def test_apache_master_is_not_followed_by_a_slave_with_a_secret(
    autojump_clock: MockClock,
) -> None:
    async with both_ends() as (master, slave), trio.open_nursery() as nursery:
        nursery.start_soon(RawPeer(master).send_transfer, 0)
        refusal = await outcome(partial(SECURITY.connect, dialled=MASTER_HA), slave)
        assert "or none of them any" in str(refusal)
        # To what was asked of it, it owes nothing.
        assert await RawPeer(master).read(REPORT.size + 1) == LINK_MAGIC


async def test_unauthenticated_peer_receives_only_a_hello(
    autojump_clock: MockClock,
) -> None:
    rng = random.Random(15)
    hello = hello_of()
    for _ in range(200):
        said = bytearray(LINK_MAGIC + hello + bytes(PROOF_SIZE))
        for _ in range(rng.randrange(3)):
            said[rng.randrange(len(said))] = rng.randrange(256)
        async with both_ends() as (master, slave):
            results: list[Transport | Error] = []

            async def accept(master: Transport = master) -> None:
                results.append(await outcome(SECURITY.accept, master))  # noqa: B023 - awaited below

            async with trio.open_nursery() as nursery:
                nursery.start_soon(accept)
                await slave.send_all(said[: rng.randrange(1, len(said) + 1)])
                heard = bytes(await RawPeer(slave).read(1 << 16)) if rng.random() < 0.9 else b""
            assert isinstance(results[0], LinkRefusedError | NotReachableError)
            assert len(heard) <= LINK_HEAD_SIZE + LINK_HELLO_SIZE_LIMIT


async def test_a_silent_peer_is_dropped_after_the_limit(autojump_clock: MockClock) -> None:
    async with both_ends() as (master, _):
        refusal = await outcome(SECURITY.accept, master)
        assert isinstance(refusal, LinkRefusedError)
        assert trio.current_time() == HANDSHAKE_LIMIT


def test_greeting_of_a_secured_link_is_no_acknowledgement() -> None:
    """A 5.x master takes the greatest report of any slave for acknowledged, unchecked; ours drops who sends this."""
    (report,) = REPORT.unpack(LINK_MAGIC)
    assert report < 0
    with pytest.raises(RemoteProtocolError):
        ReportDecoder().feed(LINK_MAGIC)


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


async def test_slave_logs_that_its_certificate_is_refused(
    autojump_clock: MockClock, authority: trustme.CA, tmp_path: Path
) -> None:
    """Not before it reads: in TLS 1.3 its end is done when the master looks at the certificate."""
    ours, theirs = with_tls(authority, tmp_path / "a"), with_tls(trustme.CA(), tmp_path / "b")
    assert theirs.client_context is not None
    theirs.client_context.load_verify_locations(tmp_path / "a" / "authority.pem")

    async def follow(end: Transport) -> Transport:
        return await theirs.connect(end, MASTER_HA)

    async with both_ends() as (master, slave):
        results: list[Transport | Error] = []

        async def slave_end() -> None:
            results.append(await outcome(follow, slave))
            await slave.aclose()

        refusal = await master_meets(ours, master, slave_end)
    assert isinstance(refusal, LinkRefusedError)
    assert isinstance(results[0], NotReachableError)
    assert "unknown ca" in str(results[0])


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


@pytest.mark.parametrize(
    ("wanted", "is_accepted"),
    [({"broker-a"}, True), ({"other", "broker-a"}, True), ({"other"}, False), (set(), True)],
)
async def test_certificate_must_have_one_of_the_names_that_are_configured(
    autojump_clock: MockClock,
    authority: trustme.CA,
    tmp_path: Path,
    wanted: set[str],
    is_accepted: bool,
) -> None:
    security = attrs.evolve(with_tls(authority, tmp_path), peer_names=frozenset(wanted))
    async with both_ends() as ends:
        master, slave = await meet(security, security, ends)
        assert isinstance(slave, LinkRefusedError) is not is_accepted
        assert isinstance(master, Error) is not is_accepted
        if not is_accepted:
            assert "certificate is that of broker-a" in str(slave)
            assert "ha_tls_peer_names" in str(slave)


async def test_link_uses_files_that_were_replaced_since(
    autojump_clock: MockClock, authority: trustme.CA, tmp_path: Path
) -> None:
    secret = secret_file(tmp_path / "secret")

    with_tls(authority, tmp_path)

    def load() -> LinkSecurity:
        security = load_link_security(
            secret_file=secret,
            certificate_file=tmp_path / "broker.pem",
            authority_file=tmp_path / "authority.pem",
        )
        return attrs.evolve(security, broker_name="broker-a", address=MASTER_HA)

    files = ReloadedFiles(
        load,
        [secret, tmp_path / "broker.pem"],
        what="replication",
        wall_clock=SystemWallClock(),
        run_blocking=inline,
    )
    ours = attrs.evolve(load(), files=files)
    former = load()
    secret_file(secret, "another secret of enough bytes")
    assert isinstance(files.current, LinkSecurity)
    await files.look()
    async with both_ends() as ends:
        master, slave = await meet(ours, former, ends)
        assert isinstance(slave, Error)
        assert isinstance(master, LinkRefusedError)
    async with both_ends() as ends:
        assert not any(isinstance(end, Error) for end in await meet(ours, load(), ends))


async def test_slave_without_a_proof_warns_once_of_a_master_elsewhere(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    network = MemoryNetwork()
    for addr in (MASTER_HA, "127.0.0.1:10912"):
        await network.host(addr.partition(":")[0]).listen(addr)
    dial = warned_dial(network.host(SLAVE).dial)
    await dial("127.0.0.1:10912")
    assert "without a proof" not in caplog.text
    for _ in range(3):
        await dial(MASTER_HA)
    assert caplog.text.count(f"without a proof that it is the master master={MASTER_HA}") == 1


async def inline(work: Callable[..., Any], *arguments: Any) -> Any:
    return work(*arguments)


async def test_secret_is_proved_inside_tls(
    autojump_clock: MockClock, authority: trustme.CA, tmp_path: Path
) -> None:
    secret = secret_file(tmp_path / "secret", "a long secret\twith blanks\r\n\n")
    security = with_tls(authority, tmp_path, secret)
    assert security.secret == b"a long secret\twith blanks"
    async with both_ends() as ends:
        master, slave = await meet(security, security, ends)
        assert not isinstance(master, Error)
        assert not isinstance(slave, Error)
        assert LINK_MAGIC not in ends[1].seen


async def test_dial_without_security_is_the_dial_itself() -> None:
    dial = MemoryNetwork().host(SLAVE).dial
    assert secured_dial(dial, LinkSecurity()) is dial


def test_secret_is_not_shown() -> None:
    assert "correct" not in repr(LinkSecurity(SECRET))


def test_old_tls_is_not_spoken(authority: trustme.CA, tmp_path: Path) -> None:
    security = with_tls(authority, tmp_path)
    for context in (security.server_context, security.client_context):
        assert context is not None
        assert context.minimum_version is ssl.TLSVersion.TLSv1_3
        assert context.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("security", "is_warned"),
    [
        (LinkSecurity(address="10.0.0.1:10912"), True),
        (LinkSecurity(address="broker.example:10912"), True),
        (LinkSecurity(address="127.0.0.1:10912"), False),
        (LinkSecurity(address="[::1]:10912"), False),
        (LinkSecurity(address="localhost:10912"), False),
        (SECURITY, False),
    ],
)
def test_replication_port_without_protection_is_named_at_the_start(
    caplog: pytest.LogCaptureFixture, security: LinkSecurity, is_warned: bool
) -> None:
    security.warn_if_open()
    assert ("replication is open, any host that reaches this address" in caplog.text) is is_warned
    assert (security.address in caplog.text) is is_warned
