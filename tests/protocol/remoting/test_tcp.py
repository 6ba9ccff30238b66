"""TCP on loopback: addresses, refusals, short writes, closing. Both ends in this process."""

import os
import resource
import socket
from contextlib import ExitStack, suppress

import pytest
import trio
import trio.testing

from rocketrio_protocol.errors import ClosedError, ConfigError, NotReachableError
from rocketrio_protocol.remoting import tcp
from rocketrio_protocol.remoting.ports import join_addr, split_addr
from rocketrio_protocol.remoting.tcp import SocketTransport, TcpListener, dial_tcp, listen_tcp


async def connected() -> tuple[TcpListener, SocketTransport, SocketTransport]:
    listener = await listen_tcp("127.0.0.1:0")
    dialled = await dial_tcp(listener.addr)
    return listener, dialled, await listener.accept()


async def test_port_nought_becomes_a_real_one_and_ends_know_each_other() -> None:
    listener, dialled, accepted = await connected()
    assert listener.addr.startswith("127.0.0.1:")
    assert listener.addr != "127.0.0.1:0"
    assert accepted.local_addr == dialled.remote_addr == listener.addr
    assert accepted.remote_addr == dialled.local_addr
    for end in (dialled, accepted):
        await end.aclose()
    listener.close()


async def test_host_name_is_resolved() -> None:
    listener = await listen_tcp("localhost:0")
    dialled = await dial_tcp(f"localhost:{listener.addr.rpartition(':')[2]}")
    assert dialled.remote_addr == listener.addr
    await dialled.aclose()
    listener.close()


async def test_address_without_a_listener_is_refused_at_once() -> None:
    listener = await listen_tcp("127.0.0.1:0")
    listener.close()
    with pytest.raises(NotReachableError, match=f"No connection to {listener.addr}.*refused"):
        await dial_tcp(listener.addr)


async def test_address_that_is_taken_or_elsewhere_cannot_be_listened_on() -> None:
    listener = await listen_tcp("127.0.0.1:0")
    for addr in (listener.addr, "192.0.2.1:0", "no.such.host.invalid:0"):
        with pytest.raises(ConfigError, match=f"Cannot listen on {addr}"):
            await listen_tcp(addr)
    listener.close()


async def test_peer_that_is_gone_as_soon_as_it_was_reached_is_not_reachable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connect = tcp._connect
    with socket.create_server(("127.0.0.1", 0)) as server:

        async def connect_and_be_reset(sock: socket.socket, target: object) -> None:
            await connect(sock, target)
            accepted, _ = server.accept()
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            accepted.close()

        monkeypatch.setattr(tcp, "_connect", connect_and_be_reset)
        addr = join_addr(*server.getsockname())
        with pytest.raises(NotReachableError, match=f"No connection to {addr}.*not connected"):
            await dial_tcp(addr)


async def test_dial_gives_up_after_its_timeout(autojump_clock: trio.testing.MockClock) -> None:
    # A listener whose backlog is full leaves further connections without an answer.
    full = socket.socket()
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    waiting = [socket.socket() for _ in range(4)]
    for sock in waiting:
        sock.setblocking(False)
        sock.connect_ex(full.getsockname())
    addr = join_addr(*full.getsockname())
    try:
        with pytest.raises(NotReachableError, match=f"No connection to {addr} within 3 s"):
            await dial_tcp(addr)
    finally:
        for sock in (full, *waiting):
            sock.close()


async def test_more_bytes_than_the_kernel_takes_arrive_whole() -> None:
    listener, dialled, accepted = await connected()
    data = bytes(range(256)) * 80_000
    taken = dialled.send_nowait(data)
    assert 0 < taken < len(data)
    assert dialled.send_nowait(data) == 0
    received = bytearray()
    buffer = memoryview(bytearray(100_000))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(dialled.send_all, memoryview(data)[taken:])
        while len(received) < len(data):
            received += buffer[: await accepted.receive_into(buffer)]
    assert received == data
    await dialled.aclose()
    assert await accepted.receive_into(buffer) == 0
    await accepted.aclose()
    listener.close()


async def test_reset_connection_is_not_reachable_by_any_method() -> None:
    listener, dialled, accepted = await connected()
    await dialled.send_all(b"unread")
    accepted._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    await accepted.aclose()
    with pytest.raises(NotReachableError, match=listener.addr):
        await dialled.receive_into(memoryview(bytearray(10)))
    with pytest.raises(NotReachableError, match="broke"):
        dialled.send_nowait(b"x")
    with pytest.raises(NotReachableError, match="broke"):
        await dialled.send_all(b"x")
    await dialled.aclose()
    listener.close()


async def test_close_wakes_waiters_and_a_second_close_does_nothing() -> None:
    listener, dialled, accepted = await connected()

    async def wait_for_bytes() -> None:
        with pytest.raises(NotReachableError):
            await dialled.receive_into(memoryview(bytearray(10)))

    async def wait_for_connections() -> None:
        with pytest.raises(ClosedError, match="closed"):
            await listener.accept()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait_for_bytes)
        nursery.start_soon(wait_for_connections)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(2):
            await dialled.aclose()
            listener.close()
    with pytest.raises(ClosedError):
        await listener.accept()
    await accepted.aclose()


async def test_small_frames_are_not_held_back() -> None:
    listener, dialled, accepted = await connected()
    for end in (dialled, accepted):
        assert end._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        await end.aclose()
    listener.close()


@pytest.mark.parametrize("host", ["a" * 100, "a..b", "\ud800"])
async def test_name_that_no_host_can_have_is_not_reachable(host: str) -> None:
    with pytest.raises(NotReachableError, match="not known"):
        await dial_tcp(f"{host}:1")
    with pytest.raises(ConfigError, match="Cannot listen"):
        await listen_tcp(f"{host}:1")


def unused(stack: ExitStack) -> int:
    """Take a descriptor of this process, until the end of the stack."""
    taken = os.open(os.devnull, os.O_RDONLY)
    stack.callback(os.close, taken)
    return taken


async def test_peers_learn_at_once_that_no_descriptor_is_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listener = await listen_tcp("127.0.0.1:0")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    accepted: list[SocketTransport] = []

    async def accept() -> None:
        while True:
            accepted.append(await listener.accept())

    with ExitStack() as stack:
        peers = [stack.enter_context(socket.socket()) for _ in range(20)]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(accept)
            highest = unused(stack)
            resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 8, hard))
            stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
            with suppress(OSError):
                while True:
                    unused(stack)
            for peer in peers:
                peer.connect(split_addr(listener.addr))
                peer.setblocking(False)
            for peer in peers:
                with trio.fail_after(60):
                    await trio.lowlevel.wait_readable(peer)
                assert peer.recv(10) == b""
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert accepted == []
            later = stack.enter_context(socket.create_connection(split_addr(listener.addr)))
            while not accepted:
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        assert later
    await accepted[0].aclose()
    listener.close()
    assert caplog.text.count("cannot accept") == 1
