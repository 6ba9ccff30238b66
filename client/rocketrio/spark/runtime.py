"""Between Spark's thread, which asks for the next batch, and a trio loop, which fetches ahead.

One loop per call, in a thread that ends with it: a task costs a few milliseconds more than with a loop
kept for the life of the process, and there is nothing global, nothing to keep alive over idle kills, and
no state that a forked worker could inherit.

Invariant: at most `BLOCKS_AHEAD` blocks wait; the producer waits for room.
Invariant: when the iterator is closed the loop is cancelled and the thread has ended.
Unlike a loop kept per process: connections are dialled once a task (about a millisecond).
"""

import contextlib
import queue
import threading
from collections.abc import Awaitable, Callable, Generator
from typing import Final, Generic, TypeAlias, TypeVar

import attrs
import trio

BLOCKS_AHEAD: Final = 3
"""Blocks of about `batchBytes` that may wait for Spark: one decoded, one ready, one arriving."""

LARGEST_KEPT: Final = 31 * 1024 * 1024
"""Bytes: a little less than the most that glibc's malloc learns from (DEFAULT_MMAP_THRESHOLD_MAX, 32 MiB)."""

T = TypeVar("T")


@attrs.frozen
class _End:
    """The producer returned, or raised."""

    error: BaseException | None = None


class Handover(Generic[T]):
    """The producer's end: `await put(block)`."""

    def __init__(self) -> None:
        self._blocks: queue.SimpleQueue[T | _End] = queue.SimpleQueue()
        self._room = trio.Semaphore(BLOCKS_AHEAD)

    async def put(self, block: T) -> None:
        """Wait for room, then hand the block over."""
        await self._room.acquire()
        self._blocks.put(block)

    def _end(self, error: BaseException | None) -> None:
        self._blocks.put(_End(error))

    def _taken(self) -> None:
        self._room.release()


def first_cause(error: BaseException) -> BaseException:
    """Nurseries gather errors; the first one tells enough, and is what the reader can act on."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


Producer: TypeAlias = Callable[[Handover[T]], Awaitable[None]]


@attrs.frozen
class _Loop:
    """How Spark's thread reaches the running loop."""

    token: trio.lowlevel.TrioToken
    scope: trio.CancelScope

    def call_soon(self, action: Callable[[], object]) -> None:
        with contextlib.suppress(trio.RunFinishedError):
            self.token.run_sync_soon(action)


def keep_freed_memory() -> None:
    """Have this process keep what it frees, some 60 MiB at most, instead of giving it back at once.

    Megabytes come and go with every block; fresh memory costs a page fault for each 4 KiB, a fifth of all reading.
    glibc keeps twice as much as the largest block freed so far. This one is never touched, so that it costs nothing.
    """
    bytearray(LARGEST_KEPT)


def blocks(produce: Producer[T]) -> Generator[T]:
    """What `produce` hands over, while it runs in a loop of its own; its exception comes out as raised."""
    keep_freed_memory()
    handover: Handover[T] = Handover()
    started: queue.SimpleQueue[_Loop | None] = queue.SimpleQueue()

    async def main() -> None:
        with trio.CancelScope() as scope:
            started.put(_Loop(trio.lowlevel.current_trio_token(), scope))
            await produce(handover)

    def run() -> None:
        try:
            trio.run(main)
        except BaseException as error:  # crosses to the reading thread, which raises it
            handover._end(first_cause(error))
        else:
            handover._end(None)
        finally:
            started.put(None)  # for a loop that could not even start

    thread = threading.Thread(target=run, name="rocketrio-spark-reader", daemon=True)
    thread.start()
    loop = started.get()
    try:
        while True:
            block = handover._blocks.get()
            if isinstance(block, _End):
                if block.error is not None:
                    raise block.error
                return
            yield block
            del block
            assert loop is not None
            loop.call_soon(handover._taken)
    finally:
        if loop is not None:
            loop.call_soon(loop.scope.cancel)
        thread.join()
