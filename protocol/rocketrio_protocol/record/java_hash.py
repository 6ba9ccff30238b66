"""Java's hash of a string, and what depends on it: tag codes, key hashes, and the order of a HashMap's keys.

    bucket = (hash ^ hash >>> 16) & (buckets - 1)       16 buckets; twice as many whenever they are 3/4 full

Within a bucket keys stand in the order in which they were put; one that was removed and put again is the last.

Invariant: for the same puts the order is that of 4.9, byte for byte (5.x begins with 128 buckets).
Answers to: String.hashCode; MessageDecoder.messageProperties2String over java.util.HashMap.
"""

import struct
from collections.abc import Mapping
from functools import lru_cache
from operator import mul
from typing import Final

from rocketrio_protocol.record.properties import NAME_VALUE_SEPARATOR, PAIR_SEPARATOR

FEWEST_BUCKETS: Final = 16
_MOST_FULL: Final = 0.75
_NAMES_CACHE_SIZE: Final = 1024  # Property names are few and repeat in every message.
_KEPT_NAME_SIZE: Final = 256  # characters of a name that is cached


def java_ordered(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties in the order of a Java HashMap."""
    buckets = FEWEST_BUCKETS
    while len(properties) > buckets * _MOST_FULL:
        buckets *= 2
    return dict(sorted(properties.items(), key=lambda each: _spread(each[0]) & (buckets - 1)))


def java_properties_text(properties: Mapping[str, str]) -> str:
    """Encode properties as a 4.9 broker does; used when a broker re-encodes the properties of a stored record."""
    return PAIR_SEPARATOR.join(
        f"{name}{NAME_VALUE_SEPARATOR}{value}" for name, value in java_ordered(properties).items()
    )


def _spread(text: str) -> int:
    known = _kept_spread if len(text) <= _KEPT_NAME_SIZE else _kept_spread.__wrapped__
    return known(text)


@lru_cache(_NAMES_CACHE_SIZE)
def _kept_spread(text: str) -> int:
    code = java_string_hash(text) & 0xFFFFFFFF
    return code ^ code >> 16


# 31^n modulo 2^32 for strings of up to this many UTF-16 units; topics and keys are far shorter.
_POWER_COUNT: Final = 512
_POWERS: Final = tuple(pow(31, exponent, 1 << 32) for exponent in reversed(range(_POWER_COUNT)))
_HASH_CACHE_SIZE: Final = 4096  # Tags are few and repeat in every message.
_KEPT_TAGS_SIZE: Final = (
    256  # characters; longer tags are not cached, so that the cache takes at most 1 MiB
)


def java_string_hash(text: str) -> int:
    """Return Java's String.hashCode: the polynomial in 31 over UTF-16 units, as a signed 32-bit number."""
    if text.isascii():
        return _polynomial(text.encode())
    units = text.encode("utf-16-be", "surrogatepass")
    return _polynomial(struct.unpack(f">{len(units) // 2}H", units))


def _polynomial(units: bytes | tuple[int, ...]) -> int:
    total = 0
    for start in range(0, len(units), _POWER_COUNT):
        part = units[start : start + _POWER_COUNT]
        if start:
            total = (total & 0xFFFFFFFF) * pow(31, len(part), 1 << 32)
        total += sum(map(mul, part, _POWERS[_POWER_COUNT - len(part) :]))
    return ((total & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000


_kept_hash: Final = lru_cache(_HASH_CACHE_SIZE)(java_string_hash)


def tags_code(tags: str | None) -> int:
    """Return the tags code of a queue entry: 0 without tags; several tags are hashed as one string."""
    if not tags:
        return 0
    return _kept_hash(tags) if len(tags) <= _KEPT_TAGS_SIZE else java_string_hash(tags)


def index_key_hash(topic: str, key: str) -> int:
    """Return the hash of a topic's key in the key index; never negative."""
    signed = java_string_hash(f"{topic}#{key}")
    return 0 if signed == -0x80000000 else abs(signed)
