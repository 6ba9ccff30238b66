import signal
from heapq import heappush

import pytest
import trio
import trio.testing

from rocketrio_broker.waiting.watermark import Watermark, wait_any_past


async def test_wait_returns_at_once_when_the_point_is_passed(
    autojump_clock: trio.abc.Clock,
) -> None:
    mark = Watermark(7)
    assert await mark.wait_past(6) == 7
    assert await mark.wait_reached(7) == 7


async def test_each_waiter_wakes_at_its_own_point() -> None:
    mark = Watermark()
    woken: list[int] = []

    async def wait(point: int) -> None:
        await mark.wait_reached(point)
        woken.append(point)

    async with trio.open_nursery() as nursery:
        for point in (30, 10, 20):
            nursery.start_soon(wait, point)
        await trio.testing.wait_all_tasks_blocked()
        assert mark.waiter_count == 3
        mark.advance(20)
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(woken) == [10, 20]
        mark.advance(30)
    assert sorted(woken) == [10, 20, 30]


async def test_wait_past_needs_more_than_the_point() -> None:
    mark = Watermark(5)
    with trio.move_on_after(0) as scope:
        await mark.wait_past(5)
    assert scope.cancelled_caught


async def test_value_never_falls_but_by_reset() -> None:
    mark = Watermark(5)
    mark.advance(3)
    assert mark.value == 5
    mark.reset(3)
    assert mark.value == 3


async def test_reset_upwards_wakes_waiters() -> None:
    mark = Watermark()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mark.wait_reached, 9)
        await trio.testing.wait_all_tasks_blocked()
        mark.reset(9)


async def test_cancelled_waiter_leaves_nothing_behind() -> None:
    mark = Watermark()
    for _ in range(500):
        with trio.move_on_after(0):
            await mark.wait_reached(1000)
    assert mark.waiter_count == 0
    assert len(mark._waiters) < 200
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mark.wait_reached, 1000)
        await trio.testing.wait_all_tasks_blocked()
        mark.advance(1000)
    assert mark.waiter_count == 0
    assert not mark._waiters


async def test_reset_downwards_wakes_only_waiters_for_the_next_change() -> None:
    """What lay between is gone: a service that went by it must look again."""
    mark = Watermark(50)
    woken: list[tuple[str, int]] = []

    async def wait_past() -> None:
        woken.append(("past", await mark.wait_past(50)))

    async def wait_reached() -> None:
        woken.append(("reached", await mark.wait_reached(60)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait_past)
        nursery.start_soon(wait_reached)
        await trio.testing.wait_all_tasks_blocked()
        mark.reset(10)
        await trio.testing.wait_all_tasks_blocked()
        assert woken == [("past", 10)]
        assert mark.waiter_count == 1
        mark.advance(70)
    assert woken == [("past", 10), ("reached", 70)]
    assert mark.waiter_count == 0


async def test_any_of_several_marks_ends_the_wait_and_none_keeps_a_waiter(
    autojump_clock: trio.abc.Clock,
) -> None:
    for moving in range(3):
        marks = [Watermark(5) for _ in range(3)]
        with trio.move_on_after(1) as waiting:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait_any_past, *((mark, 5) for mark in marks))
                await trio.testing.wait_all_tasks_blocked()
                assert [mark.waiter_count for mark in marks] == [1, 1, 1]
                marks[moving].advance(6)
        assert not waiting.cancelled_caught
        assert [mark.waiter_count for mark in marks] == [0, 0, 0]


async def test_marks_that_move_in_one_turn_end_the_wait_for_any_once() -> None:
    marks = Watermark(5), Watermark(5), Watermark(5)
    ended = 0

    async def wait() -> None:
        nonlocal ended
        await wait_any_past(*((mark, 5) for mark in marks))
        ended += 1
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        marks[0].advance(6)
        marks[1].reset(2)
        marks[2].advance(7)
        await trio.testing.wait_all_tasks_blocked()
        assert ended == 1
        assert [mark.waiter_count for mark in marks] == [0, 0, 0]
        nursery.cancel_scope.cancel()


async def test_a_mark_that_is_past_its_value_already_is_not_waited_for(
    autojump_clock: trio.abc.Clock,
) -> None:
    still, ahead = Watermark(5), Watermark(6)
    await wait_any_past((still, 5), (ahead, 5))
    assert still.waiter_count == 0


async def test_a_mark_that_is_set_back_ends_the_wait_for_any() -> None:
    still, cut = Watermark(5), Watermark(5)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait_any_past, (still, 5), (cut, 5))
        await trio.testing.wait_all_tasks_blocked()
        cut.reset(2)


async def test_a_cancelled_wait_for_any_leaves_nothing_behind(
    autojump_clock: trio.abc.Clock,
) -> None:
    marks = [Watermark(), Watermark()]
    with trio.move_on_after(1) as waiting:
        await wait_any_past((marks[0], 0), (marks[1], 0))
    assert waiting.cancelled_caught
    assert [mark.waiter_count for mark in marks] == [0, 0]


def test_ctrl_c_while_a_wait_begins_leaves_no_ended_task_to_be_woken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mark = Watermark()

    def push(heap: list[object], entry: object) -> None:
        heappush(heap, entry)
        signal.raise_signal(signal.SIGINT)

    async def wait_and_advance() -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(mark.wait_reached, 10)
                await trio.sleep_forever()
        except* KeyboardInterrupt:
            mark.advance(10)
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr("rocketrio_broker.waiting.watermark.heappush", push)
    trio.run(wait_and_advance)
    assert mark.waiter_count == 0
