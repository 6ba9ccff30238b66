"""Iteration over deserialized values instead of messages: what `Consumer.values` returns.

Invariant: a message that cannot be deserialized counts as handed out, like any other: continuing the iteration skips
it; leaving the block redelivers it.
"""

from collections.abc import AsyncIterator, Callable
from typing import Generic, Self, TypeVar

import attrs

from rocketrio_protocol.message import MessageExt

T = TypeVar("T")


@attrs.define
class Values(Generic[T]):
    """Iterator over values, one after the other, while the consumer is open."""

    messages: AsyncIterator[MessageExt]
    deserializer: Callable[[MessageExt], T]
    message: MessageExt | None = None
    """The message of the last value or exception: to log it, or to hand it back with `retry`."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        message = self.message = await anext(self.messages)
        try:
            return self.deserializer(message)
        except Exception as error:
            error.add_note(f"while reading {message!r}")
            raise
