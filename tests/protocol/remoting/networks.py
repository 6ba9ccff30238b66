"""The transports that every remoting test runs over, and a server to talk to."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, nullcontext, suppress

import attrs
import trio
from tests.support.tls import client_context, server_context

from rocketrio_broker.testing.memory_network import MemoryNetwork
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.errors import ClosedError, NotReachableError
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.dispatch import Processor
from rocketrio_protocol.remoting.ports import (
    CONNECT_TIMEOUT,
    Dial,
    Listen,
    Listener,
    Transport,
    join_addr,
    split_addr,
)
from rocketrio_protocol.remoting.server import serve_remoting
from rocketrio_protocol.remoting.streams import StreamTransport
from rocketrio_protocol.remoting.tasks import background_nursery
from rocketrio_protocol.remoting.tcp import dial_tcp, listen_tcp
from rocketrio_protocol.remoting.tls import accept_tls, tls_dial

ECHO = 10


@attrs.frozen
class Network:
    """Where a test listens and dials."""

    dial: Dial
    listen: Listen
    listen_addr: str


class StreamListener:
    """TCP by trio's own streams: what TLS will be laid upon."""

    def __init__(self, listener: trio.SocketListener) -> None:
        self.addr = join_addr(*listener.socket.getsockname())
        self._listener = listener

    async def accept(self) -> StreamTransport:
        try:
            return transport_of(await self._listener.accept())
        except trio.ClosedResourceError:
            raise ClosedError("closed") from None

    def close(self) -> None:
        self._listener.socket.close()


def transport_of(stream: trio.SocketStream) -> StreamTransport:
    return StreamTransport(
        stream,
        local_addr=join_addr(*stream.socket.getsockname()),
        remote_addr=join_addr(*stream.socket.getpeername()),
    )


async def dial_stream(addr: str, *, timeout: float = CONNECT_TIMEOUT) -> StreamTransport:
    host, port = split_addr(addr)
    try:
        return transport_of(await trio.open_tcp_stream(host, port))
    except OSError as error:
        raise NotReachableError(f"No connection to {addr}", broker_addr=addr) from error


async def listen_stream(addr: str) -> StreamListener:
    host, port = split_addr(addr)
    return StreamListener((await trio.open_tcp_listeners(port, host=host))[0])


def over_tls(network: Network) -> Network:
    """Return a network where all connections use TLS; a server's handshake is done when it accepts."""

    async def listen(addr: str) -> Listener:
        return TlsListener(await network.listen(addr))

    return Network(tls_dial(network.dial, client_context), listen, network.listen_addr)


class TlsListener:
    """A listener that does handshakes on its own, as the kernel completes connections that no task accepts."""

    def __init__(self, listener: Listener) -> None:
        self.addr = listener.addr
        self._listener = listener
        self._arrived, self._ready = trio.open_memory_channel[Transport](100)
        trio.lowlevel.spawn_system_task(self._accept)

    async def accept(self) -> Transport:
        try:
            return await self._ready.receive()
        except trio.EndOfChannel:
            raise ClosedError("closed") from None

    def close(self) -> None:
        self._listener.close()

    async def _accept(self) -> None:
        try:
            with suppress(ClosedError):
                while True:
                    transport = await self._listener.accept()
                    with suppress(NotReachableError):
                        await self._arrived.send(await accept_tls(transport, server_context()))
        finally:
            self._arrived.close()
            with suppress(trio.EndOfChannel):
                while True:
                    await self._ready.receive_nowait().aclose()


def network_of(kind: str) -> Network:
    if kind.startswith("tls"):
        return over_tls(network_of("memory" if kind == "tls-memory" else "tcp"))
    if kind == "tcp":
        return Network(dial_tcp, listen_tcp, "127.0.0.1:0")
    if kind == "stream":
        return Network(dial_stream, listen_stream, "127.0.0.1:0")
    memory = MemoryNetwork()
    return Network(memory.host("10.0.0.9").dial, memory.host("10.0.0.1").listen, "10.0.0.1:0")


async def read_to_end(transport: Transport, *, may_break: bool = False) -> bytes:
    """Return all that a peer says until it closes the connection, or breaks it."""
    received, buffer = bytearray(), memoryview(bytearray(4096))
    with suppress(NotReachableError) if may_break else nullcontext():
        while size := await transport.receive_into(buffer):
            received += buffer[:size]
    return bytes(received)


def echo(channel: Channel, request: RemotingCommand) -> RemotingCommand:
    answer = request.response(body=bytes(request.body))
    answer.ext_fields.update(request.ext_fields)
    return answer


class ChannelLog:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.opened: list[Channel] = []
        self.closed: list[Channel] = []

    def channel_opened(self, channel: Channel) -> None:
        self.opened.append(channel)

    def channel_closed(self, channel: Channel) -> None:
        assert channel.closed
        self.closed.append(channel)


@asynccontextmanager
async def served(
    network: Network, processors: Mapping[int, Processor], **options: object
) -> AsyncGenerator[str]:
    """A server of those processors; the address it listens on."""
    listener = await network.listen(network.listen_addr)
    async with background_nursery() as nursery:

        async def serve(task_status: trio.TaskStatus[None]) -> None:
            await serve_remoting([listener], processors, task_status=task_status, **options)  # type: ignore[arg-type]

        await nursery.start(serve)
        yield listener.addr
