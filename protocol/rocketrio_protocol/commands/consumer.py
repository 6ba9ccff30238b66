"""What consumers ask about single messages and queues (36, 41, 42), and what is asked of them (220, 221, 307, 309).

Requests that a console sends to a broker, and that the broker puts to a client, have one header for both ways:
222 becomes 220, 223 becomes 221; 307 and 309 keep their number.

    {"clientId":"c","consumerGroup":"g","mqSet":[{"brokerName":"b","queueId":0,"topic":"t"}],"onlyThisBroker":false}
    {"lockOKMQSet":[...]}     {"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:12}}

Answers to: ConsumerSendMsgBackRequestHeader, LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody,
ResetOffsetBody, ResetOffsetBodyForC, GetConsumerStatusBody, ConsumeMessageDirectlyResult; RocketMQ reference,
sections 2.7, 2.8 and 2.10.
"""

from typing import ClassVar, Literal, Self

import attrs
import msgspec

from rocketrio_protocol import fastjson
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.frame import Body
from rocketrio_protocol.header_fields import RequestHeader, wire
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.queue_tables import by_queue

DEAD_LETTER_LEVEL = -1
"""The delay level of a message that shall not come again; any below 0 means it."""
BROKER_DECIDES_LEVEL = 0
"""The delay level by which the broker waits longer each time."""
FIRST_RETRY_LEVEL = 3
"""The delay level of the first redelivery; each further one waits one level more."""

TO_THE_END = -1
"""The timestamp of a reset that skips everything."""


@attrs.define
class ConsumerSendMsgBackRequestHeader(RequestHeader):
    """A message that could not be consumed goes back to its group; `offset` is its address in the log."""

    code: ClassVar = RequestCode.CONSUMER_SEND_MSG_BACK
    offset: int
    group: str
    delay_level: int
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool | None = None
    max_reconsume_times: int | None = None
    broker_name: str | None = wire("bname", default=None)


@attrs.define
class LockBatchMqRequestHeader(RequestHeader):
    """The body is LockBatch, the answer's LockedBatch. The field is a rocketrio extension, which Apache ignores.

    `holds`: whether the member works with these queues' locks now, which perhaps a former run of the broker gave.
    """

    code: ClassVar = RequestCode.LOCK_BATCH_MQ
    holds: bool | None = wire("rocketrioHolds", default=None)


@attrs.define
class UnlockBatchMqRequestHeader(RequestHeader):
    """No fields; the body is LockBatch."""

    code: ClassVar = RequestCode.UNLOCK_BATCH_MQ


@attrs.define
class ResetConsumerClientOffsetRequestHeader(RequestHeader):
    """Broker to consumer, oneway: go on from the offsets in the body, a ResetOffsetBody."""

    code: ClassVar = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
    topic: str
    group: str
    timestamp: int
    is_force: bool


@attrs.define
class GetConsumerStatusFromClientRequestHeader(RequestHeader):
    """Broker to consumer: the offsets it holds in memory; the answer's body is ConsumerStatusBody."""

    code: ClassVar = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
    topic: str
    group: str
    client_addr: str | None = None


@attrs.define
class GetConsumerStatusRequestHeader(RequestHeader):
    """Console to broker: the same of every member of a group, or of the one whose client id is `client_addr`."""

    code: ClassVar = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    topic: str
    group: str
    client_addr: str | None = None


@attrs.define
class GetConsumerRunningInfoRequestHeader(RequestHeader):
    """Console to broker to consumer: how it is doing."""

    code: ClassVar = RequestCode.GET_CONSUMER_RUNNING_INFO
    consumer_group: str
    client_id: str
    jstack_enable: bool | None = None


@attrs.define
class ConsumeMessageDirectlyRequestHeader(RequestHeader):
    """Console to broker to consumer: consume this message now, out of turn; `msg_id` is an offset id."""

    code: ClassVar = RequestCode.CONSUME_MESSAGE_DIRECTLY
    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None


class QueueName(msgspec.Struct, rename="camel", frozen=True):
    """A message queue as JSON."""

    topic: str
    broker_name: str
    queue_id: int

    @classmethod
    def of(cls, queue: MessageQueue) -> Self:
        return cls(queue.topic, queue.broker_name, queue.queue_id)

    @property
    def queue(self) -> MessageQueue:
        return MessageQueue(self.topic, self.broker_name, self.queue_id)


class LockBatch(msgspec.Struct, rename="camel"):
    """Body of 41 and 42: the queues that one member of a group wants for itself, or gives up."""

    consumer_group: str
    client_id: str
    mq_set: list[QueueName] = []
    only_this_broker: bool = False


class LockedBatch(msgspec.Struct):
    """Body of the answer to 41: those that it holds now."""

    lock_ok_mq_set: list[QueueName] = msgspec.field(name="lockOKMQSet", default_factory=list)


class _OffsetOfQueue(msgspec.Struct, rename="camel"):
    topic: str
    broker_name: str
    queue_id: int
    offset: int


class _OffsetList(msgspec.Struct, rename="camel"):
    offset_table: list[_OffsetOfQueue] = []


class _RawOffsets(msgspec.Struct, rename="camel"):
    offset_table: dict[str, int] | list[_OffsetOfQueue] = {}


class ResetOffsetBody(msgspec.Struct, rename="camel"):
    """Body of 220 and of the answer to 222: where each queue goes on."""

    offset_table: dict[MessageQueue, int] = {}

    @classmethod
    def from_json(cls, body: Body) -> Self:
        """Read either form. Raises RemoteProtocolError."""
        table = fastjson.loads(body, _RawOffsets, what=cls.__name__).offset_table
        if isinstance(table, dict):
            return cls(by_queue(table))
        return cls({MessageQueue(q.topic, q.broker_name, q.queue_id): q.offset for q in table})

    def to_json(self) -> bytes:
        """As Java writes and reads it."""
        return fastjson.dumps(self)

    def to_list_json(self) -> bytes:
        """As C++ clients read it."""
        return fastjson.dumps(
            _OffsetList(
                [
                    _OffsetOfQueue(queue.topic, queue.broker_name, queue.queue_id, offset)
                    for queue, offset in self.offset_table.items()
                ]
            )
        )


class _RawStatus(msgspec.Struct, rename="camel"):
    message_queue_table: dict[str, int] = {}
    consumer_table: dict[str, dict[str, int]] = {}


class ConsumerStatusBody(msgspec.Struct, rename="camel"):
    """Body of the answers to 221 (one client's offsets) and 223 (those of all, by client id)."""

    message_queue_table: dict[MessageQueue, int] | None = None
    consumer_table: dict[str, dict[MessageQueue, int]] | None = None

    @classmethod
    def from_json(cls, body: Body) -> Self:
        """Read a body. Raises RemoteProtocolError."""
        raw = fastjson.loads(body, _RawStatus, what=cls.__name__)
        return cls(
            by_queue(raw.message_queue_table),
            {client_id: by_queue(table) for client_id, table in raw.consumer_table.items()},
        )

    def to_json(self) -> bytes:
        """As fastjson writes it."""
        return fastjson.dumps(self)


ConsumeResult = Literal[
    "CR_SUCCESS", "CR_LATER", "CR_ROLLBACK", "CR_COMMIT", "CR_THROW_EXCEPTION", "CR_RETURN_NULL"
]


class ConsumeMessageDirectlyResult(msgspec.Struct, rename="camel"):
    """Body of the answer to 309; `spent_time_mills` is Java's spelling."""

    order: bool = False
    auto_commit: bool = True
    consume_result: ConsumeResult | None = None
    remark: str | None = None
    spent_time_mills: int = 0
