"""Remoting alone: calls a second and CPU µs a call on each side, headers read and answered but nothing stored.

    pool      our client and our server, 1, 16 and 64 calls in flight over one connection
    server    our server under a load that costs little: 64 in flight over one connection, and 64 connections x 1

To hold: `pool` with 64 in flight at least 15 k/s and at most 25 µs a side, `server` 64 connections x 1 at least 12 k/s.
"""

import json
import selectors
import socket
import sys
import time
from collections.abc import Callable

import trio
from processes import child

from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.send import SendMessageRequestHeaderV2, SendMessageResponseHeader
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.pool import ChannelPool, open_channel_pool
from rocketrio_protocol.remoting.server import serve_remoting
from rocketrio_protocol.remoting.tcp import dial_tcp, listen_tcp

SECONDS = 2.0
"""How long each figure is measured."""

SEND, CPU_TIME = 310, 1
BODY = bytes(128)
PROPERTIES = (
    "KEYS\x01key-1\x02UNIQ_KEY\x017F000001000018B4AAC2000000000001\x02TAGS\x01A\x02WAIT\x01true"
)


def send_header() -> SendMessageRequestHeaderV2:
    return SendMessageRequestHeaderV2(
        producer_group="producers",
        topic="orders",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=3,
        sys_flag=0,
        born_timestamp=1_700_000_000_000,
        flag=0,
        properties=PROPERTIES,
        reconsume_times=0,
        unit_mode=False,
        batch=False,
    )


def accept_send(channel: Channel, request: RemotingCommand) -> RemotingCommand:
    header = request.header(SendMessageRequestHeaderV2)
    return request.response(
        SendMessageResponseHeader("7F00000100002A9F0000000000000123", header.queue_id, 1234)
    )


def tell_cpu_time(channel: Channel, request: RemotingCommand) -> RemotingCommand:
    return request.response(body=repr(time.process_time()).encode())


async def serve() -> None:
    listener = await listen_tcp("127.0.0.1:0")
    print(listener.addr, flush=True)
    await serve_remoting([listener], {SEND: accept_send, CPU_TIME: tell_cpu_time})


def report(name: str, calls: int, took: float, own_cpu: float, server_cpu: float) -> None:
    for part, value, unit in (
        ("rate", calls / took, "1/s"),
        ("client_cpu", own_cpu / calls * 1e6, "us"),
        ("server_cpu", server_cpu / calls * 1e6, "us"),
    ):
        print(
            json.dumps({"name": f"{name}.{part}", "value": round(value, 2), "unit": unit}),
            flush=True,
        )


async def server_cpu_time(pool: ChannelPool, addr: str) -> float:
    return float(bytes((await pool.call(addr, RemotingCommand(CPU_TIME))).body))


async def measure_pool(addr: str, in_flight: int, seconds: float) -> None:
    calls = 0
    async with open_channel_pool(dial_tcp) as pool:
        server_start = await server_cpu_time(pool, addr)
        own_start, start = time.process_time(), time.perf_counter()
        end = start + seconds

        async def ask() -> None:
            nonlocal calls
            while time.perf_counter() < end:
                answer = await pool.call(addr, send_header(), BODY)
                answer.header(SendMessageResponseHeader)
                calls += 1

        async with trio.open_nursery() as nursery:
            for _ in range(in_flight):
                nursery.start_soon(ask)
        took, own = time.perf_counter() - start, time.process_time() - own_start
        server = await server_cpu_time(pool, addr) - server_start
    report(f"remoting.pool_{in_flight}_in_flight", calls, took, own, server)


def load(addr: str, connections: int, in_flight: int, seconds: float) -> int:
    """Keep requests in flight by plain sockets; answers are counted by their size, as all are alike."""
    host, port = addr.rsplit(":", 1)
    request = RemotingCommand.request(send_header(), BODY).encode() * in_flight
    answer_size = 0
    selector = selectors.DefaultSelector()
    socks = [socket.create_connection((host, int(port))) for _ in range(connections)]
    due: dict[socket.socket, int] = {}
    for sock in socks:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(request[: len(request) // in_flight])
        answer_size = len(sock.recv(65536))
        selector.register(sock, selectors.EVENT_READ)
    calls, end = 0, time.perf_counter() + seconds
    for sock in socks:
        due[sock] = answer_size * in_flight
        sock.sendall(request)
    while time.perf_counter() < end:
        for key, _ in selector.select():
            sock = key.fileobj  # type: ignore[assignment]
            due[sock] -= len(sock.recv(65536))
            if due[sock] == 0:
                calls += in_flight
                due[sock] = answer_size * in_flight
                sock.sendall(request)
    for sock in socks:
        sock.close()
    selector.close()
    return calls


async def measure_server(addr: str, connections: int, in_flight: int, seconds: float) -> None:
    async with open_channel_pool(dial_tcp) as pool:
        server_start = await server_cpu_time(pool, addr)
        own_start, start = time.process_time(), time.perf_counter()
        calls = load(addr, connections, in_flight, seconds)
        took, own = time.perf_counter() - start, time.process_time() - own_start
        server = await server_cpu_time(pool, addr) - server_start
    report(f"remoting.server_{connections}_connections_x_{in_flight}", calls, took, own, server)


def with_server(work: Callable[[str], None]) -> None:
    """A fresh server process per figure, so that none pays for the one before."""
    server = child(__file__, "serve")
    try:
        assert server.stdout is not None
        work(server.stdout.readline().strip())
    finally:
        server.kill()
        server.wait()


def main(seconds: float = SECONDS) -> None:
    """`seconds` is how long each figure is measured."""
    for in_flight in (1, 16, 64):
        with_server(lambda addr, n=in_flight: trio.run(measure_pool, addr, n, seconds))  # type: ignore[misc]
    for connections, in_flight in ((1, 1), (1, 64), (64, 1)):
        with_server(
            lambda addr, c=connections, n=in_flight: trio.run(measure_server, addr, c, n, seconds)  # type: ignore[misc]
        )


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        trio.run(serve)
    else:
        main(*map(float, sys.argv[1:]))
