"""The transports that every remoting test runs over, and a server to talk to."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import attrs
import trio

from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.dispatch import Processor
from rocketrio_protocol.remoting.memory_network import MemoryNetwork
from rocketrio_protocol.remoting.ports import Dial, Listen
from rocketrio_protocol.remoting.server import serve_remoting
from rocketrio_protocol.remoting.tasks import background_nursery
from rocketrio_protocol.remoting.tcp import dial_tcp, listen_tcp

ECHO = 10


@attrs.frozen
class Network:
    """Where a test listens and dials."""

    dial: Dial
    listen: Listen
    listen_addr: str


def network_of(kind: str) -> Network:
    if kind == "tcp":
        return Network(dial_tcp, listen_tcp, "127.0.0.1:0")
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
