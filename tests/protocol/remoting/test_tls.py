"""TLS under a channel (`remoting/tls.py`): every split of its bytes, full buffers, and ends that break its rules."""

import array
import fcntl
import ssl
import subprocess
import termios
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from random import Random

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.protocol.remoting.networks import (
    ECHO,
    TlsListener,
    echo,
    network_of,
)
from tests.support.tls import HOSTS, authority, client_context, server_context
from tests.support.transports import Forwarding
from trio.testing import MockClock

from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.errors import Error, NotReachableError, TlsError
from rocketrio_protocol.frame import Body, encode_frame
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.pool import open_channel_pool
from rocketrio_protocol.remoting.ports import Transport
from rocketrio_protocol.remoting.reactor import Reactor
from rocketrio_protocol.remoting.server import serve_remoting
from rocketrio_protocol.remoting.tasks import background_nursery
from rocketrio_protocol.remoting.tcp import dial_tcp, listen_tcp
from rocketrio_protocol.remoting.tls import (
    CONTROL_SIZE_LIMIT,
    RECORD_SIZE,
    PolledTlsTransport,
    TlsTransport,
    accept_tls,
    connect_tls,
    tls_dial,
)
from rocketrio_protocol.remoting.tls_files import new_context

SERVER = "10.0.0.1"


@attrs.define(eq=False)
class Narrow(Forwarding):
    """A transport that takes and gives few bytes at a time, as `sizes` says."""

    sizes: Callable[[], int]

    async def receive_into(self, buffer: memoryview) -> int:
        return await self.inner.receive_into(buffer[: max(1, self.sizes())])

    def send_nowait(self, data: Body) -> int:
        return self.inner.send_nowait(memoryview(data)[: self.sizes()])


async def wires(kind: str = "memory") -> tuple[Transport, Transport]:
    """Return both ends of a plain connection: the client's, the server's."""
    network = network_of(kind)
    listener = await network.listen(network.listen_addr)
    client = await network.dial(listener.addr)
    server = await listener.accept()
    listener.close()
    return client, server


async def secured(
    here: Transport,
    there: Transport,
    client: ssl.SSLContext | None = None,
    server: ssl.SSLContext | None = None,
) -> tuple[TlsTransport, TlsTransport]:
    """Shake hands over a plain connection; return the client's end and the server's."""
    accepted: list[TlsTransport] = []

    async def accept() -> None:
        accepted.append(await accept_tls(there, server or server_context()))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(accept)
        connected = await connect_tls(here, client or client_context(), SERVER)
    return connected, accepted[0]


@asynccontextmanager
async def both_ends(
    sizes: Callable[[], int] = lambda: 1 << 30, client: ssl.SSLContext | None = None
) -> AsyncGenerator[tuple[TlsTransport, TlsTransport]]:
    """Open both ends of a connection with TLS in memory."""
    here, there = await wires()
    ends = await secured(Narrow(here, sizes), Narrow(there, sizes), client)
    yield ends
    for end in ends:
        await end.aclose()


async def read_exactly(transport: Transport, size: int, at_once: int = 1 << 16) -> bytes:
    data, buffer = bytearray(), memoryview(bytearray(at_once))
    while len(data) < size:
        count = await transport.receive_into(buffer[: size - len(data)])
        assert count, f"ended after {len(data)} of {size} bytes"
        data += buffer[:count]
    return bytes(data)


async def test_segments_of_one_byte_are_enough_for_handshake_and_data(
    autojump_clock: MockClock,
) -> None:
    async with both_ends(lambda: 1) as (client, server):
        for sender, reader in ((client, server), (server, client)):
            await sender.send_all(b"some words")
            assert await read_exactly(reader, 10) == b"some words"
        assert client.version == "TLSv1.3"


