"""What a pair of brokers does that has nothing to do: it costs a core of a machine almost nothing."""

from collections import Counter

import trio
from trio.testing import MockClock

from rocketrio_broker.embedded import EmbeddedCluster

SECONDS = 60
STEPS_LIMIT = 30
"""Steps of tasks a second; most are the slave's, which copies offsets each second."""


class _Steps(trio.abc.Instrument):
    """Counts the steps of each kind of task."""

    def __init__(self) -> None:
        self.by_task: Counter[str] = Counter()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.by_task[task.name] += 1


async def test_idle_pair_wakes_some_thirty_times_a_second(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster(slaves=1):
        await trio.sleep(10)
        steps = _Steps()
        trio.lowlevel.add_instrument(steps)
        await trio.sleep(SECONDS)
        trio.lowlevel.remove_instrument(steps)
    assert steps.by_task.total() / SECONDS < STEPS_LIMIT
    assert not [name for name in steps.by_task if "_flush_on_period" in name]
