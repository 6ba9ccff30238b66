"""An end, in real time, for a run under a virtual clock: time that jumps never runs out by itself.

A run can hang in a loop without a checkpoint, in one whose sleeps only jump, or with every task waiting for what never
comes. A signal reaches the main thread in each of them. The process ends there and then, for nothing in the run can be
trusted to unwind; what it was doing is printed first.
"""

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

import trio

EXIT_STATUS: Final = 1
"""As for any other broken promise."""


@contextmanager
def real_time_limit(seconds: float, tell: Callable[[str], str]) -> Iterator[None]:
    """End the process if the block takes longer, and print what `tell` makes of where it was; main thread only."""

    def end(_: int, frame: FrameType | None) -> None:
        where = "".join(traceback.format_stack(frame, limit=8))
        text = f"it still ran after {seconds:g} s of real time, in\n{where}{_tasks_text()}"
        print(tell(text), flush=True)
        sys.stderr.flush()
        os._exit(EXIT_STATUS)

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _tasks_text() -> str:
    """Every task, and the line that it waits in."""
    root = trio.lowlevel.current_root_task()
    lines, tasks = ["tasks:"], [] if root is None else [root]
    while tasks:
        task = tasks.pop()
        tasks += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
        frames = [frame for frame, _ in task.iter_await_frames()]
        ours = [frame for frame in frames if "/trio/" not in frame.f_code.co_filename]
        at = "" if not ours else f"{ours[-1].f_code.co_filename}:{ours[-1].f_lineno}"
        lines.append(f"  {task.name} {at}")
    return "\n".join(lines)
