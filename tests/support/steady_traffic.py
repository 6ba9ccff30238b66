"""A producer and a group that never pause while a story changes the cluster; each message has a number of its own."""

import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Final

import attrs
import trio
from tests.support.waiting import eventually

from rocketrio import (
    ClientInstance,
    ConsumeLater,
    Message,
    MessageExt,
    open_consumer,
    open_producer,
)

MEMBERS: Final = 2
SEND_EVERY: Final = 0.05
"""Seconds."""
DELAY_EVERY: Final = 40
"""Each message of this number is delayed by 10 s, and the one after it fails once."""


@attrs.define
class SteadyTraffic:
    """What was acknowledged and what was handled so far."""

    topic: str
    group: str
    orderly: bool = False
    stored_at: dict[int, str] = attrs.field(factory=dict)
    """The broker that acknowledged each number."""
    handled: Counter[int] = attrs.field(factory=Counter)
    """How often each number was handled to its end."""
    repeated_at: list[float] = attrs.field(factory=list)
    """When numbers were handled another time, by trio's clock."""
    _sending: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    @asynccontextmanager
    async def running(
        self, open_client: Callable[[], AbstractAsyncContextManager[ClientInstance]]
    ) -> AsyncIterator[None]:
        """Run it for the length of the block, which fails with the first send or commit that fails."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send, open_client)
            for _ in range(MEMBERS):
                nursery.start_soon(self._consume, open_client)
            yield
            nursery.cancel_scope.cancel()

    async def uses(self, *brokers: str, count: int = 20) -> None:
        """Wait until each of the brokers has acknowledged `count` more."""
        wanted = {name: self.stored_by(name) + count for name in brokers}

        def are_used() -> bool:
            return all(self.stored_by(name) >= number for name, number in wanted.items())

        await eventually(are_used, 120)

    def stored_by(self, broker: str) -> int:
        """Return how many numbers a broker has acknowledged."""
        return Counter(self.stored_at.values())[broker]

    async def end(self) -> None:
        """Send no more, and wait until the group has handled everything that was acknowledged."""
        self._sending.cancel()
        await eventually(lambda: self.stored_at.keys() <= self.handled.keys(), 120)

    async def _send(
        self, open_client: Callable[[], AbstractAsyncContextManager[ClientInstance]]
    ) -> None:
        with self._sending:
            async with open_client() as client, open_producer(client=client) as producer:
                for number in itertools.count():
                    message = Message(self.topic, str(number).encode())
                    if number % DELAY_EVERY == 0:
                        message = producer.delayed(message, timedelta(seconds=10))
                    with trio.CancelScope(shield=True):  # A send that was made is noted.
                        result = await producer.send(message)
                    self.stored_at[number] = result.queue.broker_name
                    await trio.sleep(SEND_EVERY)

    async def _consume(
        self, open_client: Callable[[], AbstractAsyncContextManager[ClientInstance]]
    ) -> None:
        async with (
            open_client() as client,
            open_consumer(
                self.topic, group=self.group, orderly=self.orderly, client=client
            ) as consumer,
        ):
            await consumer.run(self._handle)

    async def _handle(self, message: MessageExt) -> None:
        number = int(message.body)
        if number % DELAY_EVERY == 1 and message.reconsume_times == 0:
            raise ConsumeLater(timedelta(seconds=5))
        await trio.lowlevel.checkpoint()
        if self.handled[number]:
            self.repeated_at.append(trio.current_time())
        self.handled[number] += 1
