"""What consoles look at one by one: queue entries (321), producers (328), a group's topics and subscription (343, 345).

    328 {"data":{"group":[{"clientId":"c","language":"JAVA","lastUpdateTimestamp":0,"remoteIP":"10.0.0.1",..}]}}

Answers to: QueryConsumeQueueResponseBody, ConsumeQueueData, ProducerTableInfo, ProducerInfo,
QuerySubscriptionResponseBody; RocketMQ reference, sections 2.5 and 2.13.
"""

from typing import ClassVar

import attrs
import msgspec

from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.commands.client import SubscriptionData
from rocketrio_protocol.header_fields import RequestHeader, wire
from rocketrio_protocol.route import JsonBody


@attrs.define
class QueryConsumeQueueRequestHeader(RequestHeader):
    """Entries of a queue from `queue_offset` on; with a group, also which of them it would be given."""

    code: ClassVar = RequestCode.QUERY_CONSUME_QUEUE
    topic: str
    queue_id: int
    count: int
    queue_offset: int = wire("index")
    consumer_group: str | None = None


@attrs.define
class GetAllProducerInfoRequestHeader(RequestHeader):
    """Who is connected as a producer, by group; the answer's body is ProducerTableInfo."""

    code: ClassVar = RequestCode.GET_ALL_PRODUCER_INFO


@attrs.define
class QueryTopicsByConsumerRequestHeader(RequestHeader):
    """The topics on which a group has committed; the answer's body is TopicList."""

    code: ClassVar = RequestCode.QUERY_TOPICS_BY_CONSUMER
    group: str


@attrs.define
class QuerySubscriptionByConsumerRequestHeader(RequestHeader):
    """What a connected group subscribes to on a topic; the answer's body is GroupSubscription."""

    code: ClassVar = RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER
    group: str
    topic: str


class ConsumeQueueData(msgspec.Struct, rename="camel"):
    """One entry of a queue; `eval` says whether the group asked about would be given it."""

    physic_offset: int
    physic_size: int
    tags_code: int
    eval: bool = False
    msg: str | None = None


class QueryConsumeQueueBody(JsonBody):
    """Body of the answer to 321."""

    queue_data: list[ConsumeQueueData] = msgspec.field(default_factory=list)
    min_queue_index: int = 0
    max_queue_index: int = 0
    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None


class ProducerInfo(msgspec.Struct, rename="camel"):
    """One producer; its address as Java writes one (`/10.0.0.7:4711`), the time of its last heartbeat in ms."""

    client_id: str
    remote_ip: str = msgspec.field(name="remoteIP")
    language: str
    version: int
    last_update_timestamp: int


class ProducerTableInfo(JsonBody):
    """Body of the answer to 328, by group."""

    data: dict[str, list[ProducerInfo]] = msgspec.field(default_factory=dict)


class GroupSubscription(JsonBody):
    """Body of the answer to 345."""

    group: str
    topic: str
    subscription_data: SubscriptionData | None = None
