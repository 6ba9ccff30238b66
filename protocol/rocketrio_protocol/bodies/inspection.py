"""Bodies of console queries: queue entries (321), producers (328), a group's subscription (345), its modes (401, 402).

    328 {"data":{"group":[{"clientId":"c","language":"JAVA","lastUpdateTimestamp":0,"remoteIP":"10.0.0.1",..}]}}

Answers to: QueryConsumeQueueResponseBody, ConsumeQueueData, ProducerTableInfo, ProducerInfo,
QuerySubscriptionResponseBody; RocketMQ reference, sections 2.5 and 2.13.
"""

import msgspec

from rocketrio_protocol.bodies.fastjson import JsonBody
from rocketrio_protocol.bodies.heartbeat import SubscriptionData


class ConsumeQueueData(msgspec.Struct, rename="camel"):
    """One entry of a queue; `eval` says whether the group of the request would receive it."""

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
    """One producer: its address as Java writes it (`/10.0.0.7:4711`), the time of its last heartbeat in epoch ms."""

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


class MessageRequestMode(JsonBody):
    """Body of 401: how a group asks for a topic, and how many more members share the queues of one in pop mode."""

    topic: str = ""
    consumer_group: str = ""
    mode: str = "PULL"
    pop_share_queue_num: int = 0


class MessageRequestModes(JsonBody):
    """Body of the answer to 402, by topic and group."""

    message_request_mode_map: dict[str, dict[str, MessageRequestMode]] = msgspec.field(
        default_factory=dict
    )
