"""The hashes under which a record is indexed, computed for many records of few topics and producers.

A unique id begins with its producer's address and process, so the hash of topic and that beginning is kept.

Invariant: the result is that of `index_key_hash(topic, key)` for the unique id and then each key.
"""

from functools import lru_cache
from operator import mul
from typing import Final

from rocketrio_protocol.properties import index_key_hash, java_string_hash, property_value
from rocketrio_protocol.property_names import KEY_SEPARATOR, PROPERTY_KEYS, PROPERTY_UNIQUE_KEY

_UNIQUE_LABEL: Final = b"UNIQ_KEY\x01"
_KEYS_LABEL: Final = b"KEYS\x01"
_SEPARATOR: Final = 2  # the byte between properties

_UNIQUE_SIZE: Final = 32  # of an IPv4 producer
_TAIL_SIZE: Final = 12  # time and counter: what differs from message to message
_HEAD_FACTOR: Final = pow(31, _TAIL_SIZE, 1 << 32)
_POWERS: Final = tuple(pow(31, exponent, 1 << 32) for exponent in reversed(range(_TAIL_SIZE)))
_HEAD_CACHE_SIZE: Final = 4096  # producers times topics


def key_hashes(topic: bytes, properties: bytes) -> list[int]:
    """The hashes of a record's unique id and keys, in the order in which they are indexed."""
    unique = _usual_unique_key(properties)
    hashes: list[int] = []
    if unique:
        hashes.append(_unique_hash(topic, unique))
    elif _UNIQUE_LABEL in properties:
        key = property_value(properties, PROPERTY_UNIQUE_KEY)
        if key:
            hashes.append(index_key_hash(topic.decode("utf-8", "replace"), key))
    if _KEYS_LABEL in properties:
        keys = property_value(properties, PROPERTY_KEYS) or ""
        text = topic.decode("utf-8", "replace")
        hashes += [index_key_hash(text, key) for key in keys.split(KEY_SEPARATOR) if key]
    return hashes


def _usual_unique_key(properties: bytes) -> bytes:
    """The unique id if it stands there in its usual form; `property_value` decides about any other."""
    found = properties.rfind(_UNIQUE_LABEL)
    if found < 0 or (found > 0 and properties[found - 1] != _SEPARATOR):
        return b""
    start = found + len(_UNIQUE_LABEL)
    end = properties.find(_SEPARATOR, start)
    unique = properties[start:end] if end >= 0 else properties[start:]
    return unique if len(unique) == _UNIQUE_SIZE and unique.isascii() else b""


def _unique_hash(topic: bytes, key: bytes) -> int:
    head = _head_hash(topic, key[:-_TAIL_SIZE])
    code: int = (head * _HEAD_FACTOR + sum(map(mul, key[-_TAIL_SIZE:], _POWERS))) & 0xFFFFFFFF
    if code == 0x80000000:
        return 0  # Java has no absolute value of its lowest number
    return code if code < 0x80000000 else 0x100000000 - code


@lru_cache(_HEAD_CACHE_SIZE)
def _head_hash(topic: bytes, head: bytes) -> int:
    return java_string_hash(f"{topic.decode('utf-8', 'replace')}#{head.decode()}")
