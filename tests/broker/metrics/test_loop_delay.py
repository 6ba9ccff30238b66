import time

import trio

from rocketrio_broker.metrics.loop_delay import INTERVAL, LoopDelay


async def test_task_that_holds_the_loop_is_seen_in_the_longest_delay() -> None:
    delay = LoopDelay()
    async with trio.open_nursery() as nursery:
        await nursery.start(delay.run)
        await trio.sleep(INTERVAL / 2)
        time.sleep(2 * INTERVAL)  # noqa: ASYNC251 - the fault that is measured.
        await trio.sleep(INTERVAL)
        nursery.cancel_scope.cancel()
    assert delay.longest >= 0.1
    assert sum(delay.delays.counts[:6]) < sum(delay.delays.counts)
