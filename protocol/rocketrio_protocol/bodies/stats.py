"""Bodies of the statistics and connection requests: 202, 203, 204, 208, 300, 303, 308, 315, 317.

On the wire a table by queue has the queue's JSON as key (`fastjson.py`); here the key is a `MessageQueue`.

Answers to: TopicStatsTable, ConsumeStats, ConsumerConnection, ProducerConnection, GroupList, QueueTimeSpan,
QueryCorrectionOffsetBody, BrokerStatsData, ConsumeStatsList; RocketMQ reference, section 2.11.
"""

from typing import Generic, Self, TypeVar

import msgspec

from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.fastjson import JsonBody
from rocketrio_protocol.bodies.heartbeat import SubscriptionData
from rocketrio_protocol.bodies.queues import by_queue
from rocketrio_protocol.frame import Body
from rocketrio_protocol.lag import lag_of
from rocketrio_protocol.message import MessageQueue

T = TypeVar("T")


class _RawTable(msgspec.Struct, Generic[T], rename="camel"):
    offset_table: dict[str, T] = {}
    consume_tps: float = 0.0


class TopicOffset(msgspec.Struct, rename="camel"):
    """Bounds of one queue, and when its newest message was stored (epoch ms, 0 if there is none)."""

    min_offset: int
    max_offset: int
    last_update_timestamp: int


class TopicStatsTable(msgspec.Struct, rename="camel"):
    """Body of the answer to 202."""

    offset_table: dict[MessageQueue, TopicOffset] = {}

    @classmethod
    def from_json(cls, body: Body) -> Self:
        """Decode a body. Raises RemoteProtocolError."""
        raw = fastjson.loads(body, _RawTable[TopicOffset], what=cls.__name__)
        return cls(by_queue(raw.offset_table))

    def to_json(self) -> bytes:
        """Encode the body as fastjson writes it."""
        return fastjson.dumps(self)


class OffsetWrapper(msgspec.Struct, rename="camel"):
    """Progress on one queue; `last_timestamp` is the store time of the last consumed message (epoch ms).

    `pull_offset` (5.x) is the offset up to which the group has received messages; 4.x does not send it.
    """

    broker_offset: int
    consumer_offset: int
    last_timestamp: int = 0
    pull_offset: int | None = None


class ConsumeStats(msgspec.Struct, rename="camel"):
    """Body of the answer to 208."""

    offset_table: dict[MessageQueue, OffsetWrapper] = {}
    consume_tps: float = 0.0

    @classmethod
    def from_json(cls, body: Body) -> Self:
        """Decode a body. Raises RemoteProtocolError."""
        raw = fastjson.loads(body, _RawTable[OffsetWrapper], what=cls.__name__)
        return cls(by_queue(raw.offset_table), raw.consume_tps)

    def to_json(self) -> bytes:
        """Encode the body as fastjson writes it."""
        return fastjson.dumps(self)

    @property
    def total_diff(self) -> int:
        """The number of messages that the group has not consumed yet, of queues in which it is not beyond the end."""
        return sum(
            lag_of(progress.consumer_offset, progress.broker_offset) or 0
            for progress in self.offset_table.values()
        )


class _RawStatsList(msgspec.Struct, rename="camel"):
    consume_stats_list: list[dict[str, list[_RawTable[OffsetWrapper]]]] = []
    broker_addr: str | None = None
    total_diff: int = 0


class ConsumeStatsList(JsonBody):
    """Body of the answer to 317: the progress of each group, one entry per topic."""

    consume_stats_list: list[dict[str, list[ConsumeStats]]] = msgspec.field(default_factory=list)
    broker_addr: str | None = None
    total_diff: int = 0

    @classmethod
    def from_json(cls, body: Body) -> Self:
        """Decode a body. Raises RemoteProtocolError."""
        raw = fastjson.loads(body, _RawStatsList, what=cls.__name__)
        groups = [
            {
                group: [ConsumeStats(by_queue(one.offset_table), one.consume_tps) for one in tables]
                for group, tables in entry.items()
            }
            for entry in raw.consume_stats_list
        ]
        return cls(groups, raw.broker_addr, raw.total_diff)


class Connection(msgspec.Struct, rename="camel"):
    """One connected client; `client_addr` is host:port as seen by the broker."""

    client_id: str
    client_addr: str
    language: str
    version: int


class ConsumerConnection(JsonBody):
    """Body of the answer to 203."""

    connection_set: list[Connection] = msgspec.field(default_factory=list)
    subscription_table: dict[str, SubscriptionData] = msgspec.field(default_factory=dict)
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"


class ProducerConnection(JsonBody):
    """Body of the answer to 204."""

    connection_set: list[Connection] = msgspec.field(default_factory=list)


class GroupList(JsonBody):
    """Body of the answer to 300."""

    group_list: list[str] = msgspec.field(default_factory=list)


class _TimeSpanQueue(msgspec.Struct, rename="camel"):
    topic: str
    broker_name: str
    queue_id: int


class QueueTimeSpan(JsonBody):
    """Store times (epoch ms) of a queue's first, last and next unconsumed message; `delay_time` in ms."""

    message_queue: _TimeSpanQueue
    min_time_stamp: int = -1
    max_time_stamp: int = -1
    consume_time_stamp: int = -1
    delay_time: int = -1

    @classmethod
    def of(cls, queue: MessageQueue) -> Self:
        """Create the time span of a queue with unknown times."""
        return cls(_TimeSpanQueue(queue.topic, queue.broker_name, queue.queue_id))


class QueryConsumeTimeSpanBody(JsonBody):
    """Body of the answer to 303."""

    consume_time_span_set: list[QueueTimeSpan] = msgspec.field(default_factory=list)


class QueryCorrectionOffsetBody(JsonBody):
    """Body of the answer to 308: offsets by queue id."""

    correction_offsets: dict[int, int] = msgspec.field(default_factory=dict)


class BrokerStatsItem(msgspec.Struct, rename="lower"):
    """One statistic over one time span: the sum, the sum per second, and the average per event."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStatsData(JsonBody):
    """Body of the answer to 315."""

    stats_minute: BrokerStatsItem
    stats_hour: BrokerStatsItem
    stats_day: BrokerStatsItem
