"""Test your own code against a whole cluster in memory: no ports, no files, no waiting.

    pip install pytest pytest-trio
    pytest -o trio_mode=true examples/test_with_embedded_cluster.py     # or trio_mode = true in your pytest settings

The fixture `rocketmq_cluster` comes with rocketrio. In a trio test time jumps whenever every task waits, so that
timeouts cost nothing. The code under test opens its clients as usual: NAMESRV_ADDR names the cluster.
"""

import pytest
import trio

from rocketrio import Message, open_consumer, open_producer
from rocketrio.testing import EmbeddedCluster


async def bill(count: int) -> int:
    """The code under test: adds up orders."""
    cents = 0
    async with open_consumer("orders", group="billing") as consumer:
        for _ in range(count):
            cents += int((await consumer.receive()).body)
    return cents


async def test_orders_are_added_up(rocketmq_cluster: EmbeddedCluster) -> None:
    async with open_producer() as producer:
        for cents in (100, 250):
            await producer.send(Message("orders", b"%d" % cents))
    assert await bill(2) == 350


@pytest.mark.rocketmq_cluster(slaves=1)
async def test_bill_survives_the_death_of_the_master(rocketmq_cluster: EmbeddedCluster) -> None:
    async with open_producer() as producer:
        for cents in (100, 250):
            await producer.send(Message("orders", b"%d" % cents))
    await trio.sleep(1)  # The slave copies them.
    await rocketmq_cluster.kill_master()
    assert await bill(2) == 350
