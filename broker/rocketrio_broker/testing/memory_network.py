"""A network in memory for tests: `dial` and `listen` by `host:port`, with faults on demand.

Each host uses the network through `network.host("10.0.0.1")`, whose `dial` and `listen` implement the interfaces of
`ports`. Only a `delay` takes time, so that under a virtual clock the time moves only for timeouts and delays.

Invariant: bytes written to a connection arrive once and in order, or the connection breaks or ends. A silenced or
partitioned connection keeps them until the fault is healed, as TCP retransmits.
"""

import operator
from collections import deque
from collections.abc import Iterator
from itertools import count
from typing import Final

import trio

from rocketrio_protocol.errors import ClosedError, ConfigError, NotReachableError
from rocketrio_protocol.frame import Body
from rocketrio_protocol.remoting.ports import CONNECT_TIMEOUT, join_addr, split_addr
from rocketrio_protocol.remoting.streams import StreamTransport

PIPE_SIZE: Final = 256 * 1024
"""Bytes under way in one direction: about as many as the kernel buffers on a loopback connection."""


class MemoryPipe:
    """One direction of a connection: bytes from one writer to one reader."""

    def __init__(self) -> None:
        self.delay = 0.0
        """Seconds until bytes written from now on arrive."""
        self._data = bytearray()
        self._due: deque[tuple[float, int]] = (
            deque()
        )  # (arrival time, bytes); empty when all have arrived
        self._due_size = 0
        self._held = False
        self._broken = False
        self._cut_short = False
        self._writer_closed = False
        self._reader_closed = False
        self._putting = False
        self._taking = False
        self._changed = trio.lowlevel.ParkingLot()

    @property
    def is_over(self) -> bool:
        """True if both ends are closed."""
        return self._writer_closed and self._reader_closed

    # -------------------------------------------------------------------------- for the two ends

    async def put(self, data: bytes | bytearray | memoryview) -> None:
        """Write all bytes, waiting for room."""
        if self._putting:
            raise trio.BusyResourceError("another task is sending")
        self._putting = True
        try:
            await trio.lowlevel.checkpoint()
            self._check_writable()
            position = 0
            while position < len(data) and not self._cut_short:
                await self._wait_room()
                taken = data[position : position + PIPE_SIZE - len(self._data)]
                if not self._cut_short:
                    self._data += taken
                    self._note_due(len(taken))
                position += len(taken)
                self._changed.unpark_all()
        finally:
            self._putting = False

    def put_nowait(self, data: bytes | bytearray | memoryview) -> int:
        """Write as many bytes as there is room for, like a socket; return how many."""
        if self._putting:
            return 0
        self._check_writable()
        taken = data[: max(0, PIPE_SIZE - len(self._data))]
        if self._cut_short:
            return len(data)  # The writer is not notified.
        if taken:
            self._data += taken
            self._note_due(len(taken))
            self._changed.unpark_all()
        return len(taken)

    async def wait_room(self) -> None:
        """Wait until at least one byte can be written."""
        if self._putting:
            raise trio.BusyResourceError("another task is sending")
        self._putting = True
        try:
            await trio.lowlevel.checkpoint()
            await self._wait_room()
        finally:
            self._putting = False

    async def take(self, limit: int) -> bytes:
        """Wait for bytes and read at most `limit` of them; return b"" at the end of the stream."""
        if self._taking:
            raise trio.BusyResourceError("another task is receiving")
        self._taking = True
        try:
            if self._is_readable():
                await trio.lowlevel.checkpoint()
            while not self._is_readable():
                await self._wait_change()
            if self._reader_closed:
                raise trio.ClosedResourceError
            if self._broken:
                raise trio.BrokenResourceError("the connection was reset")
            taken = bytes(self._data[: min(limit, self._arrived())])
            if taken:
                del self._data[: len(taken)]
                self._changed.unpark_all()
            return taken
        finally:
            self._taking = False

    def close_writer(self) -> None:
        """Close the writing end; bytes written before still arrive."""
        self._writer_closed = True
        self._changed.unpark_all()

    def close_reader(self) -> None:
        """Close the reading end; the writer fails as soon as the network lets it know."""
        self._reader_closed = True
        self._changed.unpark_all()

    # ------------------------------------------------------------------------------ for the network

    def hold(self, held: bool) -> None:
        """Stop delivering, as during a partition, or deliver again."""
        self._held = held
        self._changed.unpark_all()

    def cut_short(self) -> None:
        """End the stream for the reader after the bytes written so far; the writer is not notified."""
        self._cut_short = True
        self._changed.unpark_all()

    def break_off(self) -> None:
        """Drop the bytes under way, and notify both ends as soon as nothing holds the pipe."""
        self._broken = True
        self._changed.unpark_all()

    # ------------------------------------------------------------------------------------ internals

    async def _wait_room(self) -> None:
        self._check_writable()
        while len(self._data) >= PIPE_SIZE and not self._cut_short:
            await self._changed.park()
            self._check_writable()

    def _check_writable(self) -> None:
        if self._writer_closed:
            raise trio.ClosedResourceError
        if (self._broken or self._reader_closed) and not self._held:
            raise trio.BrokenResourceError("the peer closed the connection")

    def _note_due(self, size: int) -> None:
        # Bytes cannot overtake delayed ones.
        if self.delay or self._due:
            due = trio.current_time() + self.delay
            self._due.append((max(due, self._due[-1][0]) if self._due else due, size))
            self._due_size += size

    def _arrived(self) -> int:
        """Return how many bytes the reader may read now."""
        if self._due:
            now = trio.current_time()
            while self._due and self._due[0][0] <= now:
                self._due_size -= self._due.popleft()[1]
        return len(self._data) - self._due_size

    def _is_readable(self) -> bool:
        """Return whether there are bytes, the end or an error for the reader."""
        if self._held or self._reader_closed:
            return self._reader_closed
        if self._broken or self._arrived():
            return True
        return not self._data and (self._writer_closed or self._cut_short)

    async def _wait_change(self) -> None:
        if self._due and not self._held:
            with trio.move_on_at(self._due[0][0]):
                await self._changed.park()
        else:
            await self._changed.park()


