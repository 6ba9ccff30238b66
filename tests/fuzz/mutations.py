"""Changes of inputs, as a fuzzer makes them: small ones, words of a dictionary, and a few that make an input long.

The fuzzer has small ones of its own; what it lacks is length: what takes quadratic time needs tens of kilobytes.
"""

import random
import struct
from collections.abc import Sequence
from typing import Final

LONGEST: Final = 256 << 10
"""Bytes that an input is made to have at most."""
_MOST_CHANGES: Final = 4


def changed(
    data: bytes, words: Sequence[bytes], others: Sequence[bytes], rng: random.Random
) -> bytes:
    """The input with a few changes."""
    for _ in range(rng.randint(1, _MOST_CHANGES)):
        at = rng.randint(0, len(data))
        size = rng.randint(1, 8)
        match rng.randrange(7):
            case 0 if data:
                at = min(at, len(data) - 1)
                data = data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
            case 1:
                data = data[:at] + data[at + size :]
            case 2:
                data = data[:at] + rng.randbytes(size) + data[at:]
            case 3 if words:
                data = data[:at] + rng.choice(words) + data[at:]
            case 4 if words:
                word = rng.choice(words)
                data = data[:at] + word + data[at + len(word) :]
            case 5 if others:
                other = rng.choice(others)
                data = data[:at] + other[rng.randint(0, len(other)) :]
            case _:
                data = data[:at]
    return data


def lengthened(data: bytes, words: Sequence[bytes], rng: random.Random) -> bytes:
    """The input with one piece of it, or one word, many times over."""
    at = rng.randint(0, len(data))
    piece = (
        data[at : at + rng.randint(1, 16)] if rng.random() < 0.5 or not words else rng.choice(words)
    )
    piece = piece or b"1"
    count = rng.randint(1, max(1, (LONGEST - len(data)) // len(piece)))
    return (data[:at] + piece * count + data[at:])[:LONGEST]


def framed(data: bytes) -> bytes:
    """The input as one frame: its lengths are put right, and its header ends where it did if it can."""
    if len(data) < 8:
        return data
    word = struct.unpack_from(">I", data, 4)[0]
    header_size = min(word & 0xFFFFFF, len(data) - 8)
    return struct.pack(">iI", len(data) - 4, word >> 24 << 24 | header_size) + data[8:]


def mutated(
    data: bytes,
    words: Sequence[bytes],
    others: Sequence[bytes],
    rng: random.Random,
    *,
    is_framed: bool,
) -> bytes:
    """One changed input: long in one of twenty, and a whole frame in four of five where it is to be one."""
    data = changed(data, words, others, rng)
    if rng.random() < 0.05:
        data = lengthened(data, words, rng)
    return framed(data) if is_framed and rng.random() < 0.8 else data
