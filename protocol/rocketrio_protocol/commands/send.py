"""Headers of sends: SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320); replies: 324, 325 and 326.

V2 is the same header with one-letter names. Answers to: SendMessageRequestHeader(V2), SendMessageResponseHeader,
ReplyMessageRequestHeader; RocketMQ reference, section 2.2.
"""

from typing import ClassVar

import msgspec

from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.headers import Header, RequestHeader

AUTO_CREATE_TOPIC_KEY = "TBW102"
"""The topic whose settings a new topic gets when it is created automatically (MixAll)."""


class SendMessageResponseHeader(Header):
    """`msg_id` is the offset id, for a batch all ids joined by commas; `queue_offset` is that of the first message."""

    msg_id: str
    queue_id: int
    queue_offset: int
    transaction_id: str | None = None
    region_id: str | None = msgspec.field(name="MSG_REGION", default=None)
    trace_on: bool | None = msgspec.field(name="TRACE_ON", default=None)


class SendMessageRequestHeader(RequestHeader):
    """A send with long field names; used by C++ clients, and by Java clients without smart send."""

    code: ClassVar = RequestCode.SEND_MESSAGE
    answers: ClassVar = SendMessageResponseHeader
    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: int
    queue_id: int
    sys_flag: int
    born_timestamp: int
    flag: int
    properties: str | None = None
    reconsume_times: int | None = None
    unit_mode: bool | None = None
    max_reconsume_times: int | None = None
    batch: bool | None = None
    broker_name: str | None = msgspec.field(name="bname", default=None)


class SendMessageRequestHeaderV2(RequestHeader):
    """A send as Java clients make it: the same fields in the same order, with one-letter wire names."""

    code: ClassVar = RequestCode.SEND_MESSAGE_V2
    answers: ClassVar = SendMessageResponseHeader
    producer_group: str = msgspec.field(name="a")
    topic: str = msgspec.field(name="b")
    default_topic: str = msgspec.field(name="c")
    default_topic_queue_nums: int = msgspec.field(name="d")
    queue_id: int = msgspec.field(name="e")
    sys_flag: int = msgspec.field(name="f")
    born_timestamp: int = msgspec.field(name="g")
    flag: int = msgspec.field(name="h")
    properties: str | None = msgspec.field(name="i", default=None)
    reconsume_times: int | None = msgspec.field(name="j", default=None)
    unit_mode: bool | None = msgspec.field(name="k", default=None)
    max_reconsume_times: int | None = msgspec.field(name="l", default=None)
    batch: bool | None = msgspec.field(name="m", default=None)
    broker_name: str | None = msgspec.field(name="n", default=None)


class SendBatchMessageRequestHeader(SendMessageRequestHeaderV2):
    """A send of a batch (`record/batch.py`), with the V2 header."""

    code: ClassVar = RequestCode.SEND_BATCH_MESSAGE
    answers: ClassVar = SendMessageResponseHeader


class SendReplyMessageRequestHeader(SendMessageRequestHeader):
    """Consumer to broker: the reply to a message, for the requester in the property REPLY_TO_CLIENT."""

    code: ClassVar = RequestCode.SEND_REPLY_MESSAGE
    answers: ClassVar = SendMessageResponseHeader


class SendReplyMessageRequestHeaderV2(SendMessageRequestHeaderV2):
    """The same reply as Java clients send it."""

    code: ClassVar = RequestCode.SEND_REPLY_MESSAGE_V2
    answers: ClassVar = SendMessageResponseHeader


class PushReplyMessageRequestHeader(RequestHeader):
    """Broker to requester: the reply that it waits for; hosts are `ip:port`, the body is that of the message."""

    code: ClassVar = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: int
    queue_id: int
    sys_flag: int
    born_timestamp: int
    flag: int
    born_host: str
    store_host: str
    store_timestamp: int
    properties: str | None = None
    reconsume_times: int | None = None
    unit_mode: bool | None = None