@given(seed=st.integers(0, 2**32), size=st.integers(0, 300_000))
@settings(max_examples=25, deadline=None)
def test_bytes_arrive_once_and_in_order_however_they_are_sent_and_split(
    seed: int, size: int
) -> None:
    rng = Random(seed)
    data = rng.randbytes(size)

    def sizes() -> int:
        return rng.choice((0, 1, 5, 100, 5_000, 70_000, 300_000))

    async def send(transport: TlsTransport) -> None:
        """Send as a channel does: without waiting as far as possible, the rest first in line."""
        sent = 0
        while sent < size:
            if rng.random() < 0.2:
                end = (
                    sent + rng.randrange(size - sent) + 1 if transport_is_clear(transport) else size
                )
                await transport.send_all(data[sent:end])
                sent = end
            else:
                sent += transport.send_nowait(memoryview(data)[sent:])
            await trio.lowlevel.checkpoint()

    async def main() -> None:
        async with both_ends(sizes) as (client, server), trio.open_nursery() as nursery:
            nursery.start_soon(send, client)
            nursery.start_soon(send, server)
            for reader in (client, server):
                assert await read_exactly(reader, size, rng.choice((1_000, 100_000))) == data

    trio.run(main, clock=MockClock(autojump_threshold=0))


def transport_is_clear(transport: TlsTransport) -> bool:
    """Whether no byte is encrypted that must come first in the next data."""
    return not transport._encrypted_size and not transport._unsent


async def test_connections_that_share_a_buffer_get_their_own_bytes(
    autojump_clock: MockClock,
) -> None:
    buffer = memoryview(bytearray(1 << 17))
    wrong: list[bytes] = []

    async def read(transport: TlsTransport, byte: bytes) -> None:
        for _ in range(50):
            size = await transport.receive_into(buffer[:100])
            if bytes(buffer[:size]) != byte * size:
                wrong.append(byte)

    async with both_ends() as (client, server), both_ends() as (other_client, other_server):
        await client.send_all(b"a" * 5000)
        await other_client.send_all(b"b" * 5000)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read, server, b"a")
            nursery.start_soon(read, other_server, b"b")
    assert wrong == []


async def test_sent_bytes_are_reported_only_when_the_transport_below_has_them(
    autojump_clock: MockClock,
) -> None:
    room = 1 << 30

    def sizes() -> int:
        return room

    async with both_ends(sizes) as (client, server):
        room = 0
        assert client.send_nowait(b"x" * 1000) == 0
        room = 500
        assert client.send_nowait(b"x" * 1000) == 0
        room = 1 << 30
        assert client.send_nowait(b"x" * 1000 + b"y" * 10) == 1010
        assert await read_exactly(server, 1010) == b"x" * 1000 + b"y" * 10


async def test_bytes_that_a_read_flushed_are_not_encrypted_again(autojump_clock: MockClock) -> None:
    room = 1 << 30

    async with both_ends(lambda: room, client=tls_1_2()) as (client, server):
        room = 0
        assert client.send_nowait(b"first") == 0
        room = 1 << 30
        assert client._flush()  # As after a read that had to answer.
        assert client.send_nowait(b"first and second") == 16
        assert await read_exactly(server, 16) == b"first and second"


def tls_1_2() -> ssl.SSLContext:
    """Return what an older client uses."""
    older = new_context(ssl.PROTOCOL_TLS_CLIENT)
    authority().configure_trust(older)
    older.maximum_version = ssl.TLSVersion.TLSv1_2
    return older


