"""Many sockets read by one task."""

import pytest
import trio
import trio.testing

from rocketrio_broker.testing.memory_network import memory_stream_pair
from rocketrio_protocol.errors import NotReachableError
from rocketrio_protocol.remoting.reactor import ROUND_SIZE, Reactor
from rocketrio_protocol.remoting.server import serve_remoting
from rocketrio_protocol.remoting.streams import StreamTransport
from rocketrio_protocol.remoting.tasks import background_nursery
from rocketrio_protocol.remoting.tcp import SocketTransport, TcpListener, dial_tcp, listen_tcp


async def connected(listener: TcpListener) -> tuple[SocketTransport, SocketTransport]:
    dialled = await dial_tcp(listener.addr)
    return dialled, await listener.accept()


async def test_chunks_are_handed_over_until_the_handler_returns_false_and_again_on_request() -> (
    None
):
    reactor, buffer = Reactor(), memoryview(bytearray(100))
    listener = await listen_tcp("127.0.0.1:0")
    there, here = await connected(listener)
    chunks: list[bytes] = []

    def handle(size: int) -> bool:
        chunks.append(bytes(buffer[:size]))
        return size > 0 and chunks[-1] != b"stop"

    async with background_nursery() as nursery:
        nursery.start_soon(reactor.run)
        await there.send_all(b"one")
        nursery.start_soon(reactor.receive, here, buffer, handle)
        while not chunks:
            await trio.lowlevel.checkpoint()
        await there.send_all(b"stop")
        while len(chunks) < 2:
            await trio.lowlevel.checkpoint()
        await there.send_all(b"more")
        await there.aclose()
        await reactor.receive(here, buffer, handle)
        assert chunks[-2:] == [b"more", b""]
    await here.aclose()
    listener.close()


async def test_cancelled_reader_leaves_its_bytes_for_the_next() -> None:
    reactor, buffer = Reactor(), memoryview(bytearray(100))
    listener = await listen_tcp("127.0.0.1:0")
    there, here = await connected(listener)
    async with background_nursery() as nursery:
        nursery.start_soon(reactor.run)
        with trio.move_on_after(0.001) as scope:
            await reactor.receive(here, buffer, lambda size: True)
        assert scope.cancelled_caught
        await there.send_all(b"kept")
        sizes: list[int] = []

        def handle(size: int) -> bool:
            sizes.append(size)
            return False

        await reactor.receive(here, buffer, handle)
        assert sizes == [4]
    for end in (there, here):
        await end.aclose()
    listener.close()


async def test_handler_may_cancel_its_own_reader() -> None:
    reactor, buffer = Reactor(), memoryview(bytearray(100))
    listener = await listen_tcp("127.0.0.1:0")
    there, here = await connected(listener)
    async with background_nursery() as nursery:
        nursery.start_soon(reactor.run)
        await there.send_all(b"bad")
        for answer in (True, False):
            with trio.CancelScope() as scope:

                def handle(
                    size: int, scope: trio.CancelScope = scope, answer: bool = answer
                ) -> bool:
                    scope.cancel()
                    return answer

                await reactor.receive(here, buffer, handle)
            assert scope.cancelled_caught
            await there.send_all(b"more")
    for end in (there, here):
        await end.aclose()
    listener.close()


async def test_broken_connection_fails_its_own_reader_only() -> None:
    reactor, buffer = Reactor(), memoryview(bytearray(100))
    listener = await listen_tcp("127.0.0.1:0")
    there, here = await connected(listener)
    other_there, other_here = await connected(listener)
    async with background_nursery() as nursery:
        nursery.start_soon(reactor.run)
        await here.send_all(b"unread")
        there._sock.setsockopt(1, 13, b"\1\0\0\0\0\0\0\0")  # SO_LINGER: close by a reset.
        await there.aclose()
        with pytest.raises(NotReachableError):
            await reactor.receive(here, buffer, lambda size: True)
        await other_there.send_all(b"fine")
        await reactor.receive(other_here, buffer, lambda size: False)
        assert buffer[:4] == b"fine"
    for end in (here, other_there, other_here):
        await end.aclose()
    listener.close()


class Arriving:
    """A listener where a connection comes when the test says so."""

    addr = "127.0.0.1:10911"

    def __init__(self, transport: SocketTransport) -> None:
        self.arrived = trio.Event()
        self._transport = transport

    async def accept(self) -> SocketTransport:
        await self.arrived.wait()
        self.arrived = trio.Event()
        return self._transport

    def close(self) -> None:
        """Its socket is the test's."""


async def test_connection_that_comes_as_its_server_is_stopped_is_closed_and_no_fault() -> None:
    listener = await listen_tcp("127.0.0.1:0")
    there, here = await connected(listener)
    arriving = Arriving(here)
    async with trio.open_nursery() as nursery:
        await nursery.start(serve_remoting, [arriving], {})
        await trio.testing.wait_all_tasks_blocked()
        arriving.arrived.set()
        nursery.cancel_scope.cancel()
    assert await there.receive_into(memoryview(bytearray(100))) == 0
    await there.aclose()
    listener.close()


async def test_other_tasks_get_their_turn_while_a_lot_arrives() -> None:
    reactor, buffer = Reactor(), memoryview(bytearray(ROUND_SIZE // 2))
    listener = await listen_tcp("127.0.0.1:0")
    pairs = [await connected(listener) for _ in range(8)]
    total, since_tick, longest = 0, 0, 0

    def handle(size: int) -> bool:
        nonlocal total, since_tick, longest
        total += size
        since_tick += size
        longest = max(longest, since_tick)
        return True

    async def tick() -> None:
        nonlocal since_tick
        while True:
            await trio.lowlevel.checkpoint()
            since_tick = 0

    async with background_nursery() as nursery:
        for _, here in pairs:
            nursery.start_soon(reactor.receive, here, buffer, handle)
        sent = sum(there.send_nowait(bytes(ROUND_SIZE)) for there, _ in pairs)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(tick)
        nursery.start_soon(reactor.run)
        while total < sent:
            await trio.lowlevel.checkpoint()
    # The reader and the ticker may take their turns in either order: two rounds between two ticks.
    assert longest <= 2 * (ROUND_SIZE + len(buffer))
    for pair in pairs:
        for end in pair:
            await end.aclose()
    listener.close()


async def test_stream_is_read_by_its_own_task() -> None:
    ours, theirs = memory_stream_pair()
    here = StreamTransport(ours, local_addr="a:1", remote_addr="b:2")
    buffer = memoryview(bytearray(3))
    sizes: list[int] = []

    def handle(size: int) -> bool:
        sizes.append(size)
        return size > 0

    await theirs.send_all(b"12345")
    await theirs.aclose()
    reactor = Reactor()
    await reactor.receive(here, buffer, handle)
    assert sizes == [3, 2, 0]
    reactor.close()
