import logging

import pytest
import trio
from tests.support.clocks import SettableClock

from rocketrio_broker.store.clock_watch import SETTLES_AFTER, ClockWatch, duration
from rocketrio_broker.waiting.watermark import LogPosition

DAY_MS = 86_400_000


class RunningClock(SettableClock):
    """Follows the virtual clock from where it is set."""

    def now_ms(self) -> int:
        return self.now + round(1000 * trio.current_time())


@pytest.fixture
def clock() -> RunningClock:
    return RunningClock()


async def test_jump_ahead_settles_after_a_day(
    autojump_clock: trio.abc.Clock, clock: RunningClock, caplog: pytest.LogCaptureFixture
) -> None:
    watch = ClockWatch(LogPosition(), wall_clock=clock)
    assert watch.settled_ms() == clock.now_ms()
    clock.now += 40 * DAY_MS
    for _ in range(round(SETTLES_AFTER / 600) - 1):
        await trio.sleep(600)
        assert watch.settled_ms() == clock.now_ms() - 40 * DAY_MS
        assert "jumped ahead by 40 d" in watch.problem
    for _ in range(8):
        await trio.sleep(600)
        watch.compare()
    assert watch.settled_ms() == clock.now_ms()
    assert watch.problem == ""
    assert caplog.text.count("clock jumped by=40 d in_all=40 d") == 1
    clock.now -= DAY_MS
    assert watch.settled_ms() == clock.now_ms()


async def test_jump_that_is_taken_back_ends_the_problem(
    autojump_clock: trio.abc.Clock, clock: RunningClock, caplog: pytest.LogCaptureFixture
) -> None:
    watch = ClockWatch(LogPosition(), wall_clock=clock)
    async with trio.open_nursery() as nursery:
        await nursery.start(watch.run)
        clock.now += 40 * DAY_MS
        await trio.sleep(10)
        assert watch.problem
        clock.now -= 40 * DAY_MS
        await trio.sleep(2)
        assert watch.problem == ""
        assert "by=-40 d in_all=0 s" in caplog.text
        nursery.cancel_scope.cancel()


async def test_start_with_a_clock_ahead_of_the_log_settles_after_a_day(
    autojump_clock: trio.abc.Clock, clock: RunningClock
) -> None:
    last_ms = clock.now_ms() - 40 * DAY_MS
    watch = ClockWatch(LogPosition(0, last_ms), wall_clock=clock)
    assert watch.settled_ms() == last_ms
    await trio.sleep(100)
    assert watch.settled_ms() == last_ms + 100_000
    assert watch.problem == ""  # The broker may have been down for so long.


async def test_store_time_ahead_is_reported_until_it_is_over(
    autojump_clock: trio.abc.Clock, clock: RunningClock, caplog: pytest.LogCaptureFixture
) -> None:
    dispatched = LogPosition(0, clock.now_ms() + 600_000)
    watch = ClockWatch(dispatched, wall_clock=clock)
    with caplog.at_level(logging.WARNING):
        async with trio.open_nursery() as nursery:
            await nursery.start(watch.run)
            assert "store time is 10 min ahead of the clock" in watch.problem
            await trio.sleep(601)
            assert watch.problem == ""
            assert watch.ahead_ms == 0
            nursery.cancel_scope.cancel()
    # At 0, 60, 120, 240 and 480 seconds.
    assert caplog.text.count("store time ahead by=") == 5
    assert caplog.text.count("store time caught up seconds=59") == 1


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (40 * DAY_MS, "40 d"),
        (-36 * 3_600_000, "-1.5 d"),
        (5400_000, "1.5 h"),
        (12_340, "12.3 s"),
        (0, "0 s"),
    ],
)
def test_duration_is_in_its_largest_unit(milliseconds: int, text: str) -> None:
    assert duration(milliseconds) == text
