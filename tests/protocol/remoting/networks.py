"""The transports that every remoting test runs over, and a server to talk to."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import attrs
import trio

from rocketrio_broker.testing.memory_network import MemoryNetwork
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.errors import ClosedError, NotReachable
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.dispatch import Processor
from rocketrio_protocol.remoting.ports import (
    CONNECT_TIMEOUT,
    Dial,
    Listen,
    join_addr,
    split_addr,
)
from rocketrio_protocol.remoting.server import serve_remoting
from rocketrio_protocol.remoting.streams import StreamTransport
from rocketrio_protocol.remoting.tasks import background_nursery
from rocketrio_protocol.remoting.tcp import dial_tcp, listen_tcp

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
        raise NotReachable(f"No connection to {addr}", broker_addr=addr) from error


async def listen_stream(addr: str) -> StreamListener:
    host, port = split_addr(addr)
    return StreamListener((await trio.open_tcp_listeners(port, host=host))[0])


def network_of(kind: str) -> Network:
    if kind == "tcp":
        return Network(dial_tcp, listen_tcp, "127.0.0.1:0")
    if kind == "stream":
        return Network(dial_stream, listen_stream, "127.0.0.1:0")
    memory = MemoryNetwork()
    return Network(memory.host("10.0.0.9").dial, memory.host("10.0.0.1").listen, "10.0.0.1:0")


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
