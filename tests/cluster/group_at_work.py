"""A pair of brokers, and a group whose members handle what they are given."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import trio
from tests.support.clients import client_of
from tests.support.pair import Pair, pair_of

from rocketrio import ClientInstance, Consumer, MessageExt, open_consumer
from rocketrio_broker.embedded import EmbeddedCluster, Member

TOPIC, GROUP = "orders", "billing"
SHARED = 50
SENT = {f"shared-{number}" for number in range(SHARED)}
DELIVERED_WITHIN = 60.0


@asynccontextmanager
async def asynchronous_pair(**settings: Any) -> AsyncIterator[Pair]:
    """An asynchronous pair with a topic of one queue, and messages in it."""
    async with pair_of(**settings) as pair:
        await pair.caller.create_topic(pair.master.address, TOPIC, 1)
        await send_named(pair, "shared", SHARED)
        yield pair


async def send_named(pair: Pair, name: str, count: int, *, at: Member | None = None) -> set[str]:
    """Store messages, and return their texts."""
    texts = {f"{name}-{number}" for number in range(count)}
    await pair.send(*sorted(texts), at=at)
    return texts


async def replace_master(pair: Pair) -> None:
    """The slave, which the master could not reach, takes its place."""
    await pair.first.kill()
    pair.network.heal()
    await pair.promote(pair.second)


class Handled:
    """What members of a group have handled."""

    def __init__(self, *, seconds: float = 0.0) -> None:
        """Each message takes so long."""
        self.bodies: list[str] = []
        self._seconds = seconds
        self._more = trio.Event()

    async def __call__(self, message: MessageExt) -> None:
        await trio.sleep(self._seconds)
        self.bodies.append(bytes(message.body).decode())
        self._more.set()

    async def wait(self, wanted: set[str], *, within: float = DELIVERED_WITHIN) -> None:
        """Raises AssertionError for what is not handled in time."""
        with trio.move_on_after(within):
            while not wanted <= set(self.bodies):
                self._more = trio.Event()
                await self._more.wait()
        assert not wanted - set(self.bodies)


@asynccontextmanager
async def members(
    cluster: EmbeddedCluster,
    handled: Handled,
    *,
    count: int = 1,
    concurrency: int = 10,
    **options: Any,
) -> AsyncIterator[list[Consumer]]:
    """Members of one group, each in a client of its own, whose handlers run."""
    async with AsyncExitStack() as stack:
        consumers = []
        nursery = await stack.enter_async_context(trio.open_nursery())
        for _ in range(count):
            client: ClientInstance = await stack.enter_async_context(client_of(cluster))
            consumer = await stack.enter_async_context(
                open_consumer(TOPIC, group=GROUP, client=client, start_from="earliest", **options)
            )
            nursery.start_soon(partial(consumer.run, handled, concurrency=concurrency))
            consumers.append(consumer)
        yield consumers
        nursery.cancel_scope.cancel()
