"""An iteration over what messages mean instead of messages: what `Consumer.values` returns.

Invariant: a message whose value cannot be made counts as handed out, like any other: who goes on passes over it,
who leaves finds it again.
"""

from collections.abc import AsyncIterator, Callable
from typing import Generic, Self, TypeVar

import attrs

from rocketrio_protocol.message import MessageExt

T = TypeVar("T")


@attrs.define
class Values(Generic[T]):
    """One value after the other, for as long as the consumer is open."""

    messages: AsyncIterator[MessageExt]
    deserializer: Callable[[MessageExt], T]
    message: MessageExt | None = None
    """Where the last value came from, or the exception: to log it, or to hand it back with `retry`."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        message = self.message = await anext(self.messages)
        try:
            return self.deserializer(message)
        except Exception as error:
            error.add_note(f"while reading {message!r}")
            raise
