"""Wall clocks that a test moves, and trio on a clock that jumps."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from rocketrio_protocol.remoting.ports import VirtualWallClock

START_MS = 1_700_000_000_000


class SettableClock:
    """A wall clock that stands still until a test sets `now`."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now = now_ms

    def now_ms(self) -> int:
        return self.now


class SteppedClock(VirtualWallClock):
    """A wall clock that follows trio's clock, and that a test sets forward or back by `step_ms`."""

    step_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.step_ms


def run_in_virtual_time(main: Any, *, clock: Any, instruments: Any) -> Any:
    """As `trio.run`, on a clock that jumps whenever every task waits."""
    return trio.run(main, clock=clock or MockClock(autojump_threshold=0), instruments=instruments)


def give_virtual_time(
    items: list[pytest.Item], folder: Path, is_meant: Callable[[pytest.Function], bool]
) -> None:
    """Let the tests of a folder that are meant run in virtual time, without naming the clock.

    pytest hands over the tests of all folders that it has collected.
    """
    for item in items:
        # As texts: to compare ten thousand paths part by part takes half a second.
        if (
            isinstance(item, pytest.Function)
            and str(item.path).startswith(f"{folder}/")
            and is_meant(item)
        ):
            item.add_marker(pytest.mark.trio(run=run_in_virtual_time), append=False)
