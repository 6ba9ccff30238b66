"""Messages that a consumer could not handle: CONSUMER_SEND_MSG_BACK (36).

    level 0     %RETRY%group, delay level 3 + redeliveries so far: longer each time
    level n     %RETRY%group, delay level n
    level < 0, or at the limit of redeliveries     %DLQ%group, without a delay

The message is stored again with its body and properties; DELAY contains the level, RETRY_TOPIC its first topic and
ORIGIN_MESSAGE_ID its first id. From then on it is handled like every delayed message.

Invariant: an answer of 0 means that the message is stored, and as safe as a producer's.
Invariant: checks come in Java's order, each refusal with Java's code.
Invariant: only the message that the consumer names is stored again (named_message.py); clients that are refused send it
themselves.
Answers to: AbstractSendMessageProcessor.consumerSendMsgBack; RocketMQ reference, section 2.8.
Unlike Java: the answer waits for disk and slaves as a producer's does, although WAIT=false is stored; if they are late
it is still 0, as otherwise the consumer would store the message a second time. A queue that the retry topic does not
have is never chosen.
"""

import logging
from collections.abc import Sequence
from typing import Final

from rocketrio_broker.access.needs import (
    ADDRESS,
    SUB,
    Facts,
    Need,
    group_need,
    stored_topic,
    topic_need,
)
from rocketrio_broker.namesrv.routes import UNIT_SUB
from rocketrio_broker.processors.named_message import refuse_other_message
from rocketrio_broker.processors.resent import MAX_RECONSUME_TIMES_VERSION
from rocketrio_broker.requests.declaration import answers
from rocketrio_broker.requests.refusal import RefusedError
from rocketrio_broker.role.answering import SERVING
from rocketrio_broker.state import BrokerState
from rocketrio_broker.store.put_message import PutMessage, PutStatus
from rocketrio_protocol.bodies.topics import Permission, SubscriptionGroupConfig, TopicConfig
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.consumer import (
    FIRST_RETRY_LEVEL,
    ConsumerSendMsgBackRequestHeader,
)
from rocketrio_protocol.message import MessageExt
from rocketrio_protocol.names import (
    DEAD_LETTER_PREFIX,
    consumer_group_problem,
    dead_letter_topic,
    retry_topic,
)
from rocketrio_protocol.record.layout import pack_host
from rocketrio_protocol.record.properties import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_WAIT_STORE_MSG_OK,
    encode_properties,
)
from rocketrio_protocol.remoting.channel import Channel

logger = logging.getLogger("rocketrio_broker.send_back")

NO_DELAY: Final = 0


def _needs(request: RemotingCommand, facts: Facts) -> Sequence[Need]:
    header = request.header(ConsumerSendMsgBackRequestHeader)
    missing = f"look message by offset failed, {header.offset}"
    topic = stored_topic(facts, header.offset, missing)
    return group_need(header.group, SUB), topic_need(topic, SUB)


