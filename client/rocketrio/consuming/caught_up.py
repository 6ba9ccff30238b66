"""Receives the messages that exist at the start and then ends, for jobs that read a topic once.

The goal is the end of each queue that this consumer owns when the first message is requested. A queue reaches its goal
by its position, which also passes messages that no tag or expression selects: no idle time has to be guessed.

Invariant: it ends only when each message below the goal was handed out, or its queue belongs to another member.
Answers to: nothing in Java; the consume commands of mqadmin go by offsets and times.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from rocketrio_protocol.errors import NotReachable
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.remoting.tasks import background_nursery, every

if TYPE_CHECKING:
    from rocketrio.consuming.consumer import Consumer

LOOK_INTERVAL: Final = 0.1
"""Seconds between checks whether a waiting receive has anything left to wait for."""

SHARE_LIMIT: Final = 10.0
"""Seconds in which brokers must report which members share the queues: a few rounds of requests."""

T = TypeVar("T")


async def until_caught_up(
    consumer: "Consumer", receive: Callable[[], Awaitable[T]]
) -> AsyncGenerator[T]:
    """Iterate as described at `Consumer.until_caught_up`."""
    await _know_share(consumer)
    ends = {queue: await consumer.client.max_offset(queue) for queue in consumer.assignment}
    while not _is_past(consumer, ends):
        received: list[T] = []
        async with background_nursery() as nursery:
            nursery.start_soon(_end_when_past, consumer, ends, nursery.cancel_scope)
            received.append(await receive())  # If it is cancelled, it takes no message.
        for one in received:
            yield one
    consumer.settle()


async def _know_share(consumer: "Consumer") -> None:
    # Without a share there would be nothing to consume, and that would be mistaken for the end.
    deadline = trio.current_time() + SHARE_LIMIT
    while not consumer.rebalances and not consumer.assignment:
        if trio.current_time() >= deadline:
            raise NotReachable(
                f"no broker told in {SHARE_LIMIT:.0f} s which queues are this member's of group {consumer.group}"
            )
        await trio.sleep(LOOK_INTERVAL)


async def _end_when_past(
    consumer: "Consumer", ends: Mapping[MessageQueue, int], scope: trio.CancelScope
) -> None:
    async for _ in every(LOOK_INTERVAL, first_after=LOOK_INTERVAL):
        if _is_past(consumer, ends):
            scope.cancel()


def _is_past(consumer: "Consumer", ends: Mapping[MessageQueue, int]) -> bool:
    # A queue that another member took over is finished by that member.
    for queue in consumer.assignment:
        position = consumer.position(queue)
        if position is None or position < ends.get(queue, 0):
            return False
    return True
