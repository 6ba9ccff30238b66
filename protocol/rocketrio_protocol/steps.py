"""Long work as a generator that pauses after each step: its owner decides what happens in between."""

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def all_at_once(steps: Generator[None, None, T]) -> T:
    """Return the result of work that could be done in steps."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
