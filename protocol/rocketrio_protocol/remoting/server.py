"""Serves remoting connections: accepts each one, runs its channel, and notifies an observer of start and end.

Invariant: a fault of one connection ends only that connection, also where it is a bug of this program.
Answers to: NettyRemotingServer.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import trio

from rocketrio_protocol.connection import RemotingConnection
from rocketrio_protocol.errors import ClosedError
from rocketrio_protocol.frame import REQUEST_HEADER_SIZE_LIMIT
from rocketrio_protocol.remoting.channel import (
    IDLE_TIMEOUT,
    RECEIVE_SIZE,
    REQUESTS_AT_ONCE,
    Channel,
)
from rocketrio_protocol.remoting.dispatch import Dispatcher, Processor
from rocketrio_protocol.remoting.faults import ConnectionFaults
from rocketrio_protocol.remoting.newcomers import Newcomer, Newcomers
from rocketrio_protocol.remoting.ports import Listener, PolledTransport, Transport
from rocketrio_protocol.remoting.rare_log import RareLog
from rocketrio_protocol.remoting.reactor import Reactor
from rocketrio_protocol.remoting.server_limits import ChannelRoom, ConnectionPlaces, ServerLimits
from rocketrio_protocol.remoting.server_tls import Arrival, ServerTls
from rocketrio_protocol.remoting.sweeper import Sweeper

ADMITTED_AT_ONCE: Final = 8
"""Newcomers that a server begins to serve in a tick of the scheduler; each costs a fraction of a millisecond."""


class ChannelObserver(Protocol):
    """Is notified of every channel of a server. Both methods are called synchronously and must not raise."""

    def channel_opened(self, channel: Channel) -> None:
        """Take note of a channel whose first request is not processed yet."""
        ...

    def channel_closed(self, channel: Channel) -> None:
        """Take note that a channel ended, once for each, after its pending calls have failed."""
        ...


async def serve_remoting(
    listeners: Sequence[Listener],
    processors: Mapping[int, Processor],
    *,
    default: Processor | None = None,
    observer: ChannelObserver | None = None,
    msgpack_allowed: bool = True,
    idle_timeout: float = IDLE_TIMEOUT,
    limits: ServerLimits | None = None,
    places: ConnectionPlaces | None = None,
    tls: ServerTls | None = None,
    faults: ConnectionFaults | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve every listener until cancelled or until all are closed; then close them and all connections.

    `processors` is read at each request, so codes may be added while it serves. `default` processes the codes that it
    does not contain; without it they are answered as not supported. Without `tls` all connections are plain. Servers
    may share `places`. `faults` counts the connections that a fault of this program has ended.
    """
    newcomers = Newcomers()
    try:
        async with trio.open_nursery() as nursery:
            server = _Server(
                dispatcher=Dispatcher(processors, nursery=nursery, default=default),
                observer=observer,
                msgpack_allowed=msgpack_allowed,
                idle_timeout=idle_timeout,
                limits=ServerLimits() if limits is None else limits,
                places=places,
                tls=tls,
                faults=ConnectionFaults() if faults is None else faults,
                newcomers=newcomers,
            )
            async with trio.open_nursery() as accepting:
                nursery.start_soon(server.sweeper.run)
                nursery.start_soon(server.reactor.run)
                nursery.start_soon(server.admit, nursery)
                for listener in listeners:
                    accepting.start_soon(server.accept, listener)
                task_status.started()
            nursery.cancel_scope.cancel()
    finally:
        for listener in listeners:
            listener.close()
        for newcomer in newcomers:
            await newcomer.transport.aclose()


class _Server:
    """The state that the connections of one server share."""

    def __init__(
        self,
        *,
        dispatcher: Dispatcher,
        observer: ChannelObserver | None,
        msgpack_allowed: bool,
        idle_timeout: float,
        limits: ServerLimits,
        places: ConnectionPlaces | None,
        tls: ServerTls | None,
        faults: ConnectionFaults,
        newcomers: Newcomers,
    ) -> None:
        self._newcomers = newcomers
        self.sweeper = Sweeper()
        self.reactor = Reactor()
        self._dispatcher = dispatcher
        self._observer = observer
        self._msgpack_allowed = msgpack_allowed
        self._idle_timeout = idle_timeout
        self._tls = tls
        self._faults = faults
        self._rare_log = RareLog()
        self._places = ConnectionPlaces(limits, self._rare_log) if places is None else places
        self._room = ChannelRoom(limits, self._rare_log)
        self._buffer = memoryview(bytearray(RECEIVE_SIZE))

    async def accept(self, listener: Listener) -> None:
        """Accept connections until the listener is closed, and keep those for which there is room."""
        while True:
            try:
                transport = await listener.accept()
            except ClosedError:
                return
            descriptor = transport.fileno() if isinstance(transport, PolledTransport) else 0
            if self._places.has_room(transport.remote_addr, descriptor):
                newcomer = Newcomer(transport)
                self._places.take(newcomer)
                self._newcomers.add(newcomer)
            else:
                await transport.aclose()

    async def admit(self, nursery: trio.Nursery) -> None:
        """Begin to serve newcomers, those of each host in turn, and let other tasks run after some of them."""
        while True:
            for _ in range(ADMITTED_AT_ONCE):
                newcomer = self._newcomers.next()
                if newcomer is None:
                    break
                # Its place goes to the channel, or to the arrival, that is made
                # of it in this step: no other newcomer gets it.
                self._places.leave(newcomer)
                try:
                    if not newcomer.is_turned_away:
                        self._admit(newcomer.transport, nursery)
                        continue
                except Exception as fault:
                    self._faults.note(newcomer.remote_addr, fault)
                await newcomer.transport.aclose()
            await self._newcomers.wait()

    def _admit(self, transport: Transport, nursery: trio.Nursery) -> None:
        if self._tls is None:
            channel = self._made(transport)
            self._places.take(channel)
            nursery.start_soon(self._serve, channel)
        else:
            arrival = Arrival(transport, self.reactor)
            self._places.take(arrival)
            nursery.start_soon(self._open, arrival, self._tls)

    async def _open(self, arrival: Arrival, tls: ServerTls) -> None:
        try:
            opened = await tls.open(arrival, self._buffer)
        except Exception as fault:
            # A bug in a handshake ends this arrival alone.
            self._faults.note(arrival.remote_addr, fault)
            opened = None
        finally:
            self._places.leave(arrival)
        if opened is not None:
            transport, received = opened
            channel = self._made(transport)
            self._places.take(channel)
            await self._serve(channel, received)

    def _made(self, transport: Transport) -> Channel:
        return Channel(
            transport,
            connection=RemotingConnection(
                msgpack_allowed=self._msgpack_allowed,
                header_size_limit=REQUEST_HEADER_SIZE_LIMIT,
                frames_at_once=REQUESTS_AT_ONCE,
            ),
            dispatch=self._dispatcher.dispatch,
            sweeper=self.sweeper,
            reactor=self.reactor,
            receive_buffer=self._buffer,
            rare_log=self._rare_log,
            faults=self._faults,
            idle_timeout=self._idle_timeout,
            room=self._room,
        )

    async def _serve(self, channel: Channel, received: bytes = b"") -> None:
        try:
            if self._observer is not None:
                self._observer.channel_opened(channel)
        except Exception as fault:
            channel.end_by_fault(fault)
        await channel.run(self._ended, received=received)

    def _ended(self, channel: Channel) -> None:
        self._places.leave(channel)
        if self._observer is not None:
            self._observer.channel_closed(channel)
