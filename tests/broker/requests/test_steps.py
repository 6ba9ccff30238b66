"""Long work in turns."""

from collections.abc import Generator

import pytest
import trio

from rocketrio_broker.requests.steps import SharedWork, in_steps


async def test_others_have_their_turn_after_each_step() -> None:
    order = []

    def work() -> Generator[None, None, str]:
        for number in range(3):
            order.append(f"step {number}")
            yield
        return "done"

    async def other() -> None:
        for _ in range(3):
            order.append("other")
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        assert await in_steps(work()) == "done"
    assert "other" in order[1:-1]


async def test_a_cancel_ends_the_work_between_two_steps() -> None:
    ended = []

    def work() -> Generator[None, None, None]:
        try:
            while True:
                yield
        finally:
            ended.append(True)

    with trio.move_on_after(0):
        await in_steps(work())
    assert ended


async def test_requests_during_a_run_share_the_next_one() -> None:
    begun = []
    go_on = trio.Event()

    def make() -> Generator[None, None, int]:
        begun.append(True)
        number = len(begun)
        while number == 1 and not go_on.is_set():
            yield
        return number

    shared = SharedWork(make)
    got = []

    async def ask() -> None:
        got.append(await shared.get())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.sleep(0.01)
        for _ in range(5):
            nursery.start_soon(ask)
        await trio.sleep(0.01)
        go_on.set()
    assert got == [1, 2, 2, 2, 2, 2]
    assert await shared.get() == 3


async def test_failure_is_raised_to_its_caller_and_the_next_caller_tries_again() -> None:
    left = [True]

    def make() -> Generator[None, None, int]:
        yield
        if left:
            left.pop()
            raise ValueError("once")
        return 1

    shared = SharedWork(make)
    with pytest.raises(ValueError, match="once"):
        await shared.get()
    assert await shared.get() == 1
