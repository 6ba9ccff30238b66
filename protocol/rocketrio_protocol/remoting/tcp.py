"""TCP on non-blocking sockets: the production transport.

It reads with `recv_into` into the caller's buffer and writes with plain `send`. trio's socket streams cost twice as
much a message, and `recv` of a large size allocates each time (17 µs).

Answers to: NettyRemotingServer / NettyRemotingClient's channel options (TCP_NODELAY, backlog 1024).
"""

import errno
import os
import socket
from contextlib import suppress
from typing import Final

import trio

from rocketrio_protocol.errors import ClosedError, ConfigError, NotReachableError
from rocketrio_protocol.frame import Body
from rocketrio_protocol.remoting.ports import CONNECT_TIMEOUT, join_addr, split_addr
from rocketrio_protocol.remoting.rare_log import RareLog

BACKLOG: Final = 1024
"""Connections that wait to be accepted (serverSocketBacklog)."""

ACCEPTS_AT_ONCE: Final = 256
"""Connections that are accepted before other tasks have their turn; each costs some 25 microseconds, and 100 if it is
refused."""

ACCEPT_PAUSE: Final = 0.1
"""Seconds to wait when the process has no file descriptors left, as in trio's own listeners."""

_NO_RESOURCES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class SocketTransport:
    """One connected non-blocking socket."""

    holds_bytes = False
    """The operating system has an event for all that it holds."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.local_addr = _addr_of(sock.getsockname())
        self.remote_addr = _addr_of(sock.getpeername())
        self._sock = sock
        self._has_waited = False  # A task may wait for the socket, and must learn of its end.

    async def receive_into(self, buffer: memoryview) -> int:
        sock = self._sock
        self._has_waited = True
        while True:
            try:
                # Always wait first: with one read a wake-up, trying first usually fails, and the wait
                # is also the checkpoint that lets other connections run.
                await trio.lowlevel.wait_readable(sock)
                return sock.recv_into(buffer)
            except BlockingIOError:
                continue
            except (OSError, ValueError, trio.ClosedResourceError) as error:
                raise self._broken(error) from error

    def fileno(self) -> int:
        """Return the descriptor that an epoll object watches."""
        return self._sock.fileno()

    def receive_nowait(self, buffer: memoryview) -> int:
        """Receive without waiting. Raises BlockingIOError when no bytes are there."""
        try:
            return self._sock.recv_into(buffer)
        except BlockingIOError:
            raise
        except OSError as error:
            raise self._broken(error) from error

    def send_nowait(self, data: Body) -> int:
        try:
            return self._sock.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise self._broken(error) from error

    async def send_all(self, data: Body) -> None:
        self._has_waited = True
        with memoryview(data) as view:
            sent = 0
            while sent < len(view):
                try:
                    await trio.lowlevel.wait_writable(self._sock)
                except (OSError, ValueError, trio.ClosedResourceError) as error:
                    raise self._broken(error) from error
                with view[sent:] as rest:
                    sent += self.send_nowait(rest)

    async def aclose(self) -> None:
        if self._sock.fileno() >= 0:
            if self._has_waited:  # To notify costs four times as much as to close.
                trio.lowlevel.notify_closing(self._sock)
            self._sock.close()

    def _broken(self, error: Exception) -> NotReachableError:
        return NotReachableError(f"The connection broke ({error})", broker_addr=self.remote_addr)


class TcpListener:
    """One listening socket, and a descriptor in reserve.

    Connections that wait are accepted together, without a checkpoint between them.

    When this process has no other descriptor left, the reserve is spent on accepting a connection and closing it: its
    peer learns at once that there is no room, and the others behind it too.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.addr = _addr_of(sock.getsockname())
        self._sock = sock
        self._reserve: int | None = _reserve()
        self._rare_log = RareLog()
        self._in_a_row = ACCEPTS_AT_ONCE

    async def accept(self) -> SocketTransport:
        while True:
            try:
                self._in_a_row += 1
                if self._in_a_row > ACCEPTS_AT_ONCE:
                    self._in_a_row = 0
                    await trio.lowlevel.wait_readable(self._sock)
                sock, _ = self._sock.accept()
                return _transport(sock)
            except BlockingIOError:
                self._in_a_row = ACCEPTS_AT_ONCE
            except (ValueError, trio.ClosedResourceError):
                raise ClosedError(f"The listener on {self.addr} is closed") from None
            except OSError as error:
                if self._sock.fileno() < 0:
                    raise ClosedError(f"The listener on {self.addr} is closed") from None
                # Any other error means that the new connection is already gone.
                if error.errno in _NO_RESOURCES:
                    self._rare_log.error("cannot accept listener=%s error=%s", self.addr, error)
                    if not self._turn_away():
                        await trio.sleep(ACCEPT_PAUSE)

    def close(self) -> None:
        if self._sock.fileno() >= 0:
            trio.lowlevel.notify_closing(self._sock)
            self._sock.close()
            self._spend_reserve()

    def _turn_away(self) -> bool:
        """Close the next connection, in the place of the reserve; return whether there was a reserve."""
        if not self._spend_reserve():
            self._reserve = _reserve()
            return False
        with suppress(OSError):
            self._sock.accept()[0].close()
        self._reserve = _reserve()
        return True

    def _spend_reserve(self) -> bool:
        reserve, self._reserve = self._reserve, None
        if reserve is not None:
            os.close(reserve)
        return reserve is not None


