"""The connections that a client keeps: one for each address, dialled when first needed.

Invariant: at most one dial for an address is under way, shared by all waiting callers; cancelling one does not stop it.
Answers to: NettyRemotingClient (channelTables, createChannel).
Unlike Java: a lost connection is not dialled again in the background; the next call dials.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import trio

from rocketrio_protocol.codes import ResponseCode, SerializeType
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.connection import PreparedRequest, RemotingConnection
from rocketrio_protocol.errors import ClosedError, NotReachableError
from rocketrio_protocol.frame import Body
from rocketrio_protocol.headers import RequestHeader
from rocketrio_protocol.remoting.channel import (
    IDLE_TIMEOUT,
    RECEIVE_SIZE,
    SEND_REST_TIMEOUT,
    Channel,
)
from rocketrio_protocol.remoting.dispatch import Dispatcher, Processor
from rocketrio_protocol.remoting.faults import ConnectionFaults
from rocketrio_protocol.remoting.ports import CONNECT_TIMEOUT, Dial, Transport, split_addr
from rocketrio_protocol.remoting.rare_log import RareLog
from rocketrio_protocol.remoting.reactor import Reactor
from rocketrio_protocol.remoting.sweeper import Sweeper
from rocketrio_protocol.remoting.tasks import background_nursery
from rocketrio_protocol.signature import Signer

CALL_TIMEOUT: Final = 3.0
"""Seconds a call may take, its dial included (sendMsgTimeout and most timeoutMillis of Java's client)."""


@asynccontextmanager
async def open_channel_pool(
    dial: Dial,
    *,
    processors: Mapping[int, Processor] | None = None,
    serialize_type: SerializeType = SerializeType.JSON,
    connect_timeout: float = CONNECT_TIMEOUT,
    idle_timeout: float = IDLE_TIMEOUT,
    signer: Signer | None = None,
) -> AsyncGenerator["ChannelPool"]:
    """Open a pool for the duration of the block; leaving it sends queued bytes and closes every connection.

    A cancel around the block closes at once; what must still be sent then needs a shielded scope inside the block.
    `processors` process the requests of servers. `serialize_type` is the encoding of requests; MSGPACK is used with
    servers that agree, and JSON with all others. With a `signer` every request is signed.
    """
    async with background_nursery() as nursery:
        pool = ChannelPool(
            dial,
            nursery=nursery,
            processors={}
            if processors is None
            else processors,  # Not `or {}`: an empty mapping may be filled later.
            serialize_type=serialize_type,
            connect_timeout=connect_timeout,
            idle_timeout=idle_timeout,
            signer=signer,
        )
        nursery.start_soon(pool.sweeper.run)
        nursery.start_soon(pool.reactor.run)
        try:
            yield pool
        finally:
            await pool.send_rest()


def check(
    answer: RemotingCommand,
    what: str,
    *,
    broker_addr: str | None = None,
    topic: str | None = None,
) -> RemotingCommand:
    """Return the answer if its code is SUCCESS; otherwise raise the BrokerError of its code.

    `what` describes the request in a few words; the text of the error begins with it.
    """
    if answer.code == ResponseCode.SUCCESS:
        return answer
    raise answer.error(what, broker_addr=broker_addr, topic=topic)


class _Dialling:
    """A dial that is under way, and its result for the callers that wait for it."""

    def __init__(self) -> None:
        self.over = trio.Event()
        self.channel: Channel | None = None
        self.error: NotReachableError | None = None


class ChannelPool:
    """Sends calls to addresses. `open_channel_pool` creates it."""

    def __init__(
        self,
        dial: Dial,
        *,
        nursery: trio.Nursery,
        processors: Mapping[int, Processor],
        serialize_type: SerializeType,
        connect_timeout: float,
        idle_timeout: float,
        signer: Signer | None,
    ) -> None:
        self.sweeper = Sweeper()
        self.reactor = Reactor()
        self.faults = ConnectionFaults()
        """The connections that a fault of this program has ended."""
        self._dial = dial
        self._nursery = nursery
        self._dispatcher = Dispatcher(processors, nursery=nursery)
        self._serialize_type = serialize_type
        self._connect_timeout = connect_timeout
        self._idle_timeout = idle_timeout
        self._signer = signer
        self._channels: dict[str, Channel] = {}
        self._dialling: dict[str, _Dialling] = {}
        self._buffer = memoryview(bytearray(RECEIVE_SIZE))
        self._rare_log = RareLog()
        self._closed = False

    def __repr__(self) -> str:
        return f"<ChannelPool to {', '.join(self.open_addrs) or 'no server'}>"

    @property
    def open_addrs(self) -> list[str]:
        """The addresses that have an open connection."""
        return [addr for addr, channel in self._channels.items() if not channel.closed]

    def open_channel(self, addr: str) -> Channel | None:
        """Return the open connection to `addr`, or None."""
        channel = self._channels.get(addr)
        return None if channel is None or channel.closed else channel

    async def call(
        self,
        addr: str,
        request: RemotingCommand | RequestHeader | PreparedRequest,
        body: Body = b"",
        *,
        timeout: float = CALL_TIMEOUT,
    ) -> RemotingCommand:
        """Send a request to `addr` and return its answer, whatever its code. Raises as `Channel.call` does."""
        channel = self._channels.get(addr)
        started = None
        if channel is None or channel.closed:
            started = trio.current_time()
            channel = await self.channel(addr, timeout=timeout)
        return await channel.call(request, body, timeout=timeout, now=started)

    async def send_oneway(
        self,
        addr: str,
        request: RemotingCommand | RequestHeader,
        body: Body = b"",
        *,
        timeout: float = CALL_TIMEOUT,
    ) -> None:
        """Send a request that expects no answer; wait only for a connection. Raises as `Channel.send_oneway` does."""
        channel = await self.channel(addr, timeout=timeout)
        channel.send_oneway(request, body)

    async def channel(self, addr: str, *, timeout: float = CONNECT_TIMEOUT) -> Channel:
        """Return the connection to `addr`; dial if there is none. Raises NotReachableError, ConfigError.

        A cancel or timeout does not stop the dial; the next caller may use its result.
        """
        channel = self._channels.get(addr)
        if channel is not None and not channel.closed:
            return channel
        if self._closed:
            raise ClosedError(f"the client is closed and sends nothing to {addr}")
        split_addr(addr)  # Raises ConfigError for a malformed address.
        dialling = self._dialling.get(addr)
        if dialling is None:
            dialling = self._dialling[addr] = _Dialling()
            # In the pool's nursery and not in the caller's task: a caller that is
            # cancelled must not end the dial of the others.
            self._nursery.start_soon(self._connect, addr, dialling)
        with trio.move_on_after(max(timeout, 0.0)):
            await dialling.over.wait()
        if dialling.channel is not None:
            return dialling.channel
        if dialling.error is None:
            raise NotReachableError(
                f"No connection to {addr} within {timeout:g} s", broker_addr=addr
            )
        # Raise a new error: one object raised in many tasks would collect all their tracebacks.
        error = dialling.error
        raise type(error)(error.what, broker_addr=addr, remedy=error.advice) from error

    def drop(self, addr: str) -> None:
        """Close the connection to `addr`, if there is one; its pending calls fail."""
        channel = self._channels.get(addr)
        if channel is not None:
            channel.close("dropped")

    async def send_rest(self) -> None:
        """Refuse further calls, and give queued oneway requests a limited time to be sent."""
        self._closed = True
        with trio.move_on_after(SEND_REST_TIMEOUT, shield=True):
            for channel in list(self._channels.values()):
                await channel.drain()

    @trio.lowlevel.enable_ki_protection
    async def _connect(self, addr: str, dialling: _Dialling) -> None:
        try:
            transport = await self._dial(addr, timeout=self._connect_timeout)
            dialling.channel = self._channels[addr] = self._made(transport, addr)
        except NotReachableError as error:
            dialling.error = error
        except Exception as fault:
            self.faults.note(addr, fault)
            dialling.error = NotReachableError(
                f"No connection to {addr}: a fault of this program, which its log describes",
                broker_addr=addr,
            )
        finally:
            # After the channel is in the table: what is woken, or comes now, finds it and dials no second one.
            del self._dialling[addr]
            dialling.over.set()
        if dialling.channel is not None:
            await dialling.channel.run(partial(self._ended, addr))

    def _made(self, transport: Transport, addr: str) -> Channel:
        return Channel(
            transport,
            connection=RemotingConnection(
                serialize_type=self._serialize_type,
                signer=self._signer,
                receivers=(addr, transport.remote_addr),
            ),
            dispatch=self._dispatcher.dispatch,
            sweeper=self.sweeper,
            reactor=self.reactor,
            receive_buffer=self._buffer,
            rare_log=self._rare_log,
            faults=self.faults,
            idle_timeout=self._idle_timeout,
        )

    def _ended(self, addr: str, channel: Channel) -> None:
        # A newer connection may be there already.
        if self._channels.get(addr) is channel:
            del self._channels[addr]
