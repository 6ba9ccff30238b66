"""Rendezvous hashing: each name prefers one of several brokers, and when a broker comes or leaves, few names move.

Invariant: every process computes the same preference.
"""

from functools import lru_cache
from hashlib import blake2b
from typing import Final

_WEIGHT_SIZE: Final = 8  # bytes
_WEIGHTS_KEPT: Final = 4096  # pairs of name and broker; computing one again takes a microsecond
_NAME_LENGTH: Final = 255  # characters of a name that is remembered


def weight(name: str, broker_id: int) -> bytes:
    """Return the weight of a broker for a name, which prefers the broker with the largest one."""
    known = _weight if len(name) <= _NAME_LENGTH else _weight.__wrapped__
    return known(name, broker_id)


@lru_cache(_WEIGHTS_KEPT)
def _weight(name: str, broker_id: int) -> bytes:
    return blake2b(f"{name}@{broker_id}".encode(), digest_size=_WEIGHT_SIZE).digest()
