"""What stories about a whole cluster share: a pool of connections and the few requests they make."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import attrs
import msgspec

from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.admin import (
    ChangeBrokerRoleRequestHeader,
    CreateTopicRequestHeader,
    GetBrokerHAStatusRequestHeader,
)
from rocketrio_protocol.commands.offset import (
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocketrio_protocol.commands.pull import PullMessageRequestHeader
from rocketrio_protocol.commands.send import SendMessageRequestHeaderV2
from rocketrio_protocol.ha.status import HARuntimeInfo, OwnStatus
from rocketrio_protocol.message import MessageExt, decode_messages
from rocketrio_protocol.remoting.pool import ChannelPool, open_channel_pool

SUSPEND = 2
SUBSCRIPTION = 4
COMMIT = 1


@attrs.define
class Caller:
    """Requests in few words."""

    pool: ChannelPool

    async def send(
        self,
        addr: str,
        body: bytes,
        *,
        topic: str = "orders",
        queue_id: int = 0,
        properties: str = "",
        timeout: float = 30.0,
        **fields: object,
    ) -> RemotingCommand:
        header = SendMessageRequestHeaderV2(
            "producers", topic, "TBW102", 4, queue_id, 0, 1_700_000_000_000, 0, properties
        )
        header = msgspec.structs.replace(header, **fields)
        return await self.pool.call(addr, header, body, timeout=timeout)

    async def pull(
        self,
        addr: str,
        offset: int,
        *,
        topic: str = "orders",
        queue_id: int = 0,
        group: str = "billing",
        max_messages: int = 32,
        sys_flag: int = SUBSCRIPTION,
        suspend: float = 0.0,
        expression: str | None = "*",
        timeout: float = 60.0,
        **fields: object,
    ) -> RemotingCommand:
        header = PullMessageRequestHeader(
            group,
            topic,
            queue_id,
            offset,
            max_messages,
            sys_flag,
            0,
            int(suspend * 1000),
            0,
            expression,
        )
        header = msgspec.structs.replace(header, **fields)
        return await self.pool.call(addr, header, timeout=timeout)

    async def commit(self, addr: str, offset: int, *, queue_id: int = 0) -> RemotingCommand:
        header = UpdateConsumerOffsetRequestHeader("billing", "orders", queue_id, offset)
        return await self.pool.call(addr, header, timeout=30.0)

    async def committed(self, addr: str, *, queue_id: int = 0) -> int:
        header = QueryConsumerOffsetRequestHeader("billing", "orders", queue_id)
        return int((await self.pool.call(addr, header, timeout=30.0)).ext_fields["offset"])

    async def create_topic(self, addr: str, topic: str = "orders", queues: int = 4) -> None:
        header = CreateTopicRequestHeader(
            topic, "TBW102", queues, queues, 6, "SINGLE_TAG", order=False
        )
        accepted(await self.pool.call(addr, header, timeout=30.0))

    async def change_role(
        self, addr: str, role: str, broker_id: int, *, accept_loss: bool = False
    ) -> RemotingCommand:
        """Return the broker's answer, which comes once its role has changed."""
        header = ChangeBrokerRoleRequestHeader(role, broker_id, accept_loss)
        return await self.pool.call(addr, header, timeout=90.0)

    async def status(self, addr: str) -> HARuntimeInfo:
        answer = accepted(await self.pool.call(addr, GetBrokerHAStatusRequestHeader()))
        return HARuntimeInfo.from_json(answer.body)

    async def own_status(self, addr: str) -> OwnStatus:
        """Return what a broker says of itself, and not of its connections."""
        own = (await self.status(addr)).rocketrio
        assert own is not None
        return own

    async def problems(self, addr: str) -> list[str]:
        """Return what a broker's status says is wrong."""
        return (await self.own_status(addr)).problems

    async def read(self, addr: str, *, topic: str = "orders", queue_id: int = 0) -> list[bytes]:
        """Return the body of every message in a queue of the topic, by default its first one."""
        found: list[bytes] = []
        while batch := bodies(await self.pull(addr, len(found), topic=topic, queue_id=queue_id)):
            found += batch
        return found


def accepted(answer: RemotingCommand) -> RemotingCommand:
    """Return an answer that must not be a refusal."""
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer


def messages(answer: RemotingCommand) -> list[MessageExt]:
    return decode_messages(answer.body)


def bodies(answer: RemotingCommand) -> list[bytes]:
    return [message.body for message in messages(answer)]


@asynccontextmanager
async def caller_of(cluster: EmbeddedCluster) -> AsyncGenerator[Caller]:
    async with open_channel_pool(cluster.dial) as pool:
        yield Caller(pool)
