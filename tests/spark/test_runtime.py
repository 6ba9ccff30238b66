"""The loop of a process: jobs, blocks, forks, and the clients that its tasks share."""

import platform
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from rocketrio.client import ClientInstance
from rocketrio.spark.errors import BrokerUnreachableError
from rocketrio.spark.runtime import (
    BLOCKS_AHEAD,
    CLIENT_IDLE,
    Handover,
    ProcessRuntime,
    SharedClients,
    process_runtime,
)
from rocketrio_broker.embedded import EmbeddedCluster

NOBODY = ("127.0.0.1:1",)
"""A name server that refuses connections."""


@pytest.fixture(scope="module")
def runtime() -> ProcessRuntime:
    return ProcessRuntime()


class Blocked:
    """Work that goes on until it is cancelled."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()

    async def __call__(self, started: Callable[[], object] | None = None) -> None:
        try:
            if started is not None:
                started()
            await trio.sleep_forever()
        finally:
            self.cancelled.set()


# -------------------------------------------------------------------------------------------- calls


async def _sum(*numbers: int) -> int:
    await trio.lowlevel.checkpoint()
    return sum(numbers)


async def _fail() -> None:
    raise LookupError("gone")


async def _fail_among_others() -> None:
    async with trio.open_nursery() as outer, trio.open_nursery() as nursery:
        outer.start_soon(trio.sleep_forever)
        nursery.start_soon(_fail)


def test_a_call_gives_the_result_or_raises_the_error(runtime: ProcessRuntime) -> None:
    assert runtime.call(_sum, 1, 2, timeout=10) == 3
    for work in (_fail, _fail_among_others):
        with pytest.raises(LookupError, match="gone"):
            runtime.call(work, timeout=10)
    assert runtime.call(_sum, 4, timeout=10) == 4


def test_call_that_takes_too_long_is_cancelled_and_raises(runtime: ProcessRuntime) -> None:
    work = Blocked()
    with pytest.raises(BrokerUnreachableError, match=r"no answer of the cluster within 0\.05 s"):
        runtime.call(work, timeout=0.05)
    assert work.cancelled.is_set()


def _interrupt_main_thread() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def test_an_interrupt_cancels_the_call_and_comes_out(runtime: ProcessRuntime) -> None:
    work = Blocked()
    with pytest.raises(KeyboardInterrupt):
        runtime.call(work, _interrupt_main_thread, timeout=60)
    assert work.cancelled.is_set()
    assert runtime.call(_sum, 4, timeout=10) == 4


def test_threads_may_call_at_once_and_share_one_loop() -> None:
    runtime, tokens, meeting = ProcessRuntime(), set(), threading.Barrier(4)

    async def token() -> object:
        # All four are in the loop at the same time.
        await trio.to_thread.run_sync(meeting.wait, 10)
        return trio.lowlevel.current_trio_token()

    def use() -> None:
        tokens.add(runtime.call(token, timeout=20))

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tokens) == 1


def test_a_process_has_one_runtime() -> None:
    assert process_runtime() is process_runtime()


def test_jobs_get_the_same_client_one_after_the_other(runtime: ProcessRuntime) -> None:
    async def client() -> ClientInstance:
        return await runtime.client(NOBODY)

    first = runtime.call(client, timeout=10)
    assert not first.is_closed
    assert runtime.call(client, timeout=10) is first


def test_a_loop_that_cannot_start_is_an_error_and_the_next_one_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_more_files(main: object) -> None:
        raise OSError("Too many open files")

    runtime = ProcessRuntime()
    with monkeypatch.context() as patch:
        patch.setattr(trio, "run", no_more_files)
        with pytest.raises(OSError, match="Too many open files"):
            runtime.call(_sum, timeout=10)
    assert runtime.call(_sum, 1, timeout=10) == 1


def test_a_fault_of_the_loop_ends_its_jobs_and_the_next_one_gets_another() -> None:
    async def stop() -> None:
        raise SystemExit(3)

    runtime = ProcessRuntime()
    with pytest.raises(Exception, match="the loop of this process has ended"):
        runtime.call(stop, timeout=10)
    assert runtime.call(_sum, 1, timeout=10) == 1


# ------------------------------------------------------------------------------------------- blocks


def test_blocks_come_in_order_and_the_loop_stays(runtime: ProcessRuntime) -> None:
    async def produce(handover: Handover[int]) -> None:
        for number in range(100):
            await handover.put(number)

    assert list(runtime.blocks(produce)) == list(range(100))
    threads = set(threading.enumerate())
    assert list(runtime.blocks(produce)) == list(range(100))
    assert not set(threading.enumerate()) - threads  # Those of others may end meanwhile.


def test_the_producers_error_comes_out_as_raised_after_what_it_gave(
    runtime: ProcessRuntime,
) -> None:
    async def produce(handover: Handover[int]) -> None:
        await handover.put(1)
        await _fail_among_others()

    stream = runtime.blocks(produce)
    assert next(stream) == 1
    with pytest.raises(LookupError, match="gone"):
        next(stream)


def test_the_producer_waits_for_room(runtime: ProcessRuntime) -> None:
    made = 0

    async def produce(handover: Handover[int]) -> None:
        nonlocal made
        for number in range(20):
            await handover.put(number)
            made = number + 1

    stream = runtime.blocks(produce)
    for taken in range(1, 15):
        next(stream)
        assert made <= taken + BLOCKS_AHEAD
    stream.close()


def _one_then(work: Callable[[], Awaitable[None]]) -> Callable[[Handover[int]], Awaitable[None]]:
    async def produce(handover: Handover[int]) -> None:
        await handover.put(1)
        await work()

    return produce


def test_closing_the_iterator_cancels_only_its_producer(runtime: ProcessRuntime) -> None:
    closed, other = Blocked(), Blocked()
    streams = [runtime.blocks(_one_then(work)) for work in (closed, other)]
    assert [next(stream) for stream in streams] == [1, 1]
    streams[0].close()
    assert closed.cancelled.is_set()
    assert not other.cancelled.is_set()
    streams[1].close()
    assert other.cancelled.is_set()


def test_an_iterator_that_ends_in_the_loop_itself_does_not_wait_for_it(
    runtime: ProcessRuntime,
) -> None:
    # As the garbage collector may do it.
    work = Blocked()
    stream: Generator[int] = runtime.blocks(_one_then(work))
    next(stream)

    async def close() -> None:
        stream.close()  # If it waited for the loop, which waits for this, that would never end.

    runtime.call(close, timeout=30)
    assert work.cancelled.wait(10)


def test_nothing_runs_before_the_first_block_is_asked_for() -> None:
    async def produce(handover: Handover[int]) -> None:
        raise AssertionError

    threads = set(threading.enumerate())
    ProcessRuntime().blocks(produce)
    assert not set(threading.enumerate()) - threads


# ---------------------------------------------------------------------------------------- processes


def _run(program: str, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *flags, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )  # fmt: skip


@pytest.mark.slow
def test_a_fork_has_a_runtime_of_its_own() -> None:
    # Python warns from 3.12 on of any fork of a process with threads.
    done = _run(
        """
