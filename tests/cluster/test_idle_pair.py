"""A pair of brokers that has nothing to do, and must leave the machine to others."""

import trio
from tests.support.steps import counted_steps
from trio.testing import MockClock

from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_broker.store.flush import FlushService

SECONDS = 60
STEPS_LIMIT = 30
"""Steps of tasks a second; most are the slave's, which copies offsets each second."""


async def test_idle_pair_wakes_some_thirty_times_a_second(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster(slaves=1):
        await trio.sleep(10)
        with counted_steps() as steps:
            await trio.sleep(SECONDS)
    assert steps.total / SECONDS < STEPS_LIMIT
    assert not [name for name in steps.by_task if FlushService.__name__ in name]
