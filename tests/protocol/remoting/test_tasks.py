"""Periods, background tasks and retries, in virtual time."""

import logging

import pytest
import trio
import trio.testing

from rocketrio_protocol.errors import NotAuthenticatedError, NotAuthorizedError, NotReachableError
from rocketrio_protocol.remoting.tasks import (
    background_nursery,
    every,
    retry_forever,
    ungrouped,
)

# ------------------------------------------------------------------------------------------- every


async def test_every_ticks_at_a_fixed_rate_from_now_on(
    autojump_clock: trio.testing.MockClock,
) -> None:
    start, ticks = trio.current_time(), []
    async for _ in every(10):
        ticks.append(trio.current_time() - start)
        await trio.sleep(3)
        if len(ticks) == 4:
            break
    assert ticks == [0, 10, 20, 30]


async def test_every_may_wait_before_its_first_tick(
    autojump_clock: trio.testing.MockClock,
) -> None:
    start, ticks = trio.current_time(), []
    async for _ in every(10, first_after=4):
        ticks.append(trio.current_time() - start)
        if len(ticks) == 3:
            break
    assert ticks == [4, 14, 24]


async def test_of_the_ticks_that_passed_while_the_body_was_busy_one_comes_late(
    autojump_clock: trio.testing.MockClock,
) -> None:
    start, ticks = trio.current_time(), []
    async for _ in every(10):
        ticks.append(trio.current_time() - start)
        if len(ticks) == 2:
            await trio.sleep(35)
        if len(ticks) == 4:
            break
    assert ticks == [0, 10, 45, 50]


async def test_a_day_of_ticks_does_not_drift(autojump_clock: trio.testing.MockClock) -> None:
    start, count = trio.current_time(), 0
    async for _ in every(0.7):
        count += 1
        if count == 1001:
            break
    assert trio.current_time() - start == pytest.approx(700)


async def test_period_must_be_longer_than_nothing() -> None:
    with pytest.raises(ValueError, match="longer than 0 s"):
        every(0)


# ------------------------------------------------------------------------------- background_nursery


async def test_body_ends_the_background_tasks() -> None:
    ended = []

    async def service() -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append(True)

    async with background_nursery() as nursery:
        nursery.start_soon(service)
        await trio.testing.wait_all_tasks_blocked()
    assert ended == [True]


async def test_error_of_the_body_comes_out_as_it_was_raised() -> None:
    error = KeyError("mine")
    cause = ValueError("cause")

    async def body() -> None:
        async with background_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            raise error from cause

    with pytest.raises(KeyError) as caught:
        await body()
    assert caught.value is error
    assert error.__cause__ is cause
    assert error.__context__ is cause or error.__context__ is None


async def test_error_of_the_body_comes_out_of_nurseries_in_each_other() -> None:
    async def body() -> None:
        async with background_nursery(), background_nursery() as inner:
            inner.start_soon(trio.sleep_forever)
            raise NotReachableError("gone")

    with pytest.raises(NotReachableError):
        await body()


@pytest.mark.parametrize(
    "error",
    [
        ExceptionGroup("mine", [ValueError("x")]),
        ExceptionGroup("mine", [ExceptionGroup("within", [ValueError("x")])]),
        ExceptionGroup("mine", [ValueError("x"), KeyError("y")]),
    ],
)
async def test_group_of_the_body_comes_out_as_it_was_raised(error: ExceptionGroup) -> None:
    async def body() -> None:
        async with background_nursery(), background_nursery() as inner:
            inner.start_soon(trio.sleep_forever)
            raise error

    with pytest.raises(ExceptionGroup) as caught:
        await body()
    assert caught.value is error


async def test_group_of_a_background_task_is_opened() -> None:
    async def service() -> None:
        async with trio.open_nursery():
            raise ZeroDivisionError("bug")

    async def body() -> None:
        async with background_nursery() as nursery:
            nursery.start_soon(service)
            await trio.sleep_forever()

    with pytest.raises(ZeroDivisionError, match="bug"):
        await body()


def test_one_fault_is_taken_out_of_all_groups() -> None:
    error = KeyError("mine")
    with pytest.raises(KeyError) as caught, ungrouped():
        raise ExceptionGroup("outer", [ExceptionGroup("inner", [error])])
    assert caught.value is error


def test_of_several_refusals_of_access_control_the_first_comes_out() -> None:
    first, second = NotAuthorizedError("first"), NotAuthenticatedError("second")
    with pytest.raises(NotAuthorizedError, match="first"), ungrouped():
        raise BaseExceptionGroup("", [ExceptionGroup("", [first]), second])
    with pytest.raises(ExceptionGroup), ungrouped():
        raise ExceptionGroup("", [first, KeyError("other")])


async def test_fault_of_a_background_task_stops_the_body_and_comes_out_as_itself() -> None:
    async def service() -> None:
        raise ZeroDivisionError("bug")

    async def body() -> None:
        async with background_nursery() as nursery:
            nursery.start_soon(service)
            await trio.sleep_forever()

    with pytest.raises(ZeroDivisionError, match="bug"):
        await body()


async def fails_in_the_end() -> None:
    try:
        await trio.sleep_forever()
    finally:
        raise ZeroDivisionError("bug")


async def test_faults_of_both_come_as_a_group() -> None:
    async def body() -> None:
        async with background_nursery() as nursery:
            nursery.start_soon(fails_in_the_end)
            await trio.testing.wait_all_tasks_blocked()
            raise KeyError("mine")

    with pytest.raises(ExceptionGroup) as caught:
        await body()
    assert {type(error) for error in caught.value.exceptions} == {KeyError, ZeroDivisionError}


async def test_ctrl_c_comes_out_alone_whatever_failed_with_it() -> None:
    async def body() -> None:
        async with background_nursery() as nursery:
            nursery.start_soon(fails_in_the_end)
            await trio.testing.wait_all_tasks_blocked()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        await body()
    assert isinstance(caught.value.__cause__, BaseExceptionGroup)
    assert caught.value.__cause__.subgroup(ZeroDivisionError) is not None


async def test_cancel_from_outside_passes_through() -> None:
    with trio.move_on_after(0) as scope:
        async with background_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            await trio.sleep_forever()
    assert scope.cancelled_caught


# ----------------------------------------------------------------------------------- retry_forever


async def test_attempts_are_paused_logged_and_slowed_down_until_one_works(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    start = trio.current_time()
    times: list[float] = []

    async def attempt() -> None:
        times.append(trio.current_time() - start)
        if len(times) not in (5, 6):
            raise NotReachableError("no master")

    with trio.move_on_after(60):
        await retry_forever(attempt, name="the copy of topics", pause=2, longest_pause=10)
    # 2, 4, 8, then 10 at most; after an attempt that worked 2 again, after the next fault too.
    assert times[:8] == [0, 2, 6, 14, 24, 26, 28, 30]
    assert "what=the copy of topics" in caplog.text
    assert "NotReachableError: no master" in caplog.text


async def test_pause_is_constant_by_default(
    autojump_clock: trio.testing.MockClock,
) -> None:
    start = trio.current_time()
    times: list[float] = []

    async def attempt() -> None:
        times.append(trio.current_time() - start)
        raise RuntimeError("bug")

    with trio.move_on_after(9):
        await retry_forever(attempt, name="work", pause=3)
    assert times == [0, 3, 6]


async def test_only_a_cancel_ends_it_and_a_base_exception() -> None:
    async def attempt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await retry_forever(attempt, name="work", pause=3)
