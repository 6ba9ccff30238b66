"""Runs trio inside a process that belongs to Spark: one loop in a thread of its own, kept from task to task.

    Spark's thread                             the loop's thread, a daemon
    call(fn, ...)    starts a job and waits    runs fn(...); its result or error goes back
    blocks(produce)  starts a job and takes    runs produce(handover); its blocks go over, then its end

Spark's Python workers live for many tasks, and connections opened for one task serve the next: `client` returns the
one client of its name servers and account (`SharedClients`). Its caller is a user of it from then on; a client without
users is closed CLIENT_IDLE seconds after the last one was released.

Invariant: a fork shares nothing with its parent: runtimes are found by process id, and start at their first use.
Invariant: a waiting thread always learns that its job has ended; if the thread gives up, the job is cancelled.
Invariant: at most `BLOCKS_AHEAD` blocks wait; the producer waits for room.
Invariant: a query never uses the account of another query.
Invariant: a client that was given to a user is not closed before the user is released, unless it failed.
Invariant: a client that failed or is being closed is never returned; the next call opens another one.
"""

import contextlib
import functools
import logging
import os
import queue
import sys
import threading
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, Final, Generic, TypeAlias, TypeVar, TypeVarTuple, Unpack

import attrs
import trio

from rocketrio.client import ClientInstance
from rocketrio.connect import open_client
from rocketrio.ports import Ports, opened_with
from rocketrio.spark.access import OF_THE_ENVIRONMENT, ClusterAccess
from rocketrio.spark.errors import BrokerUnreachableError
from rocketrio_protocol.errors import ClosedError
from rocketrio_protocol.remoting.ports import Dial
from rocketrio_protocol.remoting.tcp import dial_tcp

BLOCKS_AHEAD: Final = 3
"""Blocks of about `batchBytes` that may wait for Spark: one is decoded, one is ready, one is arriving."""

LARGEST_KEPT: Final = 31 * 1024 * 1024
"""Bytes: a little less than the largest block from which glibc's malloc learns (DEFAULT_MMAP_THRESHOLD_MAX, 32 MiB)."""

CANCEL_GRACE: Final = 10.0
"""Seconds to wait for a cancelled job: more than a client needs to leave a cluster (CLOSE_GRACE, twice)."""

CLIENT_IDLE: Final = 60.0
"""Seconds that an unused client stays open for a next task: as long as Spark keeps an idle worker process."""

THREAD_NAME: Final = "rocketrio-spark-loop"

R = TypeVar("R")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

logger = logging.getLogger("rocketrio.spark.runtime")


@attrs.frozen
class _End:
    """The end of a job: what it returned or raised."""

    value: object = None
    error: BaseException | None = None


class Handover(Generic[T]):
    """The producer's end of `blocks`: `await put(block)`."""

    def __init__(self) -> None:
        self._blocks: queue.SimpleQueue[T | _End] = queue.SimpleQueue()
        self._room = trio.Semaphore(BLOCKS_AHEAD)

    async def put(self, block: T) -> None:
        """Wait for room, then pass the block to the consumer's thread."""
        await self._room.acquire()
        self._blocks.put(block)

    def _taken(self) -> None:
        self._room.release()


Producer: TypeAlias = Callable[[Handover[T]], Awaitable[None]]


@attrs.define(eq=False)
class _Job:
    """Work that another thread wants done in the loop."""

    loop: "_Loop"
    work: Callable[[], Awaitable[object]]
    results: "queue.SimpleQueue[Any]"
    """The blocks that the job hands over, then its end."""
    scope: trio.CancelScope = attrs.Factory(trio.CancelScope)
    is_submitted: bool = False
    is_over: bool = False
    """True once its end was taken from `results`."""

    def take(self) -> Any:
        """Wait for the next block or the end; nothing follows an `_End`."""
        result = self.results.get()
        if isinstance(result, _End):
            self.is_over = True
        return result

    def give_up(self) -> None:
        """Cancel an unfinished job and wait for its end, except in the loop, where garbage collection may run this."""
        if self.is_over or not self.is_submitted:
            return
        self.loop.call_soon(self.scope.cancel)
        if threading.current_thread() is self.loop.thread or sys.is_finalizing():
            return
        try:
            while not isinstance(self.results.get(timeout=CANCEL_GRACE), _End):
                pass
        except queue.Empty:
            logger.warning("a cancelled job did not end work=%r", self.work)


