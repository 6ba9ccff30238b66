"""An end, in real time, for a run under a virtual clock: time that jumps never runs out by itself.

A run can hang in a loop without a checkpoint, in one whose sleeps only jump, or with every task waiting for what never
comes. A signal reaches the main thread in each of them. The process ends there and then, for nothing in the run can be
trusted to unwind; what it was doing is printed first. A run that computes, but that a busy machine gives few turns, has
more time.
"""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

import trio

EXIT_STATUS: Final = 1
"""As for any other broken promise."""


IDLE: Final = 0.01
"""A run that computes for less than this share of its time waits for what never comes."""
SPINS: Final = 0.5
"""A run that has computed for this share of its limit would have been over on a quiet machine."""


@contextmanager
def real_time_limit(seconds: float, tell: Callable[[str], str]) -> Iterator[None]:
    """End the process if the block takes longer, and print what `tell` makes of where it was; main thread only.

    A block that has a small share of the processor meanwhile gets the same time again.
    """
    began = seen = time.process_time()

    def end(_: int, frame: FrameType | None) -> None:
        nonlocal seen
        before, seen = seen, time.process_time()
        if seen - before > IDLE * seconds and seen - began < SPINS * seconds:
            return
        where = "".join(traceback.format_stack(frame, limit=8))
        text = f"it still ran after {seconds:g} s of real time or more, in\n{where}{_tasks_text()}"
        print(tell(text), flush=True)
        sys.stderr.flush()
        os._exit(EXIT_STATUS)

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
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
