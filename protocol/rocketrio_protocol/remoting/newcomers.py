"""Accepted connections that are not served yet: the hosts that they come from take turns.

To accept a connection costs little, and to begin to serve it a fraction of a millisecond. So all that wait in the queue
of the operating system, where a crowd stands before a neighbour, are accepted at once and admitted host by host.
"""

from collections import deque
from collections.abc import Iterator

import trio

from rocketrio_protocol.remoting.ports import Transport
from rocketrio_protocol.remoting.server_limits import host_of


class Newcomer:
    """An accepted connection that has a place and is not served yet."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.remote_addr = transport.remote_addr
        self.last_received = trio.current_time()
        self.is_turned_away = False
        """Whether another connection has got its place."""

    def close(self, reason: str) -> None:
        """Give the place up."""
        self.is_turned_away = True


class Newcomers:
    """The newcomers of one server, by their hosts."""

    def __init__(self) -> None:
        self._by_host: dict[str, deque[Newcomer]] = {}
        self._came = trio.Event()

    def __iter__(self) -> Iterator[Newcomer]:
        for waiting in self._by_host.values():
            yield from waiting

    def add(self, newcomer: Newcomer) -> None:
        """Let a connection wait until it is its host's turn."""
        self._by_host.setdefault(host_of(newcomer.remote_addr), deque()).append(newcomer)
        self._came.set()

    def next(self) -> Newcomer | None:
        """Remove and return the first newcomer of the host whose turn it is; None if no newcomer waits."""
        for host, waiting in self._by_host.items():
            del self._by_host[host]
            newcomer = waiting.popleft()
            if waiting:
                self._by_host[host] = waiting  # At the end of the line.
            return newcomer
        return None

    async def wait(self) -> None:
        """Return once a newcomer waits, after other tasks have had their turn."""
        if self._by_host:
            await trio.lowlevel.checkpoint()
            return
        self._came = trio.Event()
        await self._came.wait()
