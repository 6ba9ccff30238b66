"""Messages that a consumer itself sends to %RETRY%group: where they are stored, and when they are dead letters.

Stock consumers do so if sending back (36) failed, and if they consume in order: RECONSUME_TIME and MAX_RECONSUME_TIMES
arrive as fields of the header, the delay level as a property.

    more often than the limit, or the group holds queue locks     %DLQ%group, without a delay
    otherwise                                                      as it was sent

Answers to: SendMessageProcessor.handleRetryAndDLQ of 5.x; RocketMQ reference, sections 2.2 and 9.6.
Unlike Java 4.x: exactly as often as the limit is not too often. A consumer counts the failed delivery before it sends,
the broker after it received the request (36): by 4.x's rule a message sent this way had one delivery less.
"""

import trio

from rocketrio_broker.requests.refusal import RefusedError
from rocketrio_broker.state import BrokerState
from rocketrio_protocol.bodies.topics import TopicConfig
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.commands.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from rocketrio_protocol.names import RETRY_PREFIX, consumer_group_problem, dead_letter_topic
from rocketrio_protocol.record.properties import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_RETRY_TOPIC,
    decode_properties,
    encode_properties,
)

MAX_RECONSUME_TIMES_VERSION = 121
"""3.4.9: from this version on a sender's own limit of redeliveries counts (MQVersion.V3_4_9)."""

SendHeader = SendMessageRequestHeader | SendMessageRequestHeaderV2


class ResentMessages:
    """Decides which messages have failed too often."""

    def __init__(self, broker: BrokerState) -> None:
        self._topics = broker.topics
        self._groups = broker.groups
        self._locks = broker.queue_locks
        self._waits_for_flush = broker.waits_for_flush
        self._stats = broker.stats

    def destination(
        self, header: SendHeader, version: int, topic: TopicConfig, queue_id: int
    ) -> tuple[TopicConfig, int, str | None]:
        """Return topic, queue and properties under which to store a message sent to a retry topic.

        Raises RefusedError.
        """
        group_name = header.topic.removeprefix(RETRY_PREFIX)
        if (problem := consumer_group_problem(group_name)) is not None:
            raise RefusedError(ResponseCode.MESSAGE_ILLEGAL, problem)
        group = self._groups.find(group_name)
        if group is None:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {group_name}",
            )
        limit = group.retry_max_times
        if version >= MAX_RECONSUME_TIMES_VERSION and header.max_reconsume_times is not None:
            limit = header.max_reconsume_times
        keeps_order = self._locks.is_in_use(group_name, now=trio.current_time())
        if (header.reconsume_times or 0) <= limit and not keeps_order:
            return topic, queue_id, header.properties
        known = self._topics.topic_config(dead_letter_topic(group_name))
        dead_letters = known or self._topics.create_in_send_back(dead_letter_topic(group_name))
        if known is None:
            self._topics.keep_new(at_once=self._waits_for_flush)
        first_topic = decode_properties(header.properties or "").get(PROPERTY_RETRY_TOPIC, "")
        self._stats.dead_letter(group_name, first_topic)
        return dead_letters, 0, _undelayed(header.properties)


def _undelayed(text: str | None) -> str | None:
    """Return the properties without a delay: dead letters are stored without one."""
    properties = decode_properties(text or "")
    if PROPERTY_DELAY_TIME_LEVEL not in properties:
        return text
    properties[PROPERTY_DELAY_TIME_LEVEL] = "0"
    return encode_properties(properties, trailing_separator=False)
