"""A number that only grows, with tasks waiting for it to pass a point.

Invariant: `value` never decreases except by `reset`, which a change of role or a truncation calls.
Invariant: waiters are woken once, in the order of their points; a cancelled one leaves nothing behind.
Invariant: a waiter for the next change (`wait_past`) is woken by a downward reset too, a waiter for a point is not.
Answers to: WaitNotifyObject, the atomic maxima and the wait/notify pairs of the store and of HA.
Unlike Java: tasks do not poll; a task wakes only when its own point is reached.
"""

from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final

import attrs
import trio

from rocketrio_protocol.remoting.tasks import wait_any

_SWEEP_FLOOR: Final = 64  # cancelled waiters kept before the heap is rebuilt without them


@attrs.define(order=False, eq=False)
class _Waiter:
    """One waiting task; `task` is None once it was woken or cancelled."""

    reached: int
    task: trio.lowlevel.Task | None
    is_woken_by_resets: bool


class Watermark:
    """A growing position that tasks can wait for."""

    __slots__ = ("_cancelled", "_order", "_value", "_waiters")

    def __init__(self, value: int = 0) -> None:
        self._value = value
        self._waiters: list[tuple[int, int, _Waiter]] = []
        self._order = count()
        self._cancelled = 0

    def __repr__(self) -> str:
        return f"<Watermark {self._value}, {self.waiter_count} waiting>"

    @property
    def value(self) -> int:
        return self._value

    @property
    def waiter_count(self) -> int:
        """The number of waiting tasks."""
        return len(self._waiters) - self._cancelled

    def advance(self, to: int) -> None:
        """Move up to `to` and wake the tasks that waited for that; a lower number is ignored."""
        if to <= self._value:
            return
        self._value = to
        waiters = self._waiters
        while waiters and waiters[0][0] <= to:
            waiter = heappop(waiters)[2]
            if waiter.task is None:
                self._cancelled -= 1
            else:
                task, waiter.task = waiter.task, None
                trio.lowlevel.reschedule(task)

    def reset(self, to: int) -> None:
        """Set the value, also to a lower one, because the log was truncated or the role changed."""
        if to >= self._value:
            self.advance(to)
            return
        self._value = to
        for _, _, waiter in self._waiters:
            # A task that waits for a change looks again, as what was there is gone;
            # one that waits for a point goes on waiting.
            if waiter.is_woken_by_resets and waiter.task is not None:
                task, waiter.task = waiter.task, None
                self._cancelled += 1
                trio.lowlevel.reschedule(task)
        self._sweep()

    async def wait_past(self, offset: int) -> int:
        """Return the value once it is greater than `offset`, or was reset downwards: what was there is gone then."""
        return await self._wait(offset + 1, is_woken_by_resets=True)

    async def wait_reached(self, offset: int) -> int:
        """Return the value once it is `offset` or more."""
        return await self._wait(offset, is_woken_by_resets=False)

    @trio.lowlevel.enable_ki_protection
    async def _wait(self, offset: int, *, is_woken_by_resets: bool) -> int:
        if self._value >= offset:
            await trio.lowlevel.checkpoint()
            return self._value
        waiter = _Waiter(offset, trio.lowlevel.current_task(), is_woken_by_resets)
        heappush(self._waiters, (offset, next(self._order), waiter))

        def abort(_: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
            # It stays in the heap until it is met or swept: a removal from the middle would cost a search.
            waiter.task = None
            self._cancelled += 1
            self._sweep()
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)
        return self._value

    def _sweep(self) -> None:
        """Drop cancelled waiters for far-away points once they are the larger part."""
        if self._cancelled > _SWEEP_FLOOR and self._cancelled * 2 > len(self._waiters):
            self._waiters = [entry for entry in self._waiters if entry[2].task is not None]
            heapify(self._waiters)
            self._cancelled = 0


async def wait_any_past(*marks: tuple[Watermark, int]) -> None:
    """Return once one of the watermarks is past the value given with it, or was reset downwards."""
    await wait_any(*(partial(mark.wait_past, value) for mark, value in marks))


class LogPosition(Watermark):
    """A watermark over log addresses that also has the store time of the last message below it."""

    __slots__ = ("store_time_ms",)

    def __init__(self, value: int = 0, store_time_ms: int = 0) -> None:
        super().__init__(value)
        self.store_time_ms = store_time_ms