_current_job: ContextVar[_Job] = ContextVar("rocketrio_spark_job")
"""The job to which the current task belongs."""


class _Loop:
    """One run of trio in a thread of its own."""

    def __init__(self) -> None:
        self.is_over = False
        self._error: BaseException | None = None
        self._started = threading.Event()
        self._token: trio.lowlevel.TrioToken
        self._nursery: trio.Nursery
        self._clients: SharedClients
        self.thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
        self.thread.start()

    def submit(self, job: _Job) -> None:
        """Start a job. Raises the error that kept the loop from starting."""
        self._started.wait()
        if self._error is not None:
            raise self._error
        job.is_submitted = True
        try:
            self._token.run_sync_soon(self._begin, job)
        except trio.RunFinishedError:
            job.results.put(_End(error=_ended()))

    def call_soon(self, action: Callable[[], object]) -> None:
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(action)

    async def client(
        self, name_servers: Sequence[str], access: ClusterAccess, job: _Job
    ) -> ClientInstance:
        return await self._clients.client(name_servers, job, access)

    def _run(self) -> None:
        keep_freed_memory()
        try:
            trio.run(self._main)
        except BaseException as error:
            # Raised in the threads that wait for the start; after the start it is logged.
            self._error = error
            if self._started.is_set():
                logger.exception("the loop of this process ended")
        finally:
            self.is_over = True
            self._started.set()

    async def _main(self) -> None:
        async with trio.open_nursery() as self._nursery:
            self._token = trio.lowlevel.current_trio_token()
            self._clients = SharedClients(self._nursery)
            self._started.set()
            await trio.sleep_forever()

    def _begin(self, job: _Job) -> None:
        try:
            self._nursery.start_soon(self._do, job)
        except RuntimeError:  # The nursery is closed because a fault is ending the loop.
            job.results.put(_End(error=_ended()))

    async def _do(self, job: _Job) -> None:
        end = _End(error=_ended())
        _current_job.set(job)
        try:
            with job.scope:
                end = _End(await job.work())
        except Exception as error:  # Raised again in the thread that waits.
            end = _End(error=first_cause(error))
        except BaseException:  # The job's own cancel stays in its scope: the loop ends.
            self.is_over = True
            raise
        finally:
            self._clients.released(job)
            job.results.put(end)


class ProcessRuntime:
    """The runtime of one process, returned by `process_runtime`. Several threads may use its methods at once."""

    def __init__(self) -> None:
        self._loop: _Loop | None = None
        self._starting = threading.Lock()

    def call(
        self,
        work: Callable[[Unpack[Ts]], Awaitable[R]],
        *args: *Ts,
        timeout: float,
    ) -> R:
        """Run `work(*args)` in the loop while this thread waits; return what it returns or raise what it raises.

        After `timeout` seconds the work is cancelled and BrokerUnreachableError raised. An interrupt of the wait, such
        as Ctrl-C, cancels it too and is raised once the work has ended. Of several errors at once the first is raised.
        """
        bounded = functools.partial(_within, timeout, functools.partial(work, *args))
        with self._job(bounded, queue.SimpleQueue()) as job:
            end: _End = job.take()
        try:
            if end.error is not None:
                raise end.error
            return end.value  # type: ignore[return-value]  # what `bounded` returned
        finally:
            del end  # Its traceback would keep this frame alive in a reference cycle.

    def blocks(self, produce: Producer[T]) -> Generator[T]:
        """Yield the blocks that `produce` hands over while it runs in the loop; raise its exception at the end.

        Nothing runs before the first block is requested. Closing the generator cancels `produce`.
        """
        handover: Handover[T] = Handover()
        with self._job(functools.partial(produce, handover), handover._blocks) as job:
            while not isinstance(block := job.take(), _End):
                yield block
                del block
                job.loop.call_soon(handover._taken)
        if block.error is not None:
            raise block.error

    async def client(
        self, name_servers: Sequence[str], access: ClusterAccess = OF_THE_ENVIRONMENT
    ) -> ClientInstance:
        """Return the client of those name servers with that account, shared by all jobs.

        Call it only in the loop, from a job. The client may be used until the job of `call` or `blocks` is over; call
        this again in the next job. Its routes are as old as their last refresh, so refresh those that must be current.
        A cancel leaves the client for the next caller. Raises ClosedError.
        """
        job = _current_job.get()
        return await job.loop.client(name_servers, access, job)

    @contextlib.contextmanager
    def _job(
        self, work: Callable[[], Awaitable[object]], results: "queue.SimpleQueue[Any]"
    ) -> Iterator[_Job]:
        """Run a job for the length of the block; leaving the block early gives the job up."""
        with self._starting:
            loop = self._loop
            if loop is None or loop.is_over:
                loop = self._loop = _Loop()
        assert threading.current_thread() is not loop.thread, "the loop would wait for itself"
        job = _Job(loop, work, results)
        try:
            loop.submit(job)
            yield job
        finally:
            job.give_up()


