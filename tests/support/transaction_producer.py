"""A producer of transactions in few words: half messages, decisions, and what it is asked."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import msgspec
from tests.support.caller import Caller, messages

from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.heartbeat import HeartbeatData, ProducerData
from rocketrio_protocol.codes import RequestCode, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.client import HeartBeatRequestHeader
from rocketrio_protocol.commands.transaction import (
    TRANSACTION_COMMIT,
    TRANSACTION_ROLLBACK,
    TRANSACTION_UNKNOWN,
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from rocketrio_protocol.message import MessageExt
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.dispatch import Processor
from rocketrio_protocol.remoting.pool import open_channel_pool

COMMIT, ROLLBACK, UNKNOWN = TRANSACTION_COMMIT, TRANSACTION_ROLLBACK, TRANSACTION_UNKNOWN
GROUP = "producers"
HALF, OPERATIONS = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"


@attrs.frozen
class Half:
    """A half message as its send was answered."""

    key: str
    queue_offset: int
    physical_offset: int


@attrs.define(eq=False)
class TransactionProducer:
    """One client of one cluster's master."""

    cluster: EmbeddedCluster
    call: Caller
    decide: Callable[[MessageExt], int | None] = lambda _: None
    """What it answers when it is asked; None does not answer."""
    asked: list[tuple[CheckTransactionStateRequestHeader, MessageExt]] = attrs.Factory(list)
    sent: int = 0
    other_addr: str = ""
    """Of the master, where that is not the one the cluster began with."""

    @property
    def addr(self) -> str:
        return self.other_addr or self.cluster.master.broker.address

    async def heartbeat(self) -> None:
        body = HeartbeatData("producer@1", producer_data_set=[ProducerData(GROUP)])
        answer = await self.call.pool.call(
            self.addr, HeartBeatRequestHeader(), fastjson.dumps(body)
        )
        assert answer.code == ResponseCode.SUCCESS

    async def send(self, body: bytes, *, properties: str = "", **fields: Any) -> Half:
        """Send a half message."""
        self.sent += 1
        key = f"KEY{self.sent:04d}"
        more = f"\x02{properties}" if properties else ""
        text = f"TRAN_MSG\x01true\x02UNIQ_KEY\x01{key}\x02PGROUP\x01{GROUP}\x02WAIT\x01true{more}"
        fields.setdefault("born_timestamp", self.cluster.wall_clock.now_ms())
        answer = await self.call.send(self.addr, body, properties=text, sys_flag=4, **fields)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        address = int(answer.ext_fields["msgId"][-16:], 16)
        return Half(key, int(answer.ext_fields["queueOffset"]), address)

    async def end(
        self, half: Half, decision: int, *, addr: str | None = None, **fields: Any
    ) -> RemotingCommand:
        """Decide, and wait for the answer that the broker gives to who asks for one."""
        header = EndTransactionRequestHeader(
            GROUP, half.queue_offset, half.physical_offset, decision, half.key
        )
        return await self.call.pool.call(
            addr or self.addr, msgspec.structs.replace(header, **fields)
        )

    def check(self, channel: Channel, request: RemotingCommand) -> None:
        """Acts on 39 as a client does."""
        header = request.header(CheckTransactionStateRequestHeader)
        body = bytes(request.body)
        message = MessageExt(body, 0, len(body))
        self.asked.append((header, message))
        decision = self.decide(message)
        if decision is not None:
            answer = EndTransactionRequestHeader(
                message.property_value("PGROUP") or "",
                header.tran_state_table_offset,
                header.commit_log_offset,
                decision,
                header.msg_id or "",
                from_transaction_check=True,
            )
            channel.send_oneway(RemotingCommand.request(answer))

    async def seen(self, topic: str = "orders", queue_id: int = 0) -> list[MessageExt]:
        """What consumers of a topic get."""
        if self.cluster.master.broker.store.queue_bounds(topic, queue_id) is None:
            return []
        return messages(await self.call.pull(self.addr, 0, topic=topic, queue_id=queue_id))

    async def seen_bodies(self, topic: str = "orders") -> list[bytes]:
        return [message.body for message in await self.seen(topic)]


@asynccontextmanager
async def producing_on(
    cluster: EmbeddedCluster, decide: Callable[[MessageExt], int | None] = lambda _: None
) -> AsyncGenerator[TransactionProducer]:
    """A producer that is connected, and known by its heartbeat."""
    producer = TransactionProducer(cluster, Caller(None), decide)  # type: ignore[arg-type]
    processors: dict[int, Processor] = {RequestCode.CHECK_TRANSACTION_STATE: producer.check}
    async with open_channel_pool(cluster.dial, processors=processors) as pool:
        producer.call = Caller(pool)
        await producer.heartbeat()
        yield producer


@asynccontextmanager
async def producing(
    decide: Callable[[MessageExt], int | None] = lambda _: None, **settings: Any
) -> AsyncGenerator[TransactionProducer]:
    """The same with a cluster of its own."""
    async with (
        EmbeddedCluster(cluster_name="lab", **settings) as cluster,
        producing_on(cluster, decide) as producer,
    ):
        yield producer
