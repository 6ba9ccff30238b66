"""Wait for a condition, which is checked again and again."""

import inspect
import time
from collections.abc import Awaitable, Callable

import trio


async def eventually(
    claim: Callable[[], object | Awaitable[object]], limit: float = 30.0, *, interval: float = 0.1
) -> None:
    """Return once `claim()` is true; it may be an async function. Raises TooSlowError after `limit` seconds."""
    with trio.fail_after(limit):
        while True:
            found = claim()
            if await found if inspect.isawaitable(found) else found:
                return
            await trio.sleep(interval)


def wait_until(claim: Callable[[], bool], what: str, timeout: float = 90.0) -> None:
    """Return once `claim()` is true, in a test without trio. Raises TimeoutError after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not claim():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not {what} within {timeout:.0f} s")
        time.sleep(0.1)
