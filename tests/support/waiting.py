"""Wait for a condition, which is checked again and again; and how long a test may wait at all."""

import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Final

import trio
from trio.testing import MockClock

HANGS: Final = 600.0
"""Seconds of a real clock after which a test hangs, on however busy a machine: a limit measures nothing."""


async def eventually(
    claim: Callable[[], object | Awaitable[object]],
    limit: float | None = None,
    *,
    interval: float = 0.1,
) -> None:
    """Return once `claim()` is true; it may be an async function.

    Raises TooSlowError after `limit` seconds; without one after 30 of a virtual clock, and `HANGS` of a real one.
    """
    if limit is None:
        limit = 30.0 if isinstance(trio.lowlevel.current_clock(), MockClock) else HANGS
    with trio.fail_after(limit):
        while True:
            found = claim()
            if await found if inspect.isawaitable(found) else found:
                return
            await trio.sleep(interval)


def wait_until(claim: Callable[[], bool], what: str, timeout: float = HANGS) -> None:
    """Return once `claim()` is true, in a test without trio. Raises TimeoutError after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not claim():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not {what} within {timeout:.0f} s")
        time.sleep(0.1)
