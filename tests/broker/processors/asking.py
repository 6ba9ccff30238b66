"""A broker in memory and a connection to it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import attrs
from tests.support.stores import put_of

from rocketrio_broker.broker import Broker
from rocketrio_broker.embedded import CLIENT_HOST, EmbeddedCluster
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.heartbeat import HeartbeatData
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.client import HeartBeatRequestHeader
from rocketrio_protocol.headers import RequestHeader
from rocketrio_protocol.remoting.dispatch import Processor
from rocketrio_protocol.remoting.pool import ChannelPool, open_channel_pool


@attrs.define
class Asking:
    """One client of one broker."""

    cluster: EmbeddedCluster
    pool: ChannelPool
    broker: Broker

    async def ask(
        self, header: RequestHeader | RemotingCommand, body: bytes = b"", *, timeout: float = 3.0
    ) -> RemotingCommand:
        return await self.pool.call(self.broker.address, header, body, timeout=timeout)

    async def beat(self, data: HeartbeatData, **changes: Any) -> RemotingCommand:
        """Send a heartbeat; `changes` are of the request."""
        request = RemotingCommand.request(HeartBeatRequestHeader(), fastjson.dumps(data))
        return await self.ask(attrs.evolve(request, **changes))

    async def ask_name_server(self, header: RequestHeader) -> RemotingCommand:
        return await self.pool.call(self.cluster.name_server.addr, header)

    @asynccontextmanager
    async def other_client(
        self, processors: dict[int, Processor], *, host: str = CLIENT_HOST
    ) -> AsyncGenerator["Asking"]:
        """Another connection, that answers what the broker asks."""
        dial = self.cluster.dial_from(host)
        async with open_channel_pool(dial, processors=processors) as pool:
            yield Asking(self.cluster, pool, self.broker)

    def put(self, topic: str, *bodies: bytes, queue_id: int = 0, at_ms: int = 1000) -> None:
        """Store messages, each with the store time of the cluster's clock."""
        for body in bodies:
            self.broker.store.append(put_of(body, topic, queue_id, born_time_ms=at_ms))


@asynccontextmanager
async def asking(**settings: Any) -> AsyncGenerator[Asking]:
    """A broker with these settings, and a connection to it."""
    async with (
        EmbeddedCluster(cluster_name="lab", **settings) as cluster,
        open_channel_pool(cluster.dial) as pool,
    ):
        yield Asking(cluster, pool, cluster.master.broker)
