r"""The properties string of a message, and the hashes that queues and indexes keep of it.

    name 0x01 value 0x02 name 0x01 value 0x02 ...      UTF-8, at most 32767 bytes

Invariant: a name that occurs twice means its last value (batches hold names twice).
Invariant: parts without a name or without a value are skipped, never an error, as in Java.
Answers to: MessageDecoder.messageProperties2String, string2messageProperties; String.hashCode.
Unlike Java: text that would be torn by the separators is refused when encoding, not stored broken.
"""

from collections.abc import Mapping
from functools import lru_cache
from operator import mul
from typing import Final

from rocketrio_protocol.errors import LocalProtocolError

NAME_VALUE_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"
MAX_PROPERTIES_SIZE: Final = 32767
"""Bytes; the length field of a stored record is a signed 16-bit number."""

_NAME_VALUE_BYTE: Final = b"\x01"
_PROPERTY_BYTE: Final = b"\x02"
_PROPERTY_NUMBER: Final = _PROPERTY_BYTE[0]

# 31^n modulo 2^32 for texts up to this many UTF-16 units: topics and keys are far shorter.
_POWER_COUNT: Final = 512
_POWERS: Final = tuple(pow(31, exponent, 1 << 32) for exponent in reversed(range(_POWER_COUNT)))

_NUMBER_DIGITS: Final = 18  # of any decimal number that fits a long

_HASH_CACHE_SIZE: Final = 4096  # tags are few and repeat in every message
_KEPT_TAGS_SIZE: Final = (
    256  # characters; the hash of a longer text is computed each time, so that texts take 1 MiB
)


def encode_properties(properties: Mapping[str, str], *, trailing_separator: bool = True) -> str:
    """The properties string; 4.4 and 5.x end it with a separator, 4.9 does not: all read both."""
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
                f"property {name!r}={value!r} cannot be stored: name and value must be text, not empty,"
                " without the characters \\x01 and \\x02"
            )
        parts.append(f"{name}\x01{value}")
    text = PROPERTY_SEPARATOR.join(parts)
    return text + PROPERTY_SEPARATOR if trailing_separator else text


def _holds_separator(text: str) -> bool:
    return NAME_VALUE_SEPARATOR in text or PROPERTY_SEPARATOR in text


def decode_properties(raw: bytes | bytearray | memoryview | str) -> dict[str, str]:
    """The map of a properties string; bytes that are not UTF-8 become U+FFFD."""
    text = raw if isinstance(raw, str) else str(raw, "utf-8", "replace")
    if not text:
        return {}
    if text[-1] == PROPERTY_SEPARATOR:
        text = text[:-1]
    pairs = [part.split(NAME_VALUE_SEPARATOR, 1) for part in text.split(PROPERTY_SEPARATOR)]
    try:
        properties: dict[str, str] = dict(pairs)  # odd ones raise
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

    False for what damage leaves: NUL, text that is not UTF-8, a part without a name and its separator. Some clients
    write such properties all the same, so this is only asked about a record that may be damaged.
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
    """One property out of the stored bytes, without building the map; the last one counts."""
    value = stored_value(bytes(raw), name.encode() + _NAME_VALUE_BYTE)
    return value.decode("utf-8", "replace") if value else None


def decimal_value(text: str | None) -> int | None:
    """Return the number that a property holds; None for a missing one, and for what can be no long."""
    if text is None or not text.isdecimal() or len(text) > _NUMBER_DIGITS:
        return None
    return int(text)


def stored_value(stored: bytes, label: bytes) -> bytes:
    """The same for a name followed by its 0x01, as it is stored; empty if there is none."""
    found = stored.rfind(label)
    while found >= 0:
        if not found or stored[found - 1] == _PROPERTY_NUMBER:
            start = found + len(label)
            end = stored.find(_PROPERTY_BYTE, start)
            if value := stored[start:end] if end >= 0 else stored[start:]:
                return value
        found = stored.rfind(label, 0, found)  # an empty value, or the end of another name
    return b""


def java_string_hash(text: str) -> int:
    """Java's String.hashCode: the polynomial in 31 over UTF-16 units, as a signed 32-bit number."""
    units = (
        text.encode() if text.isascii() else memoryview(text.encode("utf-16-be", "surrogatepass"))
    )
    if isinstance(units, memoryview):
        numbers = [int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2)]
        return _polynomial(numbers)
    return _polynomial(units)


def _polynomial(units: bytes | list[int]) -> int:
    total = 0
    for start in range(0, len(units), _POWER_COUNT):
        part = units[start : start + _POWER_COUNT]
        if start:
            total = (total & 0xFFFFFFFF) * pow(31, len(part), 1 << 32)
        total += sum(map(mul, part, _POWERS[_POWER_COUNT - len(part) :]))
    return ((total & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000


_kept_hash: Final = lru_cache(_HASH_CACHE_SIZE)(java_string_hash)


def tags_code(tags: str | None) -> int:
    """What a queue entry keeps of a message's tags; 0 without any, several are hashed as one text."""
    if not tags:
        return 0
    return _kept_hash(tags) if len(tags) <= _KEPT_TAGS_SIZE else java_string_hash(tags)


def index_key_hash(topic: str, key: str) -> int:
    """The hash under which the key index files a key of a topic; never negative."""
    signed = java_string_hash(f"{topic}#{key}")
    return 0 if signed == -0x80000000 else abs(signed)