def _reserve() -> int | None:
    """Return a descriptor that is of no use; None if there is none left."""
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


async def dial_tcp(addr: str, *, timeout: float = CONNECT_TIMEOUT) -> SocketTransport:
    """Connect to the first address of the host that accepts. Raises NotReachableError."""
    host, port = split_addr(addr)
    with trio.move_on_after(timeout):
        try:
            targets = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:  # UnicodeError for a name that DNS does not allow.
            why = error.strerror if isinstance(error, OSError) else error
            raise NotReachableError(f"The host of {addr} is not known ({why})") from error
        refusals = []
        for family, kind, protocol, _, target in targets:
            try:
                sock = socket.socket(family, kind, protocol)
            except OSError as error:
                refusals.append(error.strerror or str(error))
                continue
            try:
                await _connect(sock, target)
                return _transport(sock)
            except OSError as error:
                sock.close()
                refusals.append(error.strerror or str(error))
                continue
            except BaseException:
                sock.close()
                raise
        raise NotReachableError(
            f"No connection to {addr} ({', '.join(refusals)})", broker_addr=addr
        )
    raise NotReachableError(f"No connection to {addr} within {timeout:g} s", broker_addr=addr)


async def listen_tcp(addr: str) -> TcpListener:
    """Listen on one address. Raises ConfigError when it is taken or does not belong to this machine."""
    host, port = split_addr(addr)
    try:
        targets = await trio.socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"Cannot listen on {addr}: {why}") from error
    family, kind, protocol, _, target = targets[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(target)
        sock.listen(BACKLOG)
        return TcpListener(sock)
    except OSError as error:
        sock.close()
        raise ConfigError(f"Cannot listen on {addr}: {error.strerror}") from error


async def _connect(sock: socket.socket, target: object) -> None:
    sock.setblocking(False)
    status = sock.connect_ex(target)  # type: ignore[arg-type]
    if status == errno.EINPROGRESS:
        await trio.lowlevel.wait_writable(sock)
        status = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if status:
        raise OSError(status, os.strerror(status))


def _transport(sock: socket.socket) -> SocketTransport:
    try:
        return SocketTransport(sock)
    except OSError:  # The peer has already gone, so its address is unknown.
        sock.close()
        raise


def _addr_of(name: object) -> str:
    return join_addr(name[0], name[1]) if isinstance(name, tuple) else "unix:0"
