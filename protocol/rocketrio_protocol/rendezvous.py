"""Rendezvous hashing: each name prefers one of several brokers, and when a broker comes or leaves, few names move.

Invariant: every process computes the same preference.
"""

from functools import lru_cache
from hashlib import blake2b
from typing import Final

_WEIGHT_SIZE: Final = 8  # bytes
_WEIGHTS_KEPT: Final = 4096  # pairs of name and broker; computing one again takes a microsecond


@lru_cache(_WEIGHTS_KEPT)
def weight(name: str, broker_id: int) -> bytes:
    """Return the weight of a broker for a name, which prefers the broker with the largest one."""
    return blake2b(f"{name}@{broker_id}".encode(), digest_size=_WEIGHT_SIZE).digest()
