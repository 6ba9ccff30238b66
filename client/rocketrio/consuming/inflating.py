"""Limits how many messages are handed out together, so that the size of their decompressed bodies is bounded.

A pulled chunk waits at its stored, compressed size. Bodies are decompressed when messages leave, one after the other;
messages beyond the limit stay for the next hand-out. A decompressed body is released when its message is done.

Invariant: at least one message leaves: a body never exceeds MAX_BODY_SIZE, or else it cannot be read at all.
Unlike Java: Java decompresses all messages of a pull at once, whatever their size (docs/decisions/0046).
"""

from collections.abc import Iterable, Sequence

from rocketrio_protocol.message import MessageExt
from rocketrio_protocol.record.compression import INFLATE_LIMIT


def inflated_size(messages: Iterable[MessageExt]) -> int:
    """Decompress the bodies and return the bytes that they take."""
    return sum(message.inflated_size for message in messages)


def fitting(messages: Sequence[MessageExt]) -> int:
    """Return how many messages, counted from the first, fit the limit together."""
    size = 0
    for count, message in enumerate(messages):
        size += message.inflated_size
        if size > INFLATE_LIMIT and count:
            message.forget_body()
            return count
    return len(messages)
