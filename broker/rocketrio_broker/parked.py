"""Messages that are parked under a system topic, and set out again for the topic they were sent to.

    delayed   SCHEDULE_TOPIC_XXXX, queue level - 1        until they are due
    half      RMQ_SYS_TRANS_HALF_TOPIC, queue 0           until their transaction is decided

    REAL_TOPIC 1 orders 2 KEYS 1 k 2 ... DELAY 1 3 2 WAIT 1 true 2 REAL_QID 1 0

Invariant: what is parked and what is released hold the same properties, in the order a 4.9 broker gives them.
Answers to: TransactionalMessageBridge.parseHalfMessageInner, HookUtils.handleScheduleMessage (CommitLog in 4.x),
ScheduleMessageService.messageTimeUp.
"""

from typing import Final

import msgspec

from rocketrio_broker.store.consume_queue_table import QUEUE_ID_LIMIT
from rocketrio_broker.store.dispatch import DelayLevels
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.store.put_message import UNKNOWN_TAGS, AppendResult, PutMessage
from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.message import MessageExt
from rocketrio_protocol.names import SCHEDULE_TOPIC, TRANS_HALF_TOPIC, topic_name_problem
from rocketrio_protocol.record.java_hash import java_properties_text
from rocketrio_protocol.record.layout import TRANSACTION_MASK
from rocketrio_protocol.record.properties import (
    NAME_VALUE_SEPARATOR,
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    decimal_value,
    decode_properties,
    property_value,
)

_DELAY: Final = (PROPERTY_DELAY_TIME_LEVEL + NAME_VALUE_SEPARATOR).encode()
HALF_QUEUE_ID: Final = 0


def delay_level(text: str | None) -> int:
    """The level that the property DELAY asks for; 0 for none, and for what is no number."""
    return decimal_value(text) or 0


class DelayedPuts:
    """Stores messages, those with a delay level for later."""

    def __init__(self, store: MessageStore, levels: DelayLevels) -> None:
        self._store = store
        self._levels = levels

    def put(self, put: PutMessage) -> AppendResult:
        """Store it, delayed where its properties say so."""
        if _DELAY in put.properties:
            level = delay_level(property_value(put.properties, PROPERTY_DELAY_TIME_LEVEL))
            if level:
                put = self.delayed(put, decode_properties(put.properties), level)
        return self._store.append(put)

    def delayed(self, put: PutMessage, properties: dict[str, str], level: int) -> PutMessage:
        """What is stored of a message that is to be delivered later; a level beyond the last is the last."""
        level = min(level, len(self._levels.delays_ms))
        properties[PROPERTY_DELAY_TIME_LEVEL] = str(level)
        return _parked(put, properties, SCHEDULE_TOPIC, level - 1)


def half_message(put: PutMessage, properties: dict[str, str]) -> PutMessage:
    """What is stored of the first part of a transaction: an ordinary message that nobody subscribes to."""
    put.sys_flag &= ~TRANSACTION_MASK
    return _parked(put, properties, TRANS_HALF_TOPIC, HALF_QUEUE_ID)


def _parked(put: PutMessage, properties: dict[str, str], topic: str, queue_id: int) -> PutMessage:
    properties[PROPERTY_REAL_TOPIC] = put.topic
    properties[PROPERTY_REAL_QUEUE_ID] = str(put.queue_id)
    return msgspec.structs.replace(
        put,
        topic=topic,
        queue_id=queue_id,
        properties=java_properties_text(properties).encode(),
        tags=UNKNOWN_TAGS,
    )


def stored_message(store: MessageStore, physical_offset: int) -> MessageExt | None:
    """The message at an address of the log; None if it is gone or damaged."""
    record = store.message_at(physical_offset, unconfirmed=True)
    if record is None:
        return None
    message = MessageExt(bytes(record), 0, len(record))
    try:
        message.stored_properties  # noqa: B018 - reads every length inside the record
    except RemoteProtocolError:
        return None
    return message


def released(message: MessageExt) -> PutMessage | None:
    """The message for its real topic; None for one that does not name a queue that can be."""
    properties = message.stored_properties
    topic = property_value(properties, PROPERTY_REAL_TOPIC)
    queue_id = decimal_value(property_value(properties, PROPERTY_REAL_QUEUE_ID))
    if topic is None or topic_name_problem(topic) is not None:
        return None
    if queue_id is None or queue_id > QUEUE_ID_LIMIT:
        return None
    return stored_again(message, topic=topic, queue_id=queue_id, properties=properties)


def stored_again(
    message: MessageExt, *, topic: str, queue_id: int, properties: bytes
) -> PutMessage:
    """The same message under another topic, or with other properties."""
    return PutMessage(
        topic=topic,
        queue_id=queue_id,
        body=message.stored_body,
        properties=properties,
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_time_ms=message.born_time_ms,
        born_host=message.packed_born_host,
        store_host=message.packed_store_host,
        reconsume_times=message.reconsume_times,
    )
