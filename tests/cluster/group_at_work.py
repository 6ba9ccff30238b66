"""A pair of brokers, and a group whose members handle what they are given."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import trio
from tests.support.caller import Caller, caller_of
from tests.support.clients import client_of

from rocketrio import ClientInstance, Consumer, MessageExt, open_consumer
from rocketrio_broker.broker import Broker
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.codes import ResponseCode

TOPIC, GROUP = "orders", "billing"
SHARED = 50
DELIVERED_WITHIN = 60.0


@asynccontextmanager
async def asynchronous_pair() -> AsyncIterator[tuple[EmbeddedCluster, Caller]]:
    """An asynchronous pair with a topic of one queue."""
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as caller:
        await caller.create_topic(cluster.master.broker.address, TOPIC, 1)
        await send_named(caller, cluster.master.broker, "shared", SHARED)
        yield cluster, caller


async def send_named(caller: Caller, broker: Broker, name: str, count: int) -> set[str]:
    """Store messages; those that were acknowledged."""
    stored = {f"{name}-{number}" for number in range(count)}
    for body in sorted(stored):
        assert (await caller.send(broker.address, body.encode())).code == ResponseCode.SUCCESS
    return stored


async def promote(broker: Broker) -> None:
    await broker.roles.service.change("async-master", 0)


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
