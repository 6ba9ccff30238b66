"""A trio run that goes the same way each time: same seed, same order of tasks, same virtual times.

Trio shuffles the tasks that are ready by a random source of its own, and hands cancellations out by walking sets of
objects, whose order depends on their addresses. Switched to deterministic scheduling it sorts what is ready before
it shuffles, and its source can be seeded.

What is left to us: no threads (disks are inline), no real time, no sets of objects walked where order matters; sets
of text only under one PYTHONHASHSEED, which holds in one process and has to be fixed between two.
"""

import gc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar, TypeVarTuple

import trio
import trio._core._run
from trio.testing import MockClock

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


def run_deterministically(
    main: Callable[[*Arguments], Awaitable[Result]], *arguments: *Arguments, seed: int
) -> Result:
    """As `trio.run`, under a clock that jumps, and the same again for the same seed."""
    with _deterministic_scheduling(seed):
        return trio.run(main, *arguments, clock=MockClock(autojump_threshold=0))


@contextmanager
def _deterministic_scheduling(seed: int) -> Iterator[None]:
    run = trio._core._run
    allowed, state = run._ALLOW_DETERMINISTIC_SCHEDULING, run._r.getstate()
    run._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]
    run._r.seed(seed)
    # A collection in the middle of a run would end forgotten generators wherever it happens to fall.
    was_collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    gc.freeze()  # What is there already is no garbage of a later run.
    try:
        yield
    finally:
        run._ALLOW_DETERMINISTIC_SCHEDULING = allowed  # type: ignore[misc]
        run._r.setstate(state)
        if was_collecting:
            gc.enable()
