"""The one task that ends what waited too long."""

from math import inf

import trio
import trio.testing

from rocketrio_protocol.remoting.sweeper import Sweeper


class _Deadlines:
    """A member with deadlines that notes when each was ended, and how often it was looked at."""

    def __init__(self, deadlines: list[float]) -> None:
        self.deadlines = deadlines
        self.ended: list[tuple[float, float]] = []
        self.look_count = 0

    def sweep(self, now: float) -> float:
        self.look_count += 1
        due = [deadline for deadline in self.deadlines if deadline <= now]
        self.ended += [(deadline, now) for deadline in sorted(due)]
        self.deadlines = [deadline for deadline in self.deadlines if deadline > now]
        return min(self.deadlines, default=inf)


async def test_each_deadline_is_ended_at_its_time_whenever_it_came(
    autojump_clock: trio.testing.MockClock,
) -> None:
    sweeper, start = Sweeper(), trio.current_time()
    first = _Deadlines([start + 5, start + 1, start + 9])
    second = _Deadlines([start + 4])
    async with trio.open_nursery() as nursery:
        sweeper.add(first)
        nursery.start_soon(sweeper.run)
        await trio.sleep(2)
        sweeper.add(second)
        sweeper.sweep_by(start + 4)
        await trio.sleep(1)
        first.deadlines.append(start + 3.5)
        sweeper.sweep_by(start + 3.5)
        await trio.sleep(20)
        nursery.cancel_scope.cancel()
    assert [ended for _, ended in first.ended] == [start + 1, start + 3.5, start + 5, start + 9]
    assert all(deadline == ended for deadline, ended in first.ended + second.ended)
    assert second.ended == [(start + 4, start + 4)]


async def test_deadlines_given_before_it_runs_count(autojump_clock: trio.testing.MockClock) -> None:
    sweeper, start = Sweeper(), trio.current_time()
    member = _Deadlines([start + 3])
    sweeper.add(member)
    sweeper.sweep_by(start + 3)
    await trio.sleep(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sweeper.run)
        await trio.sleep(5)
        nursery.cancel_scope.cancel()
    assert member.ended == [(start + 3, start + 3)]


async def test_steady_deadlines_cost_one_sweep_per_timeout_not_one_each(
    autojump_clock: trio.testing.MockClock,
) -> None:
    sweeper = Sweeper()
    member = _Deadlines([])
    sweeper.add(member)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sweeper.run)
        for _ in range(1000):  # A call every 10 ms that is answered 5 ms later, timeout 3 s.
            deadline = trio.current_time() + 3
            member.deadlines.append(deadline)
            sweeper.sweep_by(deadline)
            await trio.sleep(0.005)
            member.deadlines.remove(deadline)
            await trio.sleep(0.005)
        nursery.cancel_scope.cancel()
    assert member.ended == []
    assert member.look_count < 8


async def test_member_that_left_is_not_swept(autojump_clock: trio.testing.MockClock) -> None:
    sweeper = Sweeper()
    member = _Deadlines([trio.current_time() + 1])
    sweeper.add(member)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sweeper.run)
        await trio.testing.wait_all_tasks_blocked()
        sweeper.discard(member)
        await trio.sleep(5)
        nursery.cancel_scope.cancel()
    assert member.ended == []
