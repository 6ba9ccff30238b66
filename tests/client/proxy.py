"""A server that stands before brokers as Apache's 5.x proxy does for remoting clients.

Its routes name the brokers and its own address for each of them, so that a request must say which broker it is for:
in `n` where the header is the short one of sends, in the body where queues are locked, and otherwise in `bname`.
"""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

import attrs

from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.bodies.fastjson import loads
from rocketrio_protocol.bodies.route import TopicRouteData
from rocketrio_protocol.codes import MASTER_ID, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.client import (
    CheckClientConfigRequestHeader,
    GetConsumerListByGroupRequestHeader,
    HeartBeatRequestHeader,
    UnregisterClientRequestHeader,
)
from rocketrio_protocol.commands.cluster import GetRouteInfoRequestHeader
from rocketrio_protocol.commands.consumer import (
    LockBatchMqRequestHeader,
    UnlockBatchMqRequestHeader,
)
from rocketrio_protocol.commands.send import (
    SendBatchMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.pool import ChannelPool, open_channel_pool
from rocketrio_protocol.remoting.server import serve_remoting
from rocketrio_protocol.remoting.tasks import background_nursery

HOST = "10.0.0.80"
ADDRESS = f"{HOST}:8080"
RELAY_TIMEOUT = 30.0

SHORT = {int(header.code) for header in (SendMessageRequestHeaderV2, SendBatchMessageRequestHeader)}
LOCKS = {int(header.code) for header in (LockBatchMqRequestHeader, UnlockBatchMqRequestHeader)}
TO_ALL = {
    int(header.code)
    for header in (
        HeartBeatRequestHeader,
        UnregisterClientRequestHeader,
        CheckClientConfigRequestHeader,
        GetConsumerListByGroupRequestHeader,
    )
}


@attrs.define
class Proxy:
    """What it relays to, and what it was asked."""

    pool: ChannelPool
    name_server: str
    brokers: dict[str, str]
    asked: list[tuple[int, str | None]] = attrs.Factory(list)
    """Code and named broker of each request that is for one broker."""

    async def answer(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        if request.code == GetRouteInfoRequestHeader.code:
            return await self._route(request)
        if request.code in TO_ALL:
            answers = [await self._relay(request, addr) for addr in self.brokers.values()]
            return answers[0]
        name = _broker_name(request)
        self.asked.append((request.code, name))
        if name is None:
            return request.response(
                code=ResponseCode.VERSION_NOT_SUPPORTED, remark="Request doesn't have field bname"
            )
        return await self._relay(request, self.brokers[name])

    async def _route(self, request: RemotingCommand) -> RemotingCommand:
        answer = await self._relay(request, self.name_server)
        if answer.code == ResponseCode.SUCCESS:
            route = loads(answer.body, TopicRouteData)
            for broker in route.broker_datas:
                broker.broker_addrs = {MASTER_ID: ADDRESS}
            answer.body = route.to_json()
        return answer

    async def _relay(self, request: RemotingCommand, addr: str) -> RemotingCommand:
        told = attrs.evolve(request, ext_fields=request.ext_fields)
        if request.is_oneway:
            await self.pool.send_oneway(addr, told)
            return request.response()
        answer = await self.pool.call(addr, told, timeout=RELAY_TIMEOUT)
        return attrs.evolve(answer, opaque=request.opaque, ext_fields=answer.ext_fields)


def _broker_name(request: RemotingCommand) -> str | None:
    if request.code in LOCKS:
        queues = json.loads(bytes(request.body))["mqSet"]
        return str(queues[0]["brokerName"])
    return request.ext_fields.get("n" if request.code in SHORT else "bname")


@asynccontextmanager
async def proxy(cluster: EmbeddedCluster, brokers: dict[str, str]) -> AsyncGenerator[Proxy]:
    """One before these brokers, each by its name."""
    listener = await cluster.listen_on(HOST)(ADDRESS)
    async with (
        open_channel_pool(dial=cluster.dial_from(HOST)) as pool,
        background_nursery() as nursery,
    ):
        opened = Proxy(pool, cluster.name_servers[0], brokers)
        nursery.start_soon(partial(serve_remoting, [listener], {}, default=opened.answer))
        yield opened
