"""Long work that lets others have their turn: no request holds the event loop for more than some ms.

Invariant: who asks for shared work gets what was made after the question, and nobody waits for more than two makings.
"""

from collections.abc import Callable, Generator
from typing import Generic, TypeVar

import attrs
import trio

T = TypeVar("T")


async def in_steps(steps: Generator[None, None, T]) -> T:
    """Do the work, and let others have their turn after each step. A cancel ends it between two steps."""
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
    """Work in steps whose result is for all who asked before it began, however many ask."""

    def __init__(self, make: Callable[[], Generator[None, None, T]]) -> None:
        self._make = make
        self._turn = trio.Lock()
        self._next: _Made[T] = _Made()

    async def get(self) -> T:
        """Return what is made from now on; a failure is that of each who asks."""
        wanted = self._next
        async with self._turn:
            if wanted.value is None:
                if wanted is self._next:
                    self._next = _Made()
                wanted.value = await in_steps(self._make())
            return wanted.value
