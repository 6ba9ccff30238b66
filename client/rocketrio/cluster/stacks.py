"""The current call stacks of this process as text: its trio tasks, and its other threads.

Answers to: UtilAll.jstack, which shows threads; here tasks of one thread do most of the work.
"""

import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from types import FrameType

import trio

Line = tuple[FrameType, int]


def stacks() -> str:
    """Return one block per task or thread, with the innermost call first."""
    root = trio.lowlevel.current_root_task()
    blocks = [] if root is None else [_of_task(task) for task in _with_children(root)]
    own = threading.get_ident()
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    blocks += [
        _block(f"thread {names.get(ident, ident)}", traceback.walk_stack(frame))
        for ident, frame in sys._current_frames().items()
        if ident != own
    ]
    return "\n".join(blocks)


def _with_children(task: trio.lowlevel.Task) -> Iterator[trio.lowlevel.Task]:
    yield task
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield from _with_children(child)


def _of_task(task: trio.lowlevel.Task) -> str:
    outermost_first = list(task.iter_await_frames())
    return _block(f"task {task.name}", reversed(outermost_first))


def _block(title: str, lines: Iterable[Line]) -> str:
    calls = [
        f"    {frame.f_code.co_qualname} at {frame.f_code.co_filename}:{number}\n"
        for frame, number in lines
    ]
    return f"{title}\n{''.join(calls)}"
