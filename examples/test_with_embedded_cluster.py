"""Test your own code against a whole cluster in memory: no ports, no files, no waiting.

    pip install pytest pytest-trio
    pytest -o trio_mode=true examples/test_with_embedded_cluster.py     # or trio_mode = true in your pytest settings

With pytest-trio's `autojump_clock` time jumps whenever everybody waits, so that timeouts cost nothing.
"""

from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock

from rocketrio import ClientInstance, Message, open_client, open_consumer, open_producer
from rocketrio_broker.embedded import EmbeddedCluster


async def bill(client: ClientInstance, count: int) -> int:
    """The code under test: adds up orders."""
    cents = 0
    async with open_consumer("orders", group="billing", client=client) as consumer:
        for _ in range(count):
            cents += int((await consumer.receive()).body)
    return cents


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(slaves=1) as running:
        yield running


@pytest.fixture
async def client(cluster: EmbeddedCluster) -> AsyncIterator[ClientInstance]:
    async with open_client(
        name_servers=cluster.name_servers, dial=cluster.dial, wall_clock=cluster.wall_clock
    ) as opened:
        yield opened


async def test_orders_are_added_up(client: ClientInstance, autojump_clock: MockClock) -> None:
    async with open_producer(client=client) as producer:
        for cents in (100, 250):
            await producer.send(Message("orders", b"%d" % cents))
    assert await bill(client, 2) == 350


async def test_bill_survives_the_death_of_the_master(
    client: ClientInstance, cluster: EmbeddedCluster, autojump_clock: MockClock
) -> None:
    async with open_producer(client=client) as producer:
        for cents in (100, 250):
            await producer.send(Message("orders", b"%d" % cents))
    await trio.sleep(1)  # The slave copies them.
    await cluster.kill_master()
    assert await bill(client, 2) == 350
