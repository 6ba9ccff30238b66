"""How many messages may be handed out together, so that what their compressed bodies grow to stays bounded.

A pulled chunk is as small as its stored bytes, and waits so. Bodies are inflated when messages leave, one after the
other; those beyond the limit stay for the next hand-out. What was inflated is let go when its message is done.

Invariant: at least one message leaves: none grows beyond MAX_BODY_SIZE, or it cannot be read at all.
Unlike Java: it inflates all that a pull brought at once, whatever it grows to (docs/decisions/0046).
"""

from collections.abc import Iterable, Sequence

from rocketrio_protocol.message import MessageExt
from rocketrio_protocol.record.compression import INFLATE_LIMIT


def inflated_size(messages: Iterable[MessageExt]) -> int:
    """Bytes that their compressed bodies take, which are inflated now."""
    return sum(message.inflated_size for message in messages)


def fitting(messages: Sequence[MessageExt]) -> int:
    """How many of them, from the first on, stay within the limit together."""
    size = 0
    for count, message in enumerate(messages):
        size += message.inflated_size
        if size > INFLATE_LIMIT and count:
            message.forget_body()
            return count
    return len(messages)