import logging, os, threading, trio
logging.disable()
from rocketrio.spark.runtime import process_runtime, THREAD_NAME
assert not [t for t in threading.enumerate() if t.name == THREAD_NAME], "started by an import"
async def client():
    return await process_runtime().client(("127.0.0.1:1",))
def loops():
    return len([t for t in threading.enumerate() if t.name == THREAD_NAME])
mine = process_runtime()
theirs = mine.call(client, timeout=10)
if os.fork() == 0:
    assert process_runtime() is not mine
    assert loops() == 0
    assert process_runtime().call(client, timeout=10) is not theirs
    assert loops() == 1
    print("child", flush=True)
    os._exit(0)
assert os.wait()[1] == 0
assert mine.call(client, timeout=10) is theirs
print("parent")
""",
        "-Wignore::DeprecationWarning",
    )
    assert (done.stdout.split(), done.stderr) == (["child", "parent"], "")


@pytest.mark.slow
def test_the_interpreter_ends_at_once_whatever_still_runs() -> None:
    program = """
import logging, trio
logging.disable()
from rocketrio.spark.runtime import process_runtime
runtime = process_runtime()
async def produce(handover):
    await runtime.client(("127.0.0.1:1",))
    await handover.put(1)
    try:
        await trio.sleep_forever()
    finally:
        with trio.CancelScope(shield=True):
            await trio.sleep(300)
