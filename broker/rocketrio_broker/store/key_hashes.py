"""The hashes under which a record is indexed, computed for many records of few topics and producers.

The keys of neighbours differ in their last characters, so the hash of the topic and a key's first characters is cached.

Invariant: the result is that of `index_key_hash(topic, key)` for the unique id and then each key, both for one record
and for columns of records.
"""

from functools import lru_cache
from typing import Final

import numpy as np

from rocketrio_broker.store.property_columns import (
    PropertyColumns,
    UInt32s,
    ValuePlaces,
    power_of_31,
)
from rocketrio_protocol.record.java_hash import index_key_hash, java_string_hash
from rocketrio_protocol.record.properties import (
    KEY_SEPARATOR,
    PROPERTY_KEYS,
    PROPERTY_UNIQUE_KEY,
    property_label,
    stored_value,
)
from rocketrio_protocol.record.vectors import Int64s

_UNIQUE_LABEL: Final = property_label(PROPERTY_UNIQUE_KEY)
_KEYS_LABEL: Final = property_label(PROPERTY_KEYS)
_SEPARATOR: Final = KEY_SEPARATOR.encode()

_TAIL_SIZE: Final = 4  # the counter at the end of a unique id
_TAIL_FACTOR: Final = 31**_TAIL_SIZE
_HEAD_CACHE_SIZE: Final = 4096  # topics times producers, each in its current millisecond
_KEPT_KEY_SIZE: Final = 256  # bytes; with longer ones anyone could fill the memory


def key_hashes(topic: bytes, properties: bytes) -> list[int]:
    """Return the hashes of a record's unique id and keys, in the order in which they are indexed."""
    unique = stored_value(properties, _UNIQUE_LABEL)
    hashes = [_key_hash(topic, unique)] if unique else []
    keys = stored_value(properties, _KEYS_LABEL)
    if keys:
        for key in keys.split(_SEPARATOR):
            if key:
                hashes.append(_key_hash(topic, key))
    return hashes


def _key_hash(topic: bytes, key: bytes) -> int:
    if not _TAIL_SIZE <= len(key) <= _KEPT_KEY_SIZE or not key.isascii():
        return index_key_hash(topic.decode("utf-8", "replace"), key.decode("utf-8", "replace"))
    first, second, third, last = key[-_TAIL_SIZE:]
    tail = ((first * 31 + second) * 31 + third) * 31 + last
    code = (_head_hash(topic, key[:-_TAIL_SIZE]) * _TAIL_FACTOR + tail) & 0xFFFFFFFF
    if code == 0x80000000:
        return 0  # in Java the lowest number has no absolute value
    return code if code < 0x80000000 else 0x100000000 - code


@lru_cache(_HEAD_CACHE_SIZE)
def _head_hash(topic: bytes, head: bytes) -> int:
    return java_string_hash(f"{topic.decode('utf-8', 'replace')}#{head.decode()}")


def key_hash_columns(topics: list[bytes], properties: PropertyColumns) -> tuple[Int64s, Int64s]:
    """Return (hash, row) of every unique id and key of many records, in the order in which they are indexed."""
    codes = _topic_codes(topics)
    unique = properties.values(_UNIQUE_LABEL)
    hashes, rows = _key_hashes(codes, properties, unique), unique.owners
    words = properties.words(properties.values(_KEYS_LABEL))
    if len(words.owners):
        rows = np.concatenate((rows, words.owners))
        hashes = np.concatenate((hashes, _key_hashes(codes, properties, words)))
        order = np.argsort(rows, kind="stable")
        hashes, rows = hashes[order], rows[order]
    return hashes, rows


def _key_hashes(codes: UInt32s, properties: PropertyColumns, keys: ValuePlaces) -> Int64s:
    sums = codes[keys.owners] * power_of_31(properties.lengths(keys)) + properties.hashes(keys)
    hashes: Int64s = np.abs(sums.view(np.int32).astype(np.int64))
    hashes[hashes == 1 << 31] = 0  # in Java the lowest number has no absolute value
    return hashes


def _topic_codes(topics: list[bytes]) -> UInt32s:
    """Return the hash of each record's topic and separator, where the hash of its keys begins."""
    codes = {topic: _head_hash(topic, b"") & 0xFFFFFFFF for topic in set(topics)}
    if len(codes) == 1:
        return np.full(len(topics), codes[topics[0]], np.uint32)
    return np.array([codes[topic] for topic in topics], np.uint32)