async def test_large_answer_reaches_a_peer_that_reads_a_kibibyte_at_a_time() -> None:
    listener = await listen_tcp("127.0.0.1:0")
    answer = Random(1).randbytes(1 << 20)

    def big(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        return request.response(body=answer)

    async with background_nursery() as nursery:
        await nursery.start(serve_remoting, [TlsListener(listener)], {ECHO: big})
        peer = await connect_tls(await dial_tcp(listener.addr), client_context(), "127.0.0.1")
        await peer.send_all(
            encode_frame(0, b'{"code":10,"opaque":1,"flag":0,"language":"JAVA","version":1}')
        )
        received, buffer = bytearray(), memoryview(bytearray(1024))
        while not received.endswith(answer[-100:]):
            received += buffer[: await peer.receive_into(buffer)]
        assert received.endswith(answer)
        await peer.aclose()


async def test_both_directions_at_once_with_full_buffers_lose_nothing() -> None:
    network = network_of("tls")
    body = Random(2).randbytes(3 << 20)
    async with background_nursery() as nursery:
        listener = await network.listen(network.listen_addr)
        await nursery.start(serve_remoting, [listener], {ECHO: echo})
        async with open_channel_pool(network.dial) as pool:
            answers: list[bool] = []

            async def ask() -> None:
                answer = await pool.call(
                    listener.addr, RemotingCommand(ECHO, body=body), timeout=30
                )
                answers.append(bytes(answer.body) == body)

            async with trio.open_nursery() as calls:
                for _ in range(8):
                    calls.start_soon(ask)
            assert answers == [True] * 8


async def run_openssl(
    *arguments: str, task_status: trio.TaskStatus[trio.Process] = trio.TASK_STATUS_IGNORED
) -> None:
    await trio.run_process(
        ["openssl", "s_client", *arguments],
        stdin=subprocess.PIPE,
        capture_stdout=True,
        capture_stderr=True,
        check=False,
        task_status=task_status,
    )


async def test_key_update_of_the_peer_is_answered_and_reading_continues() -> None:
    """`openssl s_client` sends a key update for the line `K`, and then its input again."""
    listener = await listen_tcp("127.0.0.1:0")
    received = bytearray()
    async with background_nursery() as nursery:
        reactor = Reactor()
        nursery.start_soon(reactor.run)
        process = await nursery.start(run_openssl, "-connect", listener.addr)
        server = await accept_tls(await listener.accept(), server_context())
        buffer = memoryview(bytearray(1 << 17))

        def handle(size: int) -> bool:
            received.extend(buffer[:size])
            return size > 0 and not received.endswith(b"after\n")

        for line in (b"before\n", b"K\n", b"after\n"):
            await process.stdin.send_all(line)
            await trio.sleep(0.05)
        with trio.fail_after(60):
            await reactor.receive(server, buffer, handle)
        await server.send_all(b"fine")
        assert bytes(received) == b"before\nafter\n"
        await server.aclose()
        process.kill()
    listener.close()


async def test_peer_that_reads_no_answer_to_its_key_updates_is_cut_off(
    autojump_clock: MockClock,
) -> None:
    """The standard library sends no key update: its answers are written here instead."""
    room = 1 << 30
    async with both_ends(lambda: room) as (_, server):
        room = 0
        server._outgoing.write(b"first")
        for _ in range(2):
            server._outgoing.write(bytes(CONTROL_SIZE_LIMIT // 2))
            server._decrypt(memoryview(bytearray(100)))
        server._outgoing.write(bytes(CONTROL_SIZE_LIMIT))
        for _ in range(2):
            with pytest.raises(TlsError, match="key updates"):
                server._decrypt(memoryview(bytearray(100)))


async def polled_pair() -> tuple[PolledTlsTransport, Transport, TlsTransport]:
    """Return a server's end on a socket, and the client's plain and TLS end."""
    plain, there = await wires("tcp")
    client, server = await secured(plain, there)
    assert isinstance(server, PolledTlsTransport)
    return server, plain, client


async def wait_until_nothing_arrives(transport: PolledTlsTransport) -> None:
    """Wait until the system has all that was sent: what has arrived does not grow for a while."""
    queued = array.array("i", [0])
    arrived = -1
    while arrived != queued[0]:
        arrived = queued[0]
        await trio.sleep(0.05)
        fcntl.ioctl(transport.fileno(), termios.FIONREAD, queued)


async def test_many_records_of_one_arrival_are_read_at_once() -> None:
    server, _, client = await polled_pair()
    with pytest.raises(BlockingIOError):
        server.receive_nowait(memoryview(bytearray(1 << 17)))  # The end of the handshake.
    for number in range(50):
        await client.send_all(b"%02d" % number * 500)
    await wait_until_nothing_arrives(server)
    buffer = memoryview(bytearray((1 << 17) + RECORD_SIZE))
    size = server.receive_nowait(buffer)
    assert bytes(buffer[:size]) == b"".join(b"%02d" % number * 500 for number in range(50))
    await server.aclose()
    await client.aclose()


@pytest.mark.parametrize("with_farewell", [True, False])
async def test_close_with_and_without_close_notify_is_an_end_and_no_fault(
    with_farewell: bool,
) -> None:
    server, plain, client = await polled_pair()
    await client.send_all(b"last")
    await (client if with_farewell else plain).aclose()
    assert await read_exactly(server, 4) == b"last"
    assert await server.receive_into(memoryview(bytearray(10))) == 0
    await server.aclose()


@pytest.mark.parametrize(
    "garbage", [b"\x17\x03\x03\x00\x20" + bytes(32), b"GET / HTTP/1.1\r\n\r\n"]
)
async def test_garbage_and_plain_text_after_the_handshake_end_the_connection(
    garbage: bytes,
) -> None:
    server, plain, _ = await polled_pair()
    reactor = Reactor()
    async with background_nursery() as nursery:
        nursery.start_soon(reactor.run)
        await plain.send_all(garbage)
        with pytest.raises(TlsError), trio.fail_after(60):
            await reactor.receive(server, memoryview(bytearray(1 << 17)), bool)
    await server.aclose()
    alert = memoryview(bytearray(100))
    assert await plain.receive_into(alert) > 0  # The peer learns that its bytes were bad.
    await plain.aclose()


async def test_good_bytes_before_garbage_are_read(autojump_clock: MockClock) -> None:
    server, plain, client = await polled_pair()
    await client.send_all(b"good")
    await plain.send_all(b"no record")
    buffer = memoryview(bytearray(1 << 17))
    assert await server.receive_into(buffer[:4]) == 4
    with pytest.raises(TlsError):
        await server.receive_into(buffer)
    for end in (server, plain):
        await end.aclose()


async def test_renegotiation_of_tls_1_2_is_refused() -> None:
    """`openssl s_client` begins one for the line `R`."""
    listener = await listen_tcp("127.0.0.1:0")
    received = bytearray()
    async with background_nursery() as nursery:
        process = await nursery.start(run_openssl, "-tls1_2", "-connect", listener.addr)
        server = await accept_tls(await listener.accept(), server_context())
        assert server.version == "TLSv1.2"
        for line in (b"before\n", b"R\n"):
            await process.stdin.send_all(line)
            await trio.sleep(0.05)
        buffer = memoryview(bytearray(1 << 17))
        with trio.fail_after(60):
            try:
                while size := await server.receive_into(buffer):
                    received.extend(buffer[:size])
            except TlsError:
                pass
        assert bytes(received) == b"before\n"
        await server.aclose()
        process.kill()
    listener.close()


async def test_close_during_the_handshake_is_distinguished_from_a_refusal(
    autojump_clock: MockClock,
) -> None:
    here, there = await wires()

    async def close() -> None:
        await there.receive_into(memoryview(bytearray(10_000)))
        await there.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(close)
        with pytest.raises(NotReachableError, match="during the TLS handshake") as raised:
            await connect_tls(here, client_context(), SERVER)
    assert raised.value.retryable


@attrs.define(eq=False)
class Ending(Forwarding):
    """A transport that ends after `left` received bytes, as if the peer had gone."""

    left: int
    received: int = 0

    async def receive_into(self, buffer: memoryview) -> int:
        count = await self.inner.receive_into(buffer[: self.left]) if self.left else 0
        self.left -= count
        self.received += count
        return count


@pytest.mark.slow
async def test_close_after_any_byte_gives_all_of_a_record_or_nothing(
    autojump_clock: MockClock,
) -> None:
    """Bytes of the handshake, of the record after it, and of the farewell."""
    whole = await _ended_after(1_000_000)
    assert whole[1] == b"some words"
    for left in {*range(0, whole[0], 7), *range(whole[0] - 40, whole[0])}:
        _, data = await _ended_after(left)
        assert data in (b"", b"some words"), left
        assert left > 100 or data == b"", left


async def _ended_after(left: int) -> tuple[int, bytes]:
    """Let a server lose its client after `left` bytes; return how many it got, and the data in them."""
    here, there = await wires()
    ending = Ending(there, left)
    received = bytearray()

    async def serve() -> None:
        try:
            with trio.fail_after(60):
                transport = await accept_tls(ending, server_context())
                buffer = memoryview(bytearray(1 << 17))
                while count := await transport.receive_into(buffer):
                    received.extend(buffer[:count])
        except NotReachableError:  # A TlsError is one.
            pass
        await ending.aclose()

    async def ask() -> None:
        with suppress(NotReachableError, OSError):
            transport = await connect_tls(here, client_context(), SERVER)
            await transport.send_all(b"some words")
        await here.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        nursery.start_soon(ask)
    return ending.received, bytes(received)


async def test_silent_server_ends_the_dial_after_its_timeout(autojump_clock: MockClock) -> None:
    network = network_of("memory")
    await network.listen(f"{SERVER}:1")
    dial = tls_dial(network.dial, client_context)
    began = trio.current_time()
    with pytest.raises(NotReachableError, match="No TLS connection to"):
        await dial(f"{SERVER}:1", timeout=3)
    assert trio.current_time() - began == 3


async def refused(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[Error, Error]:
    """Return the errors of client and server."""
    network = network_of("memory")
    listener = await network.listen(f"{SERVER}:1")
    errors: list[Error] = []

    async def accept() -> None:
        try:
            await accept_tls(await listener.accept(), server)
        except Error as error:
            errors.append(error)

    dial = tls_dial(network.dial, lambda: client, trusted="ca.pem is")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(accept)
        try:
            opened = await dial(f"{SERVER}:1")
            await opened.receive_into(memoryview(bytearray(10)))
        except Error as error:
            errors.insert(0, error)
    client_error, server_error = errors
    return client_error, server_error


async def test_certificate_of_another_host_is_refused_and_the_error_names_both(
    autojump_clock: MockClock,
) -> None:
    error, told = await refused(server_context("other.example"), client_context())
    assert isinstance(error, TlsError)
    assert not error.retryable
    for word in ("not valid for", f"{SERVER}:1", "ca.pem", "check_host_name"):
        assert word in str(error)
    assert isinstance(told, TlsError)


async def test_expired_certificate_is_refused_and_the_error_says_to_renew_it(
    autojump_clock: MockClock,
) -> None:
    expired = new_context(ssl.PROTOCOL_TLS_SERVER)
    end = datetime.now(UTC) - timedelta(days=2)
    authority().issue_cert(
        SERVER, not_before=end - timedelta(days=9), not_after=end
    ).configure_cert(expired)
    error, told = await refused(expired, client_context())
    assert isinstance(error, TlsError)
    assert "certificate has expired" in str(error)
    assert "Renew it" in str(error)
    assert "certificate expired" in str(told)


async def test_certificate_of_an_unknown_authority_is_refused(autojump_clock: MockClock) -> None:
    stranger = new_context(ssl.PROTOCOL_TLS_CLIENT)
    error, told = await refused(server_context(), stranger)
    assert isinstance(error, TlsError)
    assert "authority" in str(error)
    assert isinstance(told, TlsError)
    assert "unknown ca" in str(told)


def asking_context() -> ssl.SSLContext:
    """Return what a server uses that asks for the client's certificate."""
    asking = new_context(ssl.PROTOCOL_TLS_SERVER)
    authority().issue_cert(*HOSTS).configure_cert(asking)
    authority().configure_trust(asking)
    asking.verify_mode = ssl.CERT_REQUIRED
    return asking


async def test_client_without_a_certificate_learns_that_it_needs_one(
    autojump_clock: MockClock,
) -> None:
    asking = asking_context()
    error, told = await refused(asking, client_context())
    assert isinstance(error, TlsError)
    assert "certificate required" in str(error)
    assert isinstance(told, TlsError)
    assert "no certificate" in str(told)


async def test_plain_server_is_named_as_such(autojump_clock: MockClock) -> None:
    here, there = await wires()
    await there.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(TlsError, match="does not speak TLS"):
        await connect_tls(here, client_context(), SERVER)


async def test_call_fails_with_the_tls_error_that_ended_its_connection() -> None:
    asking = asking_context()
    listener = await listen_tcp("127.0.0.1:0")

    async def accept() -> None:
        with pytest.raises(TlsError):
            await accept_tls(await listener.accept(), asking)

    async with (
        trio.open_nursery() as nursery,
        open_channel_pool(tls_dial(dial_tcp, client_context)) as pool,
    ):
        nursery.start_soon(accept)
        with pytest.raises(TlsError, match="certificate required"):
            await pool.call(listener.addr, RemotingCommand(ECHO))
    listener.close()
