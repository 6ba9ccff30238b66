"""Headers of requests about a consumer's messages and queues (36, 41, 42), and to a consumer (220, 221, 307, 309).

A console sends some of these to a broker, which forwards them to the client: 222 becomes 220, 223 becomes 221, and 307
and 309 keep their number.

Answers to: ConsumerSendMsgBackRequestHeader and its neighbours; RocketMQ reference, sections 2.7, 2.8 and 2.10.
Bodies are in `bodies/queues.py` and `bodies/running_info.py`.
"""

from typing import ClassVar

import msgspec

from rocketrio_protocol.bodies.running_info import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.headers import AnswerBody, RequestHeader, json_body

DEAD_LETTER_LEVEL = -1
"""The delay level of a message that becomes a dead letter; so does any level below 0."""
BROKER_DECIDES_LEVEL = 0
"""The delay level with which the broker increases the delay each time."""
FIRST_RETRY_LEVEL = 3
"""The delay level of the first redelivery; each further one has the next level."""

TO_THE_END = -1
"""The timestamp of a reset that skips all messages."""


class ConsumerSendMsgBackRequestHeader(RequestHeader):
    """Send back a message that could not be consumed; `offset` is its offset in the log."""

    code: ClassVar = RequestCode.CONSUMER_SEND_MSG_BACK
    offset: int
    group: str
    delay_level: int
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool | None = None
    max_reconsume_times: int | None = None
    broker_name: str | None = msgspec.field(name="bname", default=None)


class LockBatchMqRequestHeader(RequestHeader):
    """Lock queues for one member; the body is LockBatch, the answer's body is LockedBatch.

    `holds` is a rocketrio extension, which Apache ignores: whether the member already uses these locks, which a broker
    may have granted before a restart.
    """

    code: ClassVar = RequestCode.LOCK_BATCH_MQ
    holds: bool | None = msgspec.field(name="rocketrioHolds", default=None)


class UnlockBatchMqRequestHeader(RequestHeader):
    """Release locks of queues; the body is LockBatch; no fields."""

    code: ClassVar = RequestCode.UNLOCK_BATCH_MQ


class ResetConsumerClientOffsetRequestHeader(RequestHeader):
    """Broker to consumer, oneway: continue at the offsets in the body, which is ResetOffsetBody."""

    code: ClassVar = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
    topic: str
    group: str
    timestamp: int
    is_force: bool


class GetConsumerStatusFromClientRequestHeader(RequestHeader):
    """Broker to consumer: get the offsets in its memory; the answer's body is ConsumerStatusBody."""

    code: ClassVar = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
    topic: str
    group: str
    client_addr: str | None = None


class GetConsumerStatusRequestHeader(RequestHeader):
    """Console to broker: get these offsets of all members of a group, or of the client id in `client_addr`."""

    code: ClassVar = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    topic: str
    group: str
    client_addr: str | None = None


class GetConsumerRunningInfoRequestHeader(RequestHeader):
    """Console to broker to consumer: get its state; the answer's body is ConsumerRunningInfo."""

    code: ClassVar = RequestCode.GET_CONSUMER_RUNNING_INFO
    body: ClassVar = AnswerBody(ConsumerRunningInfo.from_json)
    consumer_group: str
    client_id: str
    jstack_enable: bool | None = None


class ConsumeMessageDirectlyRequestHeader(RequestHeader):
    """Console to broker to consumer: handle this message now; `msg_id` is an offset id."""

    code: ClassVar = RequestCode.CONSUME_MESSAGE_DIRECTLY
    body: ClassVar = json_body(ConsumeMessageDirectlyResult, what="result of the delivery")
    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None
