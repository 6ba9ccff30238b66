"""The properties of a message: the names that RocketMQ gives a meaning, and the string in which they are stored.

    name 0x01 value 0x02 name 0x01 value 0x02 ...      UTF-8, at most 32767 bytes

Other names belong to the application and pass through untouched.

Invariant: if a name occurs twice, the last value counts (batches repeat names).
Invariant: parts without a name or without a value are skipped, never an error, as in Java.
Answers to: MessageConst; MessageDecoder.messageProperties2String, string2messageProperties.
Unlike Java: names and values that contain a separator are refused when encoding, not stored broken.
"""

from collections.abc import Mapping, Sequence, Set
from typing import Final

from rocketrio_protocol.errors import LocalProtocolError, RemoteProtocolError

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
"""Epoch ms of the delivery, which a 5.x broker computes from the three properties above."""
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
"""The value of MSG_TYPE of a message that answers another one."""

KEY_SEPARATOR: Final = " "
"""Separates the keys of one message in the value of KEYS."""

FIELD_PROPERTIES: Final = {
    PROPERTY_KEYS: "keys",
    PROPERTY_TAGS: "tags",
    PROPERTY_DELAY_TIME_LEVEL: "delay_level",
    PROPERTY_WAIT_STORE_MSG_OK: "wait_store_ok",
}
"""The properties that are fields of `Message`, by property name."""


def joined_keys(keys: str | Sequence[str]) -> str:
    """Return keys as one string, separated by spaces. Raises LocalProtocolError for invalid keys."""
    if isinstance(keys, str):
        return keys
    if not isinstance(keys, Sequence | Set) or not all(isinstance(key, str) for key in keys):
        raise LocalProtocolError(f"keys must be a string or a sequence of strings, not {keys!r}")
    for key in keys:
        if KEY_SEPARATOR in key:
            raise LocalProtocolError(f"key {key!r} contains a space, which separates keys")
    return KEY_SEPARATOR.join(keys)


NAME_VALUE_SEPARATOR: Final = "\x01"
PAIR_SEPARATOR: Final = "\x02"
MAX_PROPERTIES_SIZE: Final = 32767
"""Bytes: the largest signed 16-bit number, because a stored record has two bytes for the length."""

DECODED_SIZE_LIMIT: Final = 2 * (MAX_PROPERTIES_SIZE + 1)
"""Characters that are decoded: more than a message can have, since a header may name a property twice."""

_NAME_VALUE_BYTE: Final = b"\x01"
_PROPERTY_BYTE: Final = b"\x02"
_PROPERTY_NUMBER: Final = _PROPERTY_BYTE[0]


_NUMBER_DIGITS: Final = 18  # Every number with this many digits fits a long.


def encode_properties(properties: Mapping[str, str], *, trailing_separator: bool = True) -> str:
    """Encode properties. 4.4 and 5.x end the string with a separator, 4.9 does not; all accept both."""
    if not properties:
        return ""
    parts: list[str] = []
    for name, value in properties.items():
        if (
            not isinstance(name, str)
            or not isinstance(value, str)
            or not name
            or not value
            or _holds_separator(name)
            or _holds_separator(value)
        ):
            raise LocalProtocolError(
                f"property {name!r}={value!r} cannot be stored: name and value must be strings, not empty,"
                " without the characters \\x01 and \\x02"
            )
        parts.append(f"{name}\x01{value}")
    text = PAIR_SEPARATOR.join(parts)
    return text + PAIR_SEPARATOR if trailing_separator else text


def _holds_separator(text: str) -> bool:
    return NAME_VALUE_SEPARATOR in text or PAIR_SEPARATOR in text


def decode_properties(raw: bytes | bytearray | memoryview | str) -> dict[str, str]:
    """Decode a properties string; bytes that are not UTF-8 become U+FFFD.

    Raises RemoteProtocolError for a text that is so long that no message can have it.
    """
    text = raw if isinstance(raw, str) else str(raw, "utf-8", "replace")
    if not text:
        return {}
    if len(text) > DECODED_SIZE_LIMIT:
        raise RemoteProtocolError(
            f"The properties have {len(text)} characters; a message has at most {MAX_PROPERTIES_SIZE} bytes of them"
        )
    if text[-1] == PAIR_SEPARATOR:
        text = text[:-1]
    pairs = [part.split(NAME_VALUE_SEPARATOR, 1) for part in text.split(PAIR_SEPARATOR)]
    try:
        properties: dict[str, str] = dict(pairs)  # Raises for a part without a value.
    except ValueError:
        properties = {}
    else:
        if "" not in properties and "" not in properties.values():
            return properties
        properties.clear()
    for pair in pairs:
        if len(pair) == 2 and pair[0] and pair[1]:
            properties[pair[0]] = pair[1]
    return properties


def can_be_properties(stored: bytes) -> bool:
    """Return whether a client or broker could have written these bytes as properties.

    False for traces of damage: NUL, bytes that are not UTF-8, or a part without a name and its separator. Some clients
    do write such properties, so call this only for a record that may be damaged.
    """
    if 0 in stored:
        return False
    try:
        stored.decode()
    except UnicodeDecodeError:
        return False
    parts = stored.removesuffix(_PROPERTY_BYTE).split(_PROPERTY_BYTE) if stored else []
    return all(part.find(_NAME_VALUE_BYTE) > 0 for part in parts)


def property_value(raw: bytes | bytearray | memoryview, name: str) -> str | None:
    """Return one property from a properties string, without decoding the others; the last value counts."""
    value = stored_value(bytes(raw), name.encode() + _NAME_VALUE_BYTE)
    return value.decode("utf-8", "replace") if value else None


def decimal_value(text: str | None) -> int | None:
    """Return a property as a number; None if it is missing or does not fit a long."""
    if text is None or not text.isdecimal() or len(text) > _NUMBER_DIGITS:
        return None
    return int(text)


def stored_value(stored: bytes, label: bytes) -> bytes:
    """Return the stored value after a label, which is the encoded name and 0x01; b"" if there is none."""
    # From the end, because the last value counts; a batch repeats names.
    found = stored.rfind(label)
    while found >= 0:
        # The label may be the end of a longer name.
        if not found or stored[found - 1] == _PROPERTY_NUMBER:
            start = found + len(label)
            end = stored.find(_PROPERTY_BYTE, start)
            if value := stored[start:end] if end >= 0 else stored[start:]:
                return value
        found = stored.rfind(label, 0, found)  # An empty value, or the end of another name.
    return b""
