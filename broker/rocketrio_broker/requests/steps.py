"""Runs long work in steps, so that no request blocks the event loop for more than some milliseconds.

Invariant: shared work returns a result that was begun after the request, and no request waits for more than two runs.
"""

from collections.abc import Callable, Generator
from typing import Generic, TypeVar

import attrs
import trio

T = TypeVar("T")


async def in_steps(steps: Generator[None, None, T]) -> T:
    """Do the work, and let other tasks run after each step. A cancel ends it between two steps."""
    try:
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            await trio.lowlevel.checkpoint()
    finally:
        steps.close()


@attrs.define(eq=False)
class _Made(Generic[T]):
    value: T | None = None


class SharedWork(Generic[T]):
    """Work in steps whose result is shared by all requests that came before it began."""

    def __init__(self, make: Callable[[], Generator[None, None, T]]) -> None:
        self._make = make
        self._turn = trio.Lock()
        self._next: _Made[T] = _Made()

    async def get(self) -> T:
        """Return a result that is begun from now on; after a failure each waiting caller tries again."""
        # Taken before the wait for its turn, so that this request shares the
        # run which begins next, and waits for two at most.
        wanted = self._next
        async with self._turn:
            if wanted.value is None:
                if wanted is self._next:
                    # Before the run begins: a request that comes during it may ask about
                    # a change that the run has passed already.
                    self._next = _Made()
                wanted.value = await in_steps(self._make())
            return wanted.value
