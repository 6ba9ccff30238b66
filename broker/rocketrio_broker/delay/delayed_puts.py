"""Messages that are parked under a system topic, and later released to the topic to which they were sent.

    delayed   SCHEDULE_TOPIC_XXXX, queue level - 1        until they are due
    half      RMQ_SYS_TRANS_HALF_TOPIC, queue 0           until their transaction is decided

    REAL_TOPIC 1 orders 2 KEYS 1 k 2 ... DELAY 1 3 2 WAIT 1 true 2 REAL_QID 1 0

Invariant: a message is parked only if the store can take it under its own topic too; otherwise its sender is refused.
Invariant: a parked and a released message have the same properties, in the order in which a 4.9 broker writes them.
Answers to: TransactionalMessageBridge.parseHalfMessageInner, HookUtils.handleScheduleMessage (CommitLog in 4.x),
ScheduleMessageService.messageTimeUp.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from rocketrio_broker.requests.refusal import RefusedError
from rocketrio_broker.store.consume_queue import FILLER_SIZE
from rocketrio_broker.store.consume_queue_table import QUEUE_ID_LIMIT
from rocketrio_broker.store.dispatch import DelayLevels
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.store.put_message import UNKNOWN_TAGS, AppendResult, PutMessage
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.message import MessageExt
from rocketrio_protocol.names import SCHEDULE_TOPIC, TRANS_HALF_TOPIC, topic_name_problem
from rocketrio_protocol.record.java_hash import java_properties_text
from rocketrio_protocol.record.layout import TRANSACTION_MASK
from rocketrio_protocol.record.properties import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    decimal_value,
    decode_properties,
    property_label,
    property_value,
)

_DELAY: Final = property_label(PROPERTY_DELAY_TIME_LEVEL)
HALF_QUEUE_ID: Final = 0
PARKED_READ_LIMIT: Final = 10_000
"""Messages of a queue that a new master looks at for topics of which its table was copied too early."""


def delay_level(text: str | None) -> int:
    """Return the level in the text of the property DELAY; 0 if there is none, or it is not a number."""
    return decimal_value(text) or 0


class DelayedPuts:
    """Stores messages, and parks those with a delay level."""

    def __init__(self, store: MessageStore, levels: DelayLevels) -> None:
        self._store = store
        self._levels = levels

    def put(self, put: PutMessage) -> AppendResult:
        """Store a message; park it if its properties have a delay level. Raises RefusedError as `delayed` does."""
        if _DELAY in put.properties:
            level = delay_level(property_value(put.properties, PROPERTY_DELAY_TIME_LEVEL))
            if level:
                put = self.delayed(put, decode_properties(put.properties), level)
        return self._store.append(put)

    def delayed(self, put: PutMessage, properties: dict[str, str], level: int) -> PutMessage:
        """Return the parked form of a message to deliver later; a level beyond the last one means the last.

        Raises RefusedError if the message could not be delivered.
        """
        level = min(level, len(self._levels.delays_ms))
        properties[PROPERTY_DELAY_TIME_LEVEL] = str(level)
        return _parked(self._store, put, properties, SCHEDULE_TOPIC, level - 1)


def half_message(store: MessageStore, put: PutMessage, properties: dict[str, str]) -> PutMessage:
    """Return the parked form of the first part of a transaction: an ordinary message without subscribers.

    Raises RefusedError if the message could not be delivered.
    """
    put.sys_flag &= ~TRANSACTION_MASK
    return _parked(store, put, properties, TRANS_HALF_TOPIC, HALF_QUEUE_ID)


def _parked(
    store: MessageStore, put: PutMessage, properties: dict[str, str], topic: str, queue_id: int
) -> PutMessage:
    properties[PROPERTY_REAL_TOPIC] = put.topic
    properties[PROPERTY_REAL_QUEUE_ID] = str(put.queue_id)
    later = msgspec.structs.replace(
        put, properties=java_properties_text(properties).encode(), tags=UNKNOWN_TAGS
    )
    # Under the topic to which it is to be released, and now: later its sender is gone, and it would be lost.
    if (refused := store.never_takes(later)) is not None:
        raise RefusedError(ResponseCode.MESSAGE_ILLEGAL, f"{refused.status.name}: {refused.remark}")
    return msgspec.structs.replace(later, topic=topic, queue_id=queue_id)


def stored_message(store: MessageStore, physical_offset: int) -> MessageExt | None:
    """Return the message at an address of the log, or None if it is gone or damaged."""
    record = store.message_at(physical_offset, unconfirmed=True)
    if record is None:
        return None
    message = MessageExt(bytes(record), 0, len(record))
    try:
        message.stored_properties  # noqa: B018 - reads every length inside the record
    except RemoteProtocolError:
        return None
    return message


def parked_from(store: MessageStore, address: int) -> Iterator[PutMessage]:
    """Yield the messages that are parked at this address of the log or later, as they are to be released.

    Of each queue only the last `PARKED_READ_LIMIT` are read.
    """
    for topic in (SCHEDULE_TOPIC, TRANS_HALF_TOPIC):
        for queue in store.queues().get(topic, {}).values():
            first = max(queue.first_at_or_after(address), queue.max_offset - PARKED_READ_LIMIT)
            for offset in range(first, queue.max_offset):
                entry = queue.entry(offset)
                if entry is None or entry[1] == FILLER_SIZE:
                    continue
                message = stored_message(store, entry[0])
                put = None if message is None else released(message)
                if put is not None and put.topic not in (SCHEDULE_TOPIC, TRANS_HALF_TOPIC):
                    yield put


def released(message: MessageExt) -> PutMessage | None:
    """Return the message for its real topic, or None if it does not name a valid queue."""
    properties = message.stored_properties
    topic = property_value(properties, PROPERTY_REAL_TOPIC)
    queue_id = decimal_value(property_value(properties, PROPERTY_REAL_QUEUE_ID))
    if topic is None or topic_name_problem(topic) is not None:
        return None
    if queue_id is None or queue_id > QUEUE_ID_LIMIT:
        return None
    # The bytes as they are stored: decoded and encoded again they could differ from those of an Apache broker.
    return stored_again(message, topic=topic, queue_id=queue_id, properties=properties)


def stored_again(
    message: MessageExt, *, topic: str, queue_id: int, properties: bytes
) -> PutMessage:
    """Return the same message with another topic or other properties."""
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
        is_accepted=True,
    )
