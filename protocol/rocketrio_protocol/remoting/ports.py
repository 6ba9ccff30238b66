"""Interfaces to the outside world: wall clock, dialling and listening.

Every part receives them as arguments. Deadlines use `trio.current_time()`; `WallClock` is for times that are stored or
sent.

Unlike Java: no part calls the operating system directly, so a whole cluster runs in memory under a virtual clock.
"""

import re
import time
from ipaddress import ip_address
from typing import Final, Protocol, runtime_checkable

import trio

from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.frame import Body

CONNECT_TIMEOUT: Final = 3.0
"""Seconds that opening a connection may take (connectTimeoutMillis)."""


class WallClock(Protocol):
    """The wall-clock time: the only source of timestamps that are stored or sent."""

    def now_ms(self) -> int:
        """Return the milliseconds since 1970 in UTC."""
        ...


class SystemWallClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class VirtualWallClock:
    """Follows `trio.current_time()` from a given instant, so that it jumps with a virtual clock."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._start_ms = start_ms
        self._start_time: float | None = None

    def now_ms(self) -> int:
        now = trio.current_time()
        if self._start_time is None:
            self._start_time = now
        return self._start_ms + round((now - self._start_time) * 1000)


class Transport(Protocol):
    """The bytes of one connection. Every method raises NotReachableError when the connection is broken."""

    local_addr: str
    remote_addr: str

    async def receive_into(self, buffer: memoryview) -> int:
        """Wait for bytes, and write them to the start of `buffer`; return how many, 0 at the end of the stream."""
        ...

    def send_nowait(self, data: Body) -> int:
        """Send as much as possible without waiting; return how many bytes, possibly 0."""
        ...

    async def send_all(self, data: Body) -> None:
        """Send all bytes, and wait for the peer to read. After a cancel a part may be sent: close the connection."""
        ...

    async def aclose(self) -> None:
        """Close at once, even if cancelled; closing twice is allowed. The peer reads the end of the stream."""
        ...


@runtime_checkable
class PolledTransport(Transport, Protocol):
    """A transport that a reactor reads: an epoll object watches it."""

    holds_bytes: bool
    """Whether `receive_nowait` may have bytes that no event announces."""

    def fileno(self) -> int:
        """Return the descriptor that has an event for each arrival of bytes."""
        ...

    def receive_nowait(self, buffer: memoryview) -> int:
        """Receive without waiting, as `receive_into`. Raises BlockingIOError when no bytes are there."""
        ...


class Listener(Protocol):
    """Accepts connections on one address."""

    addr: str
    """`host:port` as bound, with the real port if port 0 was requested."""

    async def accept(self) -> Transport:
        """Wait for the next connection. Raises ClosedError when the listener is closed."""
        ...

    def close(self) -> None:
        """Accept no more connections; open ones continue."""
        ...


class Dial(Protocol):
    """Opens connections."""

    async def __call__(self, addr: str, *, timeout: float = CONNECT_TIMEOUT) -> Transport:
        """Connect to `host:port`. Raises NotReachableError that names it, after `timeout` seconds at most."""
        ...


class Listen(Protocol):
    """Opens listeners."""

    async def __call__(self, addr: str) -> Listener:
        """Listen on `host:port`; port 0 picks a free port. Raises ConfigError when the address cannot be used."""
        ...


_HOST_TEXT: Final = re.compile(r"[^\s/;,@?#]+")
_PORT_DIGITS: Final = 5  # int() refuses thousands of digits with its own error


def split_addr(addr: str) -> tuple[str, int]:
    """Return host and port of `host:port` or `[v6]:port`. Raises ConfigError that says what is wrong."""
    host, colon, port = addr.rpartition(":")
    is_number = port.isascii() and port.isdigit() and len(port) <= _PORT_DIGITS
    if not (colon and _HOST_TEXT.fullmatch(host) and is_number and int(port) <= 65_535):
        raise ConfigError(
            f"{addr!r} is not an address; write host:port, for example 127.0.0.1:9876"
        )
    return host.removeprefix("[").removesuffix("]"), int(port)


_SCHEME: Final = re.compile(r"\A\w+://")


def name_server_addrs(text: str) -> tuple[str, ...]:
    """Return the different addresses in a text as `host:port;host:port`; commas separate them too.

    Clouds print endpoints as `http://host:port/`: the scheme says nothing, and is omitted as Java's and Go's clients
    omit it. Raises ConfigError that names the part that is not an address.
    """
    addrs = []
    for part in filter(None, map(str.strip, re.split("[;,]", text))):
        addr = _SCHEME.sub("", part).rstrip("/")
        try:
            _, port = split_addr(addr)
        except ConfigError:
            port = 0
        if not port:
            raise ConfigError(
                f"name server {part!r} is not HOST:PORT, as 10.0.0.1:9876; several are separated by semicolons"
            )
        addrs.append(addr)
    return tuple(dict.fromkeys(addrs))


_MAX_HOST_LENGTH: Final = 255
_HOST: Final = re.compile(r"[a-zA-Z0-9_.-]+|\[[0-9a-fA-F:.]+(%[a-zA-Z0-9_.-]+)?\]")


def is_peer_addr(addr: str) -> bool:
    """Return whether a string from a peer can be the address of a broker: one host, and a port that can be dialled."""
    host = addr.rpartition(":")[0]
    if len(host) > _MAX_HOST_LENGTH or _HOST.fullmatch(host) is None:
        return False
    try:
        return split_addr(addr)[1] > 0
    except ConfigError:
        return False


def is_loopback(addr: str) -> bool:
    """Return whether only this machine can reach `host:port`."""
    host = split_addr(addr)[0]
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def join_addr(host: str, port: int) -> str:
    """Return `host:port`, with brackets around an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
