"""Builds the records that decide half messages: commits, copies for a check, given-up messages, operations.

    operation   RMQ_SYS_TRANS_OP_HALF_TOPIC, tag d, body "17"         4.x: one half message
                                                    body "17,18,21,"  5.x: many, in any order

Invariant: a committed record has exactly the bytes of the half message's properties, as Apache's brokers store them.
Answers to: EndTransactionProcessor.endMessageTransaction, TransactionalMessageBridge, TransactionalMessageUtil.
Unlike Java 5.x: an operation is written at once, for one message; Java writes it later, and until then checks messages
that are decided already.
"""

from typing import Final

from rocketrio_broker.delay.delayed_puts import HALF_QUEUE_ID, released, stored_again
from rocketrio_broker.store.put_message import AppendResult, PutMessage
from rocketrio_protocol.commands.transaction import (
    TRANSACTION_COMMIT,
    CheckTransactionStateRequestHeader,
)
from rocketrio_protocol.message import MessageExt
from rocketrio_protocol.names import (
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)
from rocketrio_protocol.record.encode import encode_record
from rocketrio_protocol.record.java_hash import java_properties_text
from rocketrio_protocol.record.layout import TRANSACTION_MASK
from rocketrio_protocol.record.message_id import offset_message_id
from rocketrio_protocol.record.properties import (
    PROPERTY_TAGS,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    PROPERTY_UNIQUE_KEY,
    PROPERTY_WAIT_STORE_MSG_OK,
    decimal_value,
    decode_properties,
)

OPERATION_QUEUE_ID: Final = 0
GIVEN_UP_QUEUE_ID: Final = 0
REMOVE_TAG: Final = "d"
OPERATION_SEPARATOR: Final = b","
_OPERATION_PROPERTIES: Final = java_properties_text(
    {PROPERTY_WAIT_STORE_MSG_OK: "true", PROPERTY_TAGS: REMOVE_TAG}
).encode()


def committed(half: MessageExt) -> PutMessage | None:
    """Return the message of a transaction as consumers may see it; None if it names no topic."""
    put = released(half)
    if put is not None:
        put.sys_flag = put.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT
        put.prepared_transaction_offset = half.physical_offset
    return put


def operation(half_offset: int, *, host: bytes, now_ms: int) -> PutMessage:
    """Return the record that marks the half message at this queue offset as decided."""
    return PutMessage(
        topic=TRANS_OP_HALF_TOPIC,
        queue_id=OPERATION_QUEUE_ID,
        body=b"%d" % half_offset,
        properties=_OPERATION_PROPERTIES,
        born_time_ms=now_ms,
        born_host=host,
        store_host=host,
        tags=REMOVE_TAG,
    )


def half_offsets_of(operation: MessageExt) -> list[int]:
    """Return the half messages that an operation of any version decides; none for other messages."""
    if operation.tags != REMOVE_TAG:
        return []
    numbers = operation.body.split(OPERATION_SEPARATOR)
    values = [decimal_value(number.strip().decode("ascii", "replace")) for number in numbers]
    return [value for value in values if value is not None]


def copied(half: MessageExt, *, check_times: int | None = None) -> PutMessage:
    """Return a copy of the half message, to be decided in its place; `check_times` is set if its producer is asked."""
    properties = half.stored_properties
    if check_times is not None:
        changed = half.properties
        changed[PROPERTY_TRANSACTION_CHECK_TIMES] = str(check_times)
        properties = java_properties_text(changed).encode()
    return stored_again(half, topic=TRANS_HALF_TOPIC, queue_id=HALF_QUEUE_ID, properties=properties)


def given_up(half: MessageExt) -> PutMessage:
    """Return the half message for the topic where operators find undecided ones."""
    return stored_again(
        half,
        topic=TRANS_CHECK_MAX_TIME_TOPIC,
        queue_id=GIVEN_UP_QUEUE_ID,
        properties=half.stored_properties,
    )


def check_request(
    half: MessageExt, copy: PutMessage, result: AppendResult, *, broker_name: str
) -> tuple[CheckTransactionStateRequestHeader, bytes]:
    """Return header and body of request 39, which asks a producer about the copy of a half message."""
    unique_key = half.property_value(PROPERTY_UNIQUE_KEY)
    header = CheckTransactionStateRequestHeader(
        tran_state_table_offset=result.queue_offset,
        commit_log_offset=result.physical_offset,
        msg_id=unique_key,
        transaction_id=unique_key,
        offset_msg_id=offset_message_id(copy.store_host, result.physical_offset),
        topic=TRANS_HALF_TOPIC,
        broker_name=broker_name,
    )
    real = released(half)
    assert real is not None, "what names no topic is given up"
    properties = decode_properties(copy.properties)
    properties[PROPERTY_WAIT_STORE_MSG_OK] = "false"
    body = encode_record(
        queue_id=real.queue_id,
        flag=real.flag,
        queue_offset=result.queue_offset,
        physical_offset=result.physical_offset,
        sys_flag=real.sys_flag,
        born_time_ms=real.born_time_ms,
        born_host=real.born_host,
        store_time_ms=half.store_time_ms,
        store_host=half.packed_store_host,
        reconsume_times=real.reconsume_times,
        prepared_transaction_offset=0,
        body=real.body,
        topic=real.topic.encode(),
        properties=java_properties_text(properties).encode(),
    )
    return header, body
