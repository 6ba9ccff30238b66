"""Waking a task that waits, or is going to."""

import trio
from trio.testing import MockClock

from rocketrio.wakeup import Wakeup


async def test_wake_before_the_wait_is_remembered_once(autojump_clock: MockClock) -> None:
    wakeup = Wakeup()
    wakeup.wake()
    wakeup.wake()
    assert await wakeup.wait(5)
    assert trio.current_time() == 0
    assert not await wakeup.wait(5)
    assert trio.current_time() == 5


async def test_cancelled_wait_leaves_the_wake(autojump_clock: MockClock) -> None:
    wakeup = Wakeup()
    with trio.move_on_after(1):
        await wakeup.wait(10)
    wakeup.wake()
    assert await wakeup.wait(10)


async def test_wake_ends_a_wait(autojump_clock: MockClock) -> None:
    wakeup = Wakeup()
    async with trio.open_nursery() as nursery:

        async def later() -> None:
            await trio.sleep(2)
            wakeup.wake()

        nursery.start_soon(later)
        assert await wakeup.wait(10)
    assert trio.current_time() == 2
