"""A broker in memory and a connection to it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import attrs

from rocketrio_broker.broker import Broker
from rocketrio_broker.embedded import CLIENT_HOST, EmbeddedCluster
from rocketrio_broker.store.put_message import PutMessage
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.headers import RequestHeader
from rocketrio_protocol.record.layout import pack_host
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
        host = pack_host("10.0.0.1", 1)
        for body in bodies:
            self.broker.store.append(
                PutMessage(
                    topic=topic,
                    queue_id=queue_id,
                    flag=0,
                    sys_flag=0,
                    body=body,
                    properties=b"",
                    born_time_ms=at_ms,
                    born_host=host,
                    store_host=host,
                )
            )


@asynccontextmanager
async def asking(**settings: Any) -> AsyncGenerator[Asking]:
    """A broker with these settings, and a connection to it."""
    async with (
        EmbeddedCluster(cluster_name="lab", **settings) as cluster,
        open_channel_pool(cluster.dial) as pool,
    ):
        yield Asking(cluster, pool, cluster.master.broker)
