"""Headers of console queries: queue entries (321), producers (328), a group's topics and subscription (343, 345).

Answers to: RocketMQ reference, sections 2.5 and 2.13. Bodies are in `bodies/inspection.py`.
"""

from typing import ClassVar

import msgspec

from rocketrio_protocol.bodies.inspection import ProducerTableInfo
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.headers import AnswerBody, RequestHeader


class QueryConsumeQueueRequestHeader(RequestHeader):
    """Get the entries of a queue from `queue_offset` on; for a group, also which of them it would receive."""

    code: ClassVar = RequestCode.QUERY_CONSUME_QUEUE
    topic: str
    queue_id: int
    count: int
    queue_offset: int = msgspec.field(name="index")
    consumer_group: str | None = None


class GetAllProducerInfoRequestHeader(RequestHeader):
    """Get the connected producers by group; the answer's body is ProducerTableInfo."""

    code: ClassVar = RequestCode.GET_ALL_PRODUCER_INFO
    body: ClassVar = AnswerBody(ProducerTableInfo.from_json)


class QueryTopicsByConsumerRequestHeader(RequestHeader):
    """Get the topics on which a group has committed offsets; the answer's body is TopicList."""

    code: ClassVar = RequestCode.QUERY_TOPICS_BY_CONSUMER
    group: str


class QuerySubscriptionByConsumerRequestHeader(RequestHeader):
    """Get the subscription of a connected group to a topic; the answer's body is GroupSubscription."""

    code: ClassVar = RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER
    group: str
    topic: str
