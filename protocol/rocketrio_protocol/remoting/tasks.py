"""Helpers for tasks: periodic ticks, waits for the first of several, nurseries in the background, and endless retries.

Invariant: except in `retry_forever`, `except Exception` surrounds only code of others: a processor (`dispatch.py`), and
the functions that users give a consumer, a producer, or the asyncio side.
"""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import NoReturn, Self

import trio

from rocketrio_protocol.errors import AccessRefusedError

log = logging.getLogger("rocketrio_protocol")


class every:  # noqa: N801 - reads as a word: `async for _ in every(30)`.
    """Ticks at a fixed rate: `async for _ in every(30):`, the first after `first_after` seconds.

    A tick that is due while the body is busy comes late. If several were due meanwhile, only one comes.
    """

    def __init__(self, seconds: float, *, first_after: float = 0.0) -> None:
        if seconds <= 0:
            raise ValueError(f"a period must be longer than {seconds} s")
        self._seconds = seconds
        self._next = trio.current_time() + first_after

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> None:
        await trio.sleep_until(self._next)
        behind = trio.current_time() - self._next
        self._next += self._seconds * (1 + behind // self._seconds)


async def wait_any(*waits: Callable[[], Awaitable[object]]) -> None:
    """Return once one of these has returned; the others are cancelled."""
    async with trio.open_nursery() as nursery:

        async def run(wait: Callable[[], Awaitable[object]]) -> None:
            await wait()
            nursery.cancel_scope.cancel()

        for wait in waits:
            nursery.start_soon(run, wait)


@asynccontextmanager
async def background_nursery() -> AsyncGenerator[trio.Nursery]:
    """Open a nursery whose tasks end with the body, and which raises a single error as itself, not in a group.

    It is for context managers that run services in the background: an error of the caller's own code, even a group,
    comes out as it was raised. Several errors at once are still a group, with the exceptions of `ungrouped`.
    """
    raised: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            try:
                yield nursery
            except BaseException as error:
                raised = error
                raise
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        _raise_ungrouped(group, raised)
    finally:
        del raised


@contextmanager
def ungrouped() -> Generator[None]:
    """Raise a single error of the body as itself, however many nurseries have wrapped it in groups.

    Several errors at once stay a group, with two exceptions. A KeyboardInterrupt is raised alone with the group as its
    cause, so that a program that catches it ends quietly. Of several refusals of access control, which have one cause
    and often come together, the first is raised.
    """
    try:
        yield
    except BaseExceptionGroup as group:
        _raise_ungrouped(group)


def _raise_ungrouped(
    group: BaseExceptionGroup[BaseException], raised: BaseException | None = None
) -> NoReturn:
    """Raise the content of the group, or `raised` if that is a group itself and the only content."""
    faults = _faults(group)
    fault = faults[0] if len(faults) == 1 else group
    if any(isinstance(each, KeyboardInterrupt) for each in faults):
        if fault is group:
            raise KeyboardInterrupt from group
    # trio creates a new group when it removes its own Cancelled, so compare the errors inside.
    elif all(isinstance(each, AccessRefusedError) for each in faults):
        fault = faults[0]
    elif isinstance(raised, BaseExceptionGroup) and _faults(raised) == faults:
        fault = raised
    # Raising sets the context to the group, which adds nothing for the reader.
    cause, context, suppress = fault.__cause__, fault.__context__, fault.__suppress_context__
    try:
        raise fault
    finally:
        fault.__cause__, fault.__context__ = cause, context
        fault.__suppress_context__ = suppress
        del fault, cause, context


async def retry_forever(
    attempt: Callable[[], Awaitable[object]],
    *,
    name: str,
    pause: float,
    longest_pause: float | None = None,
) -> NoReturn:
    """Run `attempt` repeatedly, `pause` seconds after each return or error; an error is logged.

    Each further error in a row doubles the pause, up to `longest_pause` (by default the pause stays the same).
    `name` says in the log what failed. Only a cancel ends the loop.
    """
    wait = pause
    while True:
        try:
            await attempt()
            wait = pause
        except Exception as fault:
            log.warning("will retry what=%s pause=%g error=%s", name, wait, _described(fault))
            log.debug("fault of a task what=%s", name, exc_info=True)
            await trio.sleep(wait)
            wait = max(wait, min(wait * 2, longest_pause or pause))
        else:
            await trio.sleep(wait)


def _faults(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """Return the errors inside nested groups, in order."""
    found: list[BaseException] = []
    for fault in group.exceptions:
        found += _faults(fault) if isinstance(fault, BaseExceptionGroup) else [fault]
    return found


def _described(fault: Exception) -> str:
    return f"{type(fault).__name__}: {fault}"