import builtins
builtins.kept = runtime.blocks(produce)  # so that it is not closed either
print(next(builtins.kept), flush=True)
"""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "1\n"
        assert process.wait(5) == 0
        assert process.stderr.read() == ""


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
    done = _run(program)
    assert int(done.stdout) < 50 * 5 * 256 / 10


@asynccontextmanager
async def _kept() -> AsyncIterator[tuple[SharedClients, tuple[str, ...]]]:
    async with EmbeddedCluster() as cluster, trio.open_nursery() as nursery:
        yield SharedClients(nursery, cluster.dial), tuple(cluster.name_servers)
        nursery.cancel_scope.cancel()


async def test_one_client_serves_all_callers(autojump_clock: MockClock) -> None:
    async with _kept() as (clients, servers):
        found = set()

        async def ask(user: str) -> None:
            found.add(await clients.client(servers, user))

        async with trio.open_nursery() as nursery:
            for user in ("a", "b"):
                nursery.start_soon(ask, user)
        await ask("c")
        assert len(found) == 1
        assert await clients.client(("10.0.0.99:1",), "a") not in found


@pytest.mark.slow
async def test_client_is_closed_after_a_while_without_users(
    autojump_clock: MockClock,
) -> None:
    async with _kept() as (clients, servers):
        client = await clients.client(servers, "a")
        await client.name_servers.topics()
        assert client.pool.open_addrs
        await trio.sleep(10 * CLIENT_IDLE)
        assert not client.is_closed  # a task still has it
        clients.released("a")
        await trio.sleep(CLIENT_IDLE - 1)
        assert not client.is_closed
        await trio.sleep(2)
        assert client.is_closed
        assert not client.pool.open_addrs
        assert await clients.client(servers, "a") is not client


@pytest.mark.slow
async def test_caller_in_time_keeps_the_client_open(autojump_clock: MockClock) -> None:
    async with _kept() as (clients, servers):
        client = await clients.client(servers, "a")
        await clients.client(servers, "b")
        clients.released("a")
        await trio.sleep(2 * CLIENT_IDLE)
        clients.released("b")
        await trio.sleep(CLIENT_IDLE - 1)
        assert await clients.client(servers, "c") is client
        await trio.sleep(2 * CLIENT_IDLE)
        assert not client.is_closed


async def test_caller_at_the_moment_of_the_close_gets_another_client(
    autojump_clock: MockClock,
) -> None:
    async with _kept() as (clients, servers):
        client = await clients.client(servers, "a")
        clients.released("a")
        await trio.sleep(CLIENT_IDLE)  # Both are woken at the same time, in any order.
        other = await clients.client(servers, "b")
        await trio.sleep(1)
        assert other is not client
        assert not other.is_closed


async def test_a_broken_client_is_replaced(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _kept() as (clients, servers):
        client = await clients.client(servers, "a")

        def broken() -> None:
            raise LookupError("a fault")

        monkeypatch.setattr(client, "clean_offline_brokers", broken)
        await trio.sleep(35)  # It polls routes every 30 s.
        assert client.is_closed
        other = await clients.client(servers, "a")
        assert other is not client
        assert await other.name_servers.topics()
        clients.released("a")


async def test_a_cancelled_question_leaves_the_client_to_others(autojump_clock: MockClock) -> None:
    async with _kept() as (clients, servers):
        with trio.CancelScope() as scope:
            scope.cancel()
            await clients.client(servers, "a")
        assert scope.cancelled_caught
        clients.released("a")
        await clients.client(servers, "b")