FIRST_FREE_PORT: Final = 49_152
"""The first port that is given to dialled connections, and to listeners on port 0 (RFC 6335)."""


class MemoryStream(trio.abc.Stream):
    """One end of a connection in memory, as a trio stream."""

    def __init__(self, incoming: MemoryPipe, outgoing: MemoryPipe) -> None:
        self._incoming = incoming
        self._outgoing = outgoing

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._outgoing.put(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._outgoing.wait_room()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        if max_bytes is not None and operator.index(max_bytes) < 1:
            raise ValueError("max_bytes must be 1 or more")
        return await self._incoming.take(PIPE_SIZE if max_bytes is None else max_bytes)

    async def aclose(self) -> None:
        self._outgoing.close_writer()
        self._incoming.close_reader()
        await trio.lowlevel.checkpoint()


def memory_stream_pair() -> tuple[MemoryStream, MemoryStream]:
    """Create the two ends of one connection."""
    there, back = MemoryPipe(), MemoryPipe()
    return MemoryStream(back, there), MemoryStream(there, back)


class MemoryTransport(StreamTransport):
    """One end of a connection in memory; like a socket, it sends without waiting while there is room."""

    def __init__(
        self, incoming: MemoryPipe, outgoing: MemoryPipe, *, local_addr: str, remote_addr: str
    ) -> None:
        stream = MemoryStream(incoming, outgoing)
        super().__init__(stream, local_addr=local_addr, remote_addr=remote_addr)
        self._outgoing = outgoing

    def send_nowait(self, data: Body) -> int:
        try:
            return self._outgoing.put_nowait(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise self._broken(error) from error


class MemoryListener:
    """Accepts connections on one address of a memory network."""

    def __init__(self, addr: str) -> None:
        self.addr = addr
        self.closed = False
        self._arrived: deque[tuple[MemoryTransport, tuple[MemoryPipe, MemoryPipe]]] = deque()
        self._changed = trio.lowlevel.ParkingLot()

    async def accept(self) -> MemoryTransport:
        await trio.lowlevel.checkpoint()
        while not self._arrived:
            if self.closed:
                raise ClosedError(f"The listener on {self.addr} is closed")
            await self._changed.park()
        return self._arrived.popleft()[0]

    def close(self) -> None:
        """Accept no more connections; those not accepted yet break, as the kernel resets them."""
        self.closed = True
        while self._arrived:
            for pipe in self._arrived.popleft()[1]:
                pipe.break_off()
        self._changed.unpark_all()

    def arrive(self, transport: MemoryTransport, pipes: tuple[MemoryPipe, MemoryPipe]) -> None:
        """Add a new connection to this address."""
        self._arrived.append((transport, pipes))
        self._changed.unpark()


class _Link:
    """One connection between two hosts, as seen by the network."""

    def __init__(self, dialer: str, server: str, pipes: tuple[MemoryPipe, MemoryPipe]) -> None:
        self.hosts = frozenset((dialer, server))
        self.pipes = pipes
        self.directions = ((dialer, server, pipes[0]), (server, dialer, pipes[1]))
        """(writer, reader, pipe) of both directions."""

    @property
    def is_over(self) -> bool:
        return all(pipe.is_over for pipe in self.pipes)


class MemoryNetwork:
    """All listeners and connections of one network, and the faults between its hosts."""

    def __init__(self) -> None:
        self._listeners: dict[str, MemoryListener] = {}
        self._links: list[_Link] = []
        self._held: set[tuple[str, str]] = set()
        """(writer, reader) pairs between which nothing passes."""
        self._delays: dict[tuple[str, str], float] = {}
        self._silent: set[str] = set()
        self._refusing: set[str] = set()
        self._healed = trio.lowlevel.ParkingLot()
        self._ports: Iterator[int] = count(FIRST_FREE_PORT)

    def host(self, name: str) -> "MemoryHost":
        """Return the network as seen by this host; a broker stores its name, which then must be an IP address."""
        return MemoryHost(self, name)

    # ---------------------------------------------------------------------------------------- faults

    def partition(self, host: str, other: str, *, one_way: bool = False) -> None:
        """Let nothing pass between two hosts: connections become silent, and dials time out.

        With `one_way` only bytes from `host` are held back; those from `other` still arrive on open connections.
        """
        self._held.add((host, other))
        if not one_way:
            self._held.add((other, host))
        self._apply()

    def silence(self, host: str) -> None:
        """Let nothing pass between a host and all others, as when its cable is pulled."""
        self._silent.add(host)
        self._apply()

    def delay(self, host: str, other: str, seconds: float) -> None:
        """Delay all bytes and dials between two hosts by `seconds`; 0 ends the delay."""
        for direction in ((host, other), (other, host)):
            if seconds:
                self._delays[direction] = seconds
            else:
                self._delays.pop(direction, None)
        self._apply()

    def half_close(self, host: str, other: str) -> None:
        """End the stream from `host` on each open connection to `other`, as a relay between them may.

        `other` reads the end; `host` is not notified, and what it writes is lost.
        """
        for link in self._links:
            for writer, reader, pipe in link.directions:
                if (writer, reader) == (host, other):
                    pipe.cut_short()

    def heal(self) -> None:
        """End all partitions, silences, delays and refusals; held bytes arrive."""
        self._held.clear()
        self._silent.clear()
        self._delays.clear()
        self._refusing.clear()
        self._apply()

    def reconnect(self, host: str, other: str | None = None) -> None:
        """End the partition between two hosts, or the silence of one; held bytes arrive."""
        if other is None:
            self._silent.discard(host)
        else:
            self._held -= {(host, other), (other, host)}
        self._apply()

    def refuse(self, addr: str) -> None:
        """Let dials to this address fail at once, as if nothing listened there; open connections continue."""
        self._refusing.add(addr)

    def cut(self, host: str, other: str | None = None) -> None:
        """Break all connections of a host, or those with one other host; both ends are notified unless the pipe is
        held.
        """
        for link in self._links:
            if self._concerns(link, host, other):
                for pipe in link.pipes:
                    pipe.break_off()

    # ------------------------------------------------------------------------------------ for hosts

    def listen(self, addr: str) -> MemoryListener:
        host, port = split_addr(addr)
        bound = addr if port else join_addr(host, next(self._ports))
        existing = self._listeners.get(bound)
        if existing is not None and not existing.closed:
            raise ConfigError(f"Cannot listen on {bound}: the address is in use")
        self._listeners[bound] = listener = MemoryListener(bound)
        return listener

    async def dial(self, dialer: str, addr: str, timeout: float) -> MemoryTransport:
        host, _ = split_addr(addr)
        await trio.lowlevel.checkpoint()
        with trio.move_on_after(timeout):
            while self._is_held(dialer, host) or self._is_held(host, dialer):
                await self._healed.park()
            await self._travel(dialer, host)
            listener = self._listeners.get(addr)
            if listener is None or listener.closed or addr in self._refusing:
                raise NotReachableError(f"No connection to {addr} (refused)", broker_addr=addr)
            return self._connect(dialer, listener, host)
        raise NotReachableError(f"No connection to {addr} within {timeout:g} s", broker_addr=addr)

    def _connect(self, dialer: str, listener: MemoryListener, host: str) -> MemoryTransport:
        there, back = MemoryPipe(), MemoryPipe()
        self._links = [link for link in self._links if not link.is_over]
        self._links.append(_Link(dialer, host, (there, back)))
        there.delay, back.delay = self._delay(dialer, host), self._delay(host, dialer)
        dialer_addr = join_addr(dialer, next(self._ports))
        listener.arrive(
            MemoryTransport(there, back, local_addr=listener.addr, remote_addr=dialer_addr),
            (there, back),
        )
        return MemoryTransport(back, there, local_addr=dialer_addr, remote_addr=listener.addr)

    async def _travel(self, dialer: str, host: str) -> None:
        """Wait as long as the handshake of a new connection takes."""
        seconds = self._delay(dialer, host) + self._delay(host, dialer)
        if seconds:
            await trio.sleep(seconds)

    def _delay(self, writer: str, reader: str) -> float:
        return self._delays.get((writer, reader), 0.0)

    def _is_held(self, writer: str, reader: str) -> bool:
        is_silent = writer != reader and (writer in self._silent or reader in self._silent)
        return is_silent or (writer, reader) in self._held

    def _apply(self) -> None:
        for link in self._links:
            for writer, reader, pipe in link.directions:
                pipe.delay = self._delay(writer, reader)
                pipe.hold(self._is_held(writer, reader))
        self._healed.unpark_all()

    @staticmethod
    def _concerns(link: _Link, host: str, other: str | None) -> bool:
        return link.hosts == {host, other} if other is not None else host in link.hosts


class MemoryHost:
    """The network as seen by one host: implements Dial and Listen."""

    def __init__(self, network: MemoryNetwork, name: str) -> None:
        self.name = name
        self._network = network

    async def dial(self, addr: str, *, timeout: float = CONNECT_TIMEOUT) -> MemoryTransport:
        return await self._network.dial(self.name, addr, timeout)

    async def listen(self, addr: str) -> MemoryListener:
        await trio.lowlevel.checkpoint()
        return self._network.listen(addr)
