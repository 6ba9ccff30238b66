"""Iteration over lists of messages instead of single messages: what `Consumer.batches` returns."""

from typing import Protocol, Self

import attrs

from rocketrio_protocol.message import MessageExt


class BatchReceiver(Protocol):
    """The source of the lists, implemented by `HandOut`."""

    async def receive_batch(self, max_messages: int, max_wait: float) -> list[MessageExt]: ...


@attrs.define
class Batches:
    """Iterator over lists of messages, one after the other, while the consumer is open."""

    consumer: BatchReceiver
    max_messages: int
    max_wait: float

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[MessageExt]:
        return await self.consumer.receive_batch(self.max_messages, self.max_wait)
