"""Names of the message properties that RocketMQ itself gives a meaning to.

Everything else in a property map belongs to the application and passes through untouched.
Answers to: MessageConst.
"""

from collections.abc import Sequence, Set
from typing import Final

from rocketrio_protocol.errors import LocalProtocolError

PROPERTY_KEYS: Final = "KEYS"
PROPERTY_TAGS: Final = "TAGS"
PROPERTY_WAIT_STORE_MSG_OK: Final = "WAIT"
PROPERTY_DELAY_TIME_LEVEL: Final = "DELAY"
PROPERTY_RETRY_TOPIC: Final = "RETRY_TOPIC"
PROPERTY_REAL_TOPIC: Final = "REAL_TOPIC"
PROPERTY_REAL_QUEUE_ID: Final = "REAL_QID"
PROPERTY_TRANSACTION_PREPARED: Final = "TRAN_MSG"
PROPERTY_PRODUCER_GROUP: Final = "PGROUP"
PROPERTY_TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
PROPERTY_TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
PROPERTY_TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
PROPERTY_TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
PROPERTY_TIMER_OUT_MS: Final = "TIMER_OUT_MS"
"""What a broker of 5.x makes of the three above: epoch ms of the delivery."""
PROPERTY_MIN_OFFSET: Final = "MIN_OFFSET"
PROPERTY_MAX_OFFSET: Final = "MAX_OFFSET"
PROPERTY_UNIQUE_KEY: Final = "UNIQ_KEY"
PROPERTY_ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
PROPERTY_RECONSUME_TIME: Final = "RECONSUME_TIME"
PROPERTY_MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
PROPERTY_CONSUME_START_TIME: Final = "CONSUME_START_TIME"
PROPERTY_TRANSACTION_ID: Final = "__transactionId__"
PROPERTY_SHARDING_KEY: Final = "__SHARDINGKEY"
PROPERTY_MSG_REGION: Final = "MSG_REGION"
PROPERTY_TRACE_SWITCH: Final = "TRACE_ON"
PROPERTY_INSTANCE_ID: Final = "INSTANCE_ID"
PROPERTY_CLUSTER: Final = "CLUSTER"
PROPERTY_MESSAGE_TYPE: Final = "MSG_TYPE"
PROPERTY_CORRELATION_ID: Final = "CORRELATION_ID"
PROPERTY_REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
PROPERTY_TTL: Final = "TTL"
PROPERTY_REPLY_MESSAGE_ARRIVE_TIME: Final = "ARRIVE_TIME"
PROPERTY_PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
REPLY_MESSAGE_TYPE: Final = "reply"
"""The value of MSG_TYPE by which a message is an answer to another."""

KEY_SEPARATOR: Final = " "
"""Between the keys of one message inside the value of KEYS."""

FIELD_PROPERTIES: Final = {
    PROPERTY_KEYS: "keys",
    PROPERTY_TAGS: "tags",
    PROPERTY_DELAY_TIME_LEVEL: "delay_level",
    PROPERTY_WAIT_STORE_MSG_OK: "wait_store_ok",
}
"""Properties that have a field of their own in `Message`: property name to field name."""


def joined_keys(keys: str | Sequence[str]) -> str:
    """How `Message` keeps its keys. Raises LocalProtocolError for what cannot be keys."""
    if isinstance(keys, str):
        return keys
    if not isinstance(keys, Sequence | Set) or not all(isinstance(key, str) for key in keys):
        raise LocalProtocolError(f"keys must be text or a sequence of texts, and are {keys!r}")
    for key in keys:
        if KEY_SEPARATOR in key:
            raise LocalProtocolError(f"key {key!r} holds a blank, which separates keys")
    return KEY_SEPARATOR.join(keys)
