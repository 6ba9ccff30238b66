"""The doors to the outside: wall clock, dialling and listening, as protocols that parts are given.

Deadlines use `trio.current_time()`; `WallClock` is for times that are stored or sent.

Unlike Java: nothing reaches for the system by itself, so a whole cluster runs in memory under a virtual clock.
"""

import re
import time
from typing import Final, Protocol

import trio

from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.frame import Body

CONNECT_TIMEOUT: Final = 3.0
"""Seconds a connection may take to stand (connectTimeoutMillis)."""


class WallClock(Protocol):
    """What time it is for people: the only source of timestamps that are stored or sent."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 in UTC."""
        ...


class SystemWallClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class VirtualWallClock:
    """Follows `trio.current_time()` from a given instant on, so that it jumps with a virtual clock."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._start_ms = start_ms
        self._start_time: float | None = None

    def now_ms(self) -> int:
        now = trio.current_time()
        if self._start_time is None:
            self._start_time = now
        return self._start_ms + round((now - self._start_time) * 1000)


class Transport(Protocol):
    """One connection as bytes. Every method raises NotReachable when the connection broke."""

    local_addr: str
    remote_addr: str

    async def receive_into(self, buffer: memoryview) -> int:
        """Wait for bytes, put them at the start of `buffer`; how many, 0 when the peer ended."""
        ...

    def send_nowait(self, data: Body) -> int:
        """Hand over what is taken without waiting; how many bytes that was, possibly none."""
        ...

    async def send_all(self, data: Body) -> None:
        """Send all of it, waiting for the peer to read. A cancel may leave a part sent: close then."""
        ...

    async def aclose(self) -> None:
        """Close at once, cancelled or not; twice is once. The peer reads an end."""
        ...


class Listener(Protocol):
    """A place where connections arrive."""

    addr: str
    """`host:port` as bound: a port 0 asked for is replaced by the real one."""

    async def accept(self) -> Transport:
        """The next connection. Raises ClosedError when the listener is closed."""
        ...

    def close(self) -> None:
        """Take no more connections; those that stand are left alone."""
        ...


class Dial(Protocol):
    """Opens connections."""

    async def __call__(self, addr: str, *, timeout: float = CONNECT_TIMEOUT) -> Transport:
        """A connection to `host:port`. Raises NotReachable naming it, after `timeout` seconds at most."""
        ...


class Listen(Protocol):
    """Opens listeners."""

    async def __call__(self, addr: str) -> Listener:
        """Listen on `host:port`, port 0 for a free one. Raises ConfigError when that cannot be had."""
        ...


_PORT_DIGITS: Final = 5  # int() refuses thousands of digits with an error of its own


def split_addr(addr: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[v6]:port`. Raises ConfigError naming what is wrong."""
    host, colon, port = addr.rpartition(":")
    is_number = port.isascii() and port.isdigit() and len(port) <= _PORT_DIGITS
    if not (colon and host and is_number and int(port) <= 65_535):
        raise ConfigError(f"{addr!r} is no address; write host:port, for example 127.0.0.1:9876")
    return host.removeprefix("[").removesuffix("]"), int(port)


_MAX_HOST_LENGTH: Final = 255
_HOST: Final = re.compile(r"[a-zA-Z0-9_.-]+|\[[0-9a-fA-F:.]+(%[a-zA-Z0-9_.-]+)?\]")


def is_peer_addr(addr: str) -> bool:
    """Return whether a text that a peer sent can be the address of a broker: one host, and a port to be dialled."""
    host = addr.rpartition(":")[0]
    if len(host) > _MAX_HOST_LENGTH or _HOST.fullmatch(host) is None:
        return False
    try:
        return split_addr(addr)[1] > 0
    except ConfigError:
        return False


def join_addr(host: str, port: int) -> str:
    """`host:port`, with brackets around an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
