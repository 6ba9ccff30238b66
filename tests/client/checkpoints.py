"""Cancels that come at a chosen checkpoint: the k-th time that a task, or one it started, waits or lets others run."""

from collections.abc import Awaitable, Callable

import trio


class _CancelAt(trio.abc.Instrument):
    def __init__(self, owner: trio.lowlevel.Task, scope: trio.CancelScope, number: int) -> None:
        self.owner, self.scope, self.left = owner, scope, number

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if not self._is_ours(task) or self.left == 0:
            return
        self.left -= 1
        if self.left == 0:
            self.scope.cancel()

    def _is_ours(self, task: trio.lowlevel.Task | None) -> bool:
        while task is not None:
            if task is self.owner:
                return True
            nursery = task.parent_nursery
            task = None if nursery is None else nursery.parent_task
        return False


async def cancelled_at(number: int, work: Callable[[], Awaitable[object]]) -> bool:
    """Do `work`, cancelled at its `number`-th checkpoint, the first being 1; return whether it came so far.

    Steps of tasks that `work` starts count too.
    """
    with trio.CancelScope() as scope:
        instrument = _CancelAt(trio.lowlevel.current_task(), scope, number)
        trio.lowlevel.add_instrument(instrument)
        try:
            await work()
        finally:
            trio.lowlevel.remove_instrument(instrument)
    return instrument.left == 0
