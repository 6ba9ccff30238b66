"""Bodies about message queues: locks (41, 42), resets (220, 222), what consumers hold (221, 223), and tables by queue.

    {{"brokerName":"b","queueId":0,"topic":"t"}:12}      on the wire a key of a table is the queue's JSON
    {"consumerGroup":"g","mqSet":[{"brokerName":"b","queueId":0,"topic":"t"}],"onlyThisBroker":false}
    {"lockOKMQSet":[...]}

Answers to: LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody, ResetOffsetBody, ResetOffsetBodyForC,
GetConsumerStatusBody, and the Map<MessageQueue, ...> fields of Java's bodies; RocketMQ reference, sections 2.7 to 2.10.
"""

from collections.abc import Mapping
from typing import Self, TypeVar

import msgspec

from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.frame import Body
from rocketrio_protocol.message import MessageQueue

T = TypeVar("T")


class _QueueKey(msgspec.Struct, rename="camel"):
    topic: str
    broker_name: str
    queue_id: int


def by_queue(table: Mapping[str, T]) -> dict[MessageQueue, T]:
    """Decode the keys of a table that `fastjson.loads` returned. Raises RemoteProtocolError."""
    read = {}
    for text, value in table.items():
        key = fastjson.loads(text.encode(), _QueueKey, what="message queue")
        read[MessageQueue(key.topic, key.broker_name, key.queue_id)] = value
    return read


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
    """Body of 41 and 42: the queues that one member of a group wants to lock or unlock."""

    consumer_group: str
    client_id: str
    mq_set: list[QueueName] = []
    only_this_broker: bool = False


class LockedBatch(msgspec.Struct):
    """Body of the answer to 41: the queues whose locks the member holds now."""

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
    """Body of 220 and of the answer to 222: the new offset of each queue."""

    offset_table: dict[MessageQueue, int] = {}

    @classmethod
    def from_json(cls, body: Body) -> Self:
        """Decode either form. Raises RemoteProtocolError."""
        table = fastjson.loads(body, _RawOffsets, what=cls.__name__).offset_table
        if isinstance(table, dict):
            return cls(by_queue(table))
        return cls({MessageQueue(q.topic, q.broker_name, q.queue_id): q.offset for q in table})

    def to_json(self) -> bytes:
        """Encode the body as Java writes and reads it."""
        return fastjson.dumps(self)

    def to_list_json(self) -> bytes:
        """Encode the body as C++ clients read it."""
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
    """Body of the answers to 221 (offsets of one client) and 223 (offsets of all clients, by client id)."""

    message_queue_table: dict[MessageQueue, int] | None = None
    consumer_table: dict[str, dict[MessageQueue, int]] | None = None

    @classmethod
    def from_json(cls, body: Body) -> Self:
        """Decode a body. Raises RemoteProtocolError."""
        raw = fastjson.loads(body, _RawStatus, what=cls.__name__)
        return cls(
            by_queue(raw.message_queue_table),
            {client_id: by_queue(table) for client_id, table in raw.consumer_table.items()},
        )

    def to_json(self) -> bytes:
        """Encode the body as fastjson writes it."""
        return fastjson.dumps(self)
