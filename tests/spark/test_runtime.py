"""The hand-over between threads: order, errors, room, and that nothing is left running."""

import platform
import subprocess
import sys
import threading
import time

import pytest
import trio

from rocketrio.spark.runtime import BLOCKS_AHEAD, Handover, blocks


def _reader_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "rocketrio-spark-reader"]


def test_blocks_come_in_order_and_the_thread_ends() -> None:
    async def produce(handover: Handover[int]) -> None:
        for number in range(100):
            await handover.put(number)

    assert list(blocks(produce)) == list(range(100))
    assert _reader_threads() == []


def test_the_producers_error_comes_out_as_raised_after_what_it_gave() -> None:
    async def fail() -> None:
        raise LookupError("gone")

    async def produce(handover: Handover[int]) -> None:
        await handover.put(1)
        async with trio.open_nursery() as outer, trio.open_nursery() as nursery:
            outer.start_soon(trio.sleep_forever)
            nursery.start_soon(fail)

    stream = blocks(produce)
    assert next(stream) == 1
    with pytest.raises(LookupError, match="gone"):
        next(stream)
    assert _reader_threads() == []


def test_the_producer_waits_for_room() -> None:
    made = 0

    async def produce(handover: Handover[int]) -> None:
        nonlocal made
        for number in range(20):
            await handover.put(number)
            made = number + 1

    stream = blocks(produce)
    for taken in range(1, 15):
        next(stream)
        assert made <= taken + BLOCKS_AHEAD
    stream.close()


def test_closing_the_iterator_cancels_the_producer() -> None:
    cancelled = threading.Event()

    async def produce(handover: Handover[int]) -> None:
        try:
            await handover.put(1)
            await trio.sleep_forever()
        finally:
            cancelled.set()

    stream = blocks(produce)
    next(stream)
    started = time.monotonic()
    stream.close()
    assert cancelled.is_set()
    assert time.monotonic() - started < 5
    assert _reader_threads() == []


def test_nothing_runs_before_the_first_block_is_asked_for() -> None:
    async def produce(handover: Handover[int]) -> None:
        raise AssertionError

    blocks(produce)
    assert _reader_threads() == []


def test_a_loop_that_cannot_start_is_an_error_and_no_standstill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def produce(handover: Handover[int]) -> None:
        raise AssertionError

    def no_more_files(main: object) -> None:
        raise OSError("Too many open files")

    monkeypatch.setattr(trio, "run", no_more_files)
    with pytest.raises(OSError, match="Too many open files"):
        next(blocks(produce))
    assert _reader_threads() == []


@pytest.mark.slow
def test_memory_that_blocks_freed_is_used_again() -> None:
    # In a process of its own: what malloc has learnt stays with the process.
    program = """
import resource, sys
from rocketrio.spark.runtime import keep_freed_memory
keep_freed_memory()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        kept = [bytes([1]) * (1 << 20) for _ in range(5)]
        del kept
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""
    if platform.libc_ver()[0] != "glibc":
        pytest.skip("other C libraries decide for themselves")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, timeout=60
    )
    assert int(done.stdout) < 50 * 5 * 256 / 10
