"""The order in which Java's HashMap gives its texts: that of the properties in records that a broker wrote anew.

    bucket = (hash ^ hash >>> 16) & (buckets - 1)       16 buckets; twice as many whenever they are 3/4 full

Within a bucket texts stand as they were put; one that was taken out and put again is the last.

Invariant: for the same puts the result is what 4.9 writes, byte for byte (5.x begins with 128 buckets).
Answers to: MessageDecoder.messageProperties2String over java.util.HashMap.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from rocketrio_protocol.properties import (
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    java_string_hash,
)

FEWEST_BUCKETS: Final = 16
_MOST_FULL: Final = 0.75
_NAMES_CACHE_SIZE: Final = 1024  # names of properties are few and come again with every message


def java_ordered(properties: Mapping[str, str]) -> dict[str, str]:
    """The same properties in Java's order."""
    buckets = FEWEST_BUCKETS
    while len(properties) > buckets * _MOST_FULL:
        buckets *= 2
    return dict(sorted(properties.items(), key=lambda each: _spread(each[0]) & (buckets - 1)))


def java_properties_text(properties: Mapping[str, str]) -> str:
    """The properties string that a 4.9 broker makes of these; names and values must be ones that were stored before."""
    return PROPERTY_SEPARATOR.join(
        f"{name}{NAME_VALUE_SEPARATOR}{value}" for name, value in java_ordered(properties).items()
    )


@lru_cache(_NAMES_CACHE_SIZE)
def _spread(text: str) -> int:
    code = java_string_hash(text) & 0xFFFFFFFF
    return code ^ code >> 16