class SendBackProcessor:
    """Stores messages again that consumers could not handle."""

    def __init__(self, broker: BrokerState) -> None:
        self._broker = broker

    @answers(
        ConsumerSendMsgBackRequestHeader,
        needs=_needs,
        known_by=ADDRESS,
        standing=SERVING,
        held=True,
    )
    def send_back(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """Store the message again; the answer is sent here, or once the message is safe."""
        header = request.header(ConsumerSendMsgBackRequestHeader)
        self._broker.waiting_answers.check_room()
        group = self._checked_group(header.group)
        if group.retry_queue_nums <= 0:
            return request.response()  # A group without a retry topic drops what it cannot handle.
        topic = self._retry_topic(header, group)
        message = self._message(header)
        limit = group.retry_max_times
        if (
            request.version >= MAX_RECONSUME_TIMES_VERSION
            and header.max_reconsume_times is not None
        ):
            limit = header.max_reconsume_times
        times = message.reconsume_times
        if header.delay_level < 0 or times >= limit:
            topic, level = self._created(dead_letter_topic(header.group)), NO_DELAY
            logger.info(
                "dead letter group=%s topic=%s times=%d message_id=%s",
                header.group, topic.topic_name, times, message.message_id,
            )  # fmt: skip
        else:
            level = header.delay_level or FIRST_RETRY_LEVEL + times
        result = self._broker.delayed_puts.put(self._again(message, topic, level))
        if result.status is not PutStatus.PUT_OK:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"{result.status.name}: {result.remark}".rstrip(": ")
            )
        self._broker.stats.put(topic.topic_name, 1, result.size)
        first_topic = message.property_value(PROPERTY_RETRY_TOPIC) or message.topic
        self._broker.stats.sent_back(first_topic, header.group, result.size)
        if topic.topic_name.startswith(DEAD_LETTER_PREFIX):
            self._broker.stats.dead_letter(header.group, first_topic)
        if request.is_oneway or not self._broker.waiting_answers.is_needed:
            return request.response()
        frame = request.response().encode()
        self._broker.waiting_answers.add(result.end_offset, channel, frame, late_is_success=True)
        return None

    def _again(self, message: MessageExt, topic: TopicConfig, level: int) -> PutMessage:
        """Return the message as it is stored for its next delivery."""
        properties = message.properties
        properties.setdefault(PROPERTY_RETRY_TOPIC, message.topic)
        properties.setdefault(PROPERTY_ORIGIN_MESSAGE_ID, message.offset_message_id)
        properties[PROPERTY_WAIT_STORE_MSG_OK] = "false"
        properties[PROPERTY_DELAY_TIME_LEVEL] = str(level)
        return PutMessage(
            topic=topic.topic_name,
            queue_id=self._broker.rng.randrange(max(topic.write_queue_nums, 1)),
            body=message.stored_body,
            properties=encode_properties(properties, trailing_separator=False).encode(),
            flag=message.flag,
            sys_flag=message.sys_flag,
            born_time_ms=message.born_time_ms,
            born_host=pack_host(*message.born_host),
            store_host=self._broker.store_host,
            reconsume_times=message.reconsume_times + 1,
            is_accepted=True,
        )

    # --------------------------------------------------------------------------------- checks, in order

    def _checked_group(self, name: str) -> SubscriptionGroupConfig:
        group = self._broker.groups.find(name)
        if group is None:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name}"
            )
        broker = self._broker.config.broker
        if not broker.broker_permission & Permission.WRITE:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{broker.broker_name}] sending message is forbidden",
            )
        return group

    def _retry_topic(
        self, header: ConsumerSendMsgBackRequestHeader, group: SubscriptionGroupConfig
    ) -> TopicConfig:
        if not self._broker.store.writable:
            # Checked before the topic is created: a slave would keep it until the next copy of the master's topics.
            raise RefusedError(ResponseCode.SYSTEM_ERROR, self._broker.store.refusal)
        if (problem := consumer_group_problem(header.group)) is not None:
            raise RefusedError(ResponseCode.MESSAGE_ILLEGAL, problem)  # Known from another broker.
        topic = self._created(
            retry_topic(header.group),
            queues=group.retry_queue_nums,
            sys_flag=UNIT_SUB if header.unit_mode else 0,
        )
        if not topic.perm & Permission.WRITE:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the topic[{topic.topic_name}] sending message is forbidden",
            )
        return topic

    def _created(self, name: str, *, queues: int = 1, sys_flag: int = 0) -> TopicConfig:
        known = self._broker.topics.topic_config(name)
        if known is not None:
            return known
        topic = self._broker.topics.create_in_send_back(name, queue_nums=queues, sys_flag=sys_flag)
        self._broker.topics.keep_new(at_once=self._broker.waits_for_flush)
        return topic

    def _message(self, header: ConsumerSendMsgBackRequestHeader) -> MessageExt:
        # A consumer may have received it from the previous master, although it is not confirmed here yet.
        record = self._broker.store.message_at(header.offset, unconfirmed=True)
        failed = f"look message by offset failed, {header.offset}"
        if record is None:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, failed)
        broker_name = self._broker.config.broker.broker_name
        message = MessageExt(bytes(record), 0, len(record), broker_name)
        refuse_other_message(message, header.origin_msg_id, failed=failed)
        return message
