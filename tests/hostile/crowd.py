"""Attacks of many connections at once: `python -m tests.hostile.crowd NAME HOST PORT`.

Plain sockets and one epoll object, so that the attacker is always faster than the server. Each attack goes on until its
process is killed.
"""

import select
import socket
import ssl
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from tests.hostile.attackers import BEGUN
from tests.support.raw_client import request

ONEWAY: Final = 2
_INFO: Final = request(28, {})
"""A question that costs a broker a fraction of a millisecond."""
_INFO_ONEWAY: Final = request(28, {}, flag=ONEWAY)
_SMALLEST: Final = struct.pack(">iI", 4 + 11, 11) + b'{"code":28}'
_CHUNK: Final = 512 << 10
_HALF_HELLO: Final = bytes.fromhex("16 03 01 02 00 01")


def connect(to: tuple[str, int], host: str) -> socket.socket:
    made = socket.socket()
    made.bind((host, 0))
    made.connect(to)
    made.setblocking(False)
    return made


def hosts(count: int) -> list[str]:
    return [f"127.0.8.{number + 1}" for number in range(count)]


def flood(to: tuple[str, int], frame: bytes, *, host_count: int, connections: int) -> None:
    """Send a frame on every connection as fast as it goes, and read no answer; connect again where it ends."""
    data = frame * (_CHUNK // len(frame))
    poll, sockets = select.epoll(), {}
    sent: dict[int, int] = {}

    def open_one(host: str) -> None:
        made = connect(to, host)
        sockets[made.fileno()] = made, host
        sent[made.fileno()] = 0
        poll.register(made, select.EPOLLOUT | select.EPOLLRDHUP)

    for _ in range(connections):
        for host in hosts(host_count):
            open_one(host)
    print(BEGUN, flush=True)
    while True:
        for fileno, event in poll.poll():
            made, host = sockets[fileno]
            try:
                if event & (select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR):
                    raise ConnectionResetError
                at = sent[fileno] % len(data)
                sent[fileno] += made.send(memoryview(data)[at : at + (64 << 10)])
            except BlockingIOError:
                continue
            except OSError:
                poll.unregister(made)
                made.close()
                open_one(host)


def oneway_crowd(to: tuple[str, int]) -> None:
    """One host with 400 connections that send oneway requests without end."""
    flood(to, _INFO_ONEWAY, host_count=1, connections=400)


def crowds_of_hosts(to: tuple[str, int]) -> None:
    """Four hosts with 100 connections each that send oneway requests without end."""
    flood(to, _INFO_ONEWAY, host_count=4, connections=100)


def deaf_crowd(to: tuple[str, int]) -> None:
    """One host with 400 connections that ask without end and read nothing."""
    flood(to, _INFO, host_count=1, connections=400)


def smallest_frames(to: tuple[str, int]) -> None:
    """One host with 400 connections and the smallest requests that there are."""
    flood(to, _SMALLEST, host_count=1, connections=400)


def gone(to: tuple[str, int]) -> None:
    """Forty connections at a time that each leave half a mebibyte of oneway requests behind, and close."""
    data = _INFO_ONEWAY * (_CHUNK // len(_INFO_ONEWAY))
    print(BEGUN, flush=True)
    while True:
        crowd = []
        for _ in range(40):
            made = connect(to, hosts(1)[0])
            made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * _CHUNK)
            crowd.append(made)
            try:
                made.send(data)
            except OSError:
                continue
        for made in crowd:
            made.close()


def half_open_handshakes(to: tuple[str, int]) -> None:
    """Four hosts with 400 connections each that begin a handshake and never end it."""
    for _ in _handshakes(to, _HALF_HELLO, host_count=4, connections=400):
        pass


def handshakes(to: tuple[str, int]) -> None:
    """Three hosts that let the server compute 250 keys at once, again and again, and never answer."""
    for _ in _handshakes(to, _hello(), host_count=3, connections=83):
        pass


def _handshakes(
    to: tuple[str, int], data: bytes, *, host_count: int, connections: int
) -> Iterator[None]:
    begun = False
    while True:
        crowd = []
        for host in hosts(host_count):
            for _ in range(connections):
                try:
                    crowd.append(connect(to, host))
                except OSError:
                    continue
        for made in crowd:
            try:
                made.send(data)
            except OSError:
                continue
        if not begun:
            begun = True
            print(BEGUN, flush=True)
        yield
        select.select([], [], [], 1)
        for made in crowd:
            made.close()


def _hello() -> bytes:
    """A whole first message of a TLS client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing)
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


PLAIN: Final[dict[str, Callable[[tuple[str, int]], None]]] = {
    one.__name__: one for one in (oneway_crowd, deaf_crowd, crowds_of_hosts, smallest_frames, gone)
}
OVER_TLS: Final[dict[str, Callable[[tuple[str, int]], None]]] = {
    one.__name__: one for one in (half_open_handshakes, handshakes)
}


if __name__ == "__main__":
    {**PLAIN, **OVER_TLS}[sys.argv[1]]((sys.argv[2], int(sys.argv[3])))