_runtimes: dict[int, ProcessRuntime] = {}
"""The runtime of each process id. A fork inherits its parent's runtimes, and must not end them."""


def process_runtime() -> ProcessRuntime:
    """Return the runtime of this process; its loop starts with its first job."""
    return _runtimes.setdefault(os.getpid(), ProcessRuntime())


def first_cause(error: BaseException) -> BaseException:
    """Return the first error of a nested group: the first one is enough for users to act on."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def keep_freed_memory() -> None:
    """Let this process keep the memory that it frees, some 60 MiB at most, instead of returning it at once.

    Megabytes come and go with every block; new memory costs a page fault for each 4 KiB, a fifth of all reading time.
    glibc keeps twice the size of the largest block freed so far. The block freed here is never touched, so it costs
    nothing.
    """
    bytearray(LARGEST_KEPT)


async def _within(timeout: float, work: Callable[[], Awaitable[R]]) -> R:
    with trio.move_on_after(timeout):
        return await work()
    raise BrokerUnreachableError(f"no answer of the cluster within {timeout:g} s")


def _ended() -> ClosedError:
    return ClosedError("the loop of this process has ended")


@attrs.define(eq=False)
class _SharedClient:
    """One client, from before it is open until it is closed."""

    opened: trio.Event = attrs.Factory(trio.Event)
    client: ClientInstance | None = None
    error: Exception | None = None
    users: set[object] = attrs.Factory(set)
    life: trio.CancelScope = attrs.Factory(trio.CancelScope)
    """Its deadline is the time at which an unused client is closed."""

    @property
    def is_usable(self) -> bool:
        """Whether the client is open or being opened, and will stay open."""
        is_closed = self.client is not None and self.client.is_closed
        return self.error is None and not is_closed and not self.life.cancel_called


@attrs.define(eq=False)
class SharedClients:
    """The clients of one loop; they run in `nursery`."""

    nursery: trio.Nursery
    dial: Dial = dial_tcp
    _clients: dict[tuple[tuple[str, ...], ClusterAccess], _SharedClient] = attrs.Factory(dict)

    async def client(
        self,
        name_servers: Sequence[str],
        user: object,
        access: ClusterAccess = OF_THE_ENVIRONMENT,
    ) -> ClientInstance:
        """Return the client of those name servers with that account, usable until `user` is released.

        Raises ClosedError if it failed.
        """
        key = tuple(name_servers), access  # No query gets the account of another one.
        shared = self._clients.get(key)
        if shared is None or not shared.is_usable:
            shared = self._clients[key] = _SharedClient()
            self.nursery.start_soon(self._run, key, shared)
        shared.users.add(user)
        shared.life.deadline = float("inf")  # It has a user: it stays open until the release.
        await shared.opened.wait()
        if shared.client is None:
            raise ClosedError(
                f"the client of {';'.join(name_servers)} failed: {shared.error}"
            ) from shared.error
        return shared.client

    def released(self, user: object) -> None:
        """Note that `user` needs no client any more."""
        for shared in self._clients.values():
            if user in shared.users:
                shared.users.remove(user)
                if not shared.users:
                    shared.life.deadline = trio.current_time() + CLIENT_IDLE

    async def _run(self, key: tuple[tuple[str, ...], ClusterAccess], shared: _SharedClient) -> None:
        name_servers, access = key
        options = access.client_options(name_servers)
        try:
            async with opened_with(Ports(dial=self.dial), open_client(**options)) as client:
                shared.client = client
                shared.opened.set()
                with shared.life:
                    await trio.sleep_forever()
        # A fault in one client ends only that client; its users fail, and the next call opens another one.
        except Exception as error:
            shared.error = error
            logger.warning("client failed name_servers=%s error=%r", ";".join(name_servers), error)
        finally:
            if self._clients.get(key) is shared:
                del self._clients[key]
            shared.opened.set()
