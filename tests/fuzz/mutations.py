"""Changes of inputs, as a fuzzer makes them: small ones, words of a dictionary, and long forms.

The fuzzer has small ones of its own; what it lacks is length: what takes quadratic time needs tens of kilobytes.
"""

import random
import struct
import zlib
from collections.abc import Sequence
from typing import Final

from tests.fuzz.target import Target, named, split_name
from tests.golden.mutations import ODD_VALUES, with_value

LONG_SIZE: Final = 64 << 10
"""Bytes that a long form has at least; the most are its target's."""
LONG_SHARE: Final = 64
"""One in this number of inputs is tried in a long form too: it takes a hundred times as long."""
FRAMED_SHARE: Final = 0.8
REBODIED_SHARE: Final = 0.05
_MOST_CHANGES: Final = 4


def changed(
    data: bytes, words: Sequence[bytes], others: Sequence[bytes], rng: random.Random
) -> bytes:
    """The input with a few changes."""
    for _ in range(rng.randint(1, _MOST_CHANGES)):
        at = rng.randint(0, len(data))
        size = rng.randint(1, 8)
        match rng.randrange(9):
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
            case 6 | 7:
                value = rng.choice(ODD_VALUES)
                data = with_value(data, at, value if rng.random() < 0.5 else b'"' + value + b'"')
            case _:
                data = data[:at]
    return data


def long_form(target: Target, data: bytes) -> bytes | None:
    """Return the input with one piece of it, or one word, many times over; None for most inputs.

    The same input has always the same long form, so that the short one is all that has to be kept.
    """
    rng = random.Random(zlib.crc32(data))
    if rng.randrange(LONG_SHARE):
        return None
    name, rest = split_name(data) if target.is_named else ("", data)
    at = rng.randint(0, len(rest))
    piece = rest[at : at + rng.randint(1, 16)]
    if not piece or (target.words and rng.random() < 0.5):
        piece = rng.choice(target.words or (b"1",))
    count = int(LONG_SIZE * (target.size_limit / LONG_SIZE) ** rng.random()) // len(piece)
    longer = rest[:at] + piece * count + rest[at:]
    if target.is_framed:
        longer = framed(longer)
    return named(name, longer) if target.is_named else longer


def framed(data: bytes) -> bytes:
    """The input as one frame: its lengths are put right, and its header ends where it did if it can."""
    if len(data) < 8:
        return data
    word = struct.unpack_from(">I", data, 4)[0]
    header_size = min(word & 0xFFFFFF, len(data) - 8)
    return struct.pack(">iI", len(data) - 4, word >> 24 << 24 | header_size) + data[8:]


def rebodied(data: bytes, count: int) -> bytes:
    """Return the frame with its body repeated: none at all, or twice."""
    end = 8 + int.from_bytes(data[5:8])
    return framed(data[:end] + data[end:] * count)


def mutated(target: Target, data: bytes, others: Sequence[bytes], rng: random.Random) -> bytes:
    """Return one changed input: a whole frame in four of five where it is to be one.

    The name of a named input is kept, or is another one's.
    """
    if target.is_named:
        name, rest = split_name(rng.choice((data, data, data, rng.choice(others))))
        _, other = split_name(data)
        return named(name, _mutated(target, other or rest, others, rng))
    return _mutated(target, data, others, rng)


def _mutated(target: Target, data: bytes, others: Sequence[bytes], rng: random.Random) -> bytes:
    if target.is_framed and rng.random() < REBODIED_SHARE:
        return rebodied(data, rng.choice((0, 2)))
    data = changed(data, target.words, others, rng)
    return framed(data) if target.is_framed and rng.random() < FRAMED_SHARE else data
