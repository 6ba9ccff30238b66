"""Counts what tasks do, to show that those that wait do nothing."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import trio


class Steps(trio.abc.Instrument):
    """The steps that tasks have made, by the name of the task."""

    def __init__(self) -> None:
        self.by_task: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """The steps of all tasks."""
        return self.by_task.total()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.by_task[task.name] += 1


@contextmanager
def counted_steps() -> Iterator[Steps]:
    """Count the steps of all tasks within this block."""
    steps = Steps()
    trio.lowlevel.add_instrument(steps)
    try:
        yield steps
    finally:
        trio.lowlevel.remove_instrument(steps)
