"""The client in an asyncio program: trio runs as a guest of the asyncio loop, and each side can call the other.

    async with open_trio() as trio_side:                                   # asyncio
        async with trio_side.open(open_producer()) as producer:            # lives in a trio task
            await trio_side.run(producer.send, Message("orders", b"..."))  # asyncio waits for trio
    ...
            await trio_side.on_asyncio(store, message)                     # in a trio function: trio waits for asyncio

Both loops run in one thread, in turn, so that neither side needs locks. A task that is cancelled cancels what it waits
for on the other side, and waits until that has ended.

Invariant: nothing of the trio side outlives `open_trio`, and no task waits for it longer than it lives.
Unlike a thread with a portal: no second thread, no values passed between threads, and one Ctrl-C ends both.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import Context, copy_context
from typing import Any, TypeVar, TypeVarTuple, Unpack

import attrs
import trio

from rocketrio_protocol.errors import ClosedError

__all__ = ["TrioSide", "open_trio"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


@asynccontextmanager
async def open_trio() -> "AsyncGenerator[TrioSide]":
    """Start a trio run on the running asyncio loop; it ends with the block.

    At the end everything that still runs on the trio side is cancelled and waited for, even if the block was cancelled:
    a consumer commits, as at the end of `trio.run`. An asyncio handler that never awaits blocks trio too.
    """
    side = TrioSide(asyncio.get_running_loop())
    await side.start()
    try:
        yield side
    finally:
        await side.stop()


@attrs.define(eq=False)
class _Call:
    """One trio function that an asyncio task waits for."""

    run: Callable[[], Awaitable[Any]]
    result: "asyncio.Future[Any]"
    context: Context
    """The caller's, so that its context variables have their values on the trio side too."""
    scope: trio.CancelScope = attrs.Factory(trio.CancelScope)


class TrioSide:
    """The trio side of an asyncio program, made by `open_trio`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._started: asyncio.Future[None] = loop.create_future()
        self._ended: asyncio.Future[Any] = loop.create_future()
        self._token: trio.lowlevel.TrioToken | None = None
        self._nursery: trio.Nursery | None = None

    # ------------------------------------------------------------------------------- called in asyncio

    async def run(self, function: Callable[[Unpack[Ts]], Awaitable[T]], *args: *Ts) -> T:
        """Await a trio function from an asyncio task; pass keyword arguments with `functools.partial`.

        A cancel is passed on, and waits until the function has ended. A result that it returns despite the cancel is
        lost: therefore do not receive messages this way, but in a trio function that awaits `on_asyncio`. Raises what
        the function raises, and ClosedError after the block of `open_trio` was left.
        """
        call = _Call(lambda: function(*args), self._loop.create_future(), copy_context())
        self._soon(self._begin, call)
        cancelled = await _end_of(call.result, lambda: self._soon(call.scope.cancel))
        value: T = call.result.result()
        if cancelled is not None:
            raise cancelled
        return value

    @asynccontextmanager
    async def open(self, manager: AbstractAsyncContextManager[T]) -> AsyncGenerator[T]:
        """Enter a trio context manager, such as `open_consumer(...)`, and leave it at the end of the asyncio block.

        The manager sees an exception of the block, and a cancel as a cancel. If the manager ends before the block, the
        block is cancelled, and the manager's exception is raised.
        """
        entered: asyncio.Future[T] = self._loop.create_future()
        leaving = trio.Event()
        problems: list[Exception] = []

        async def hold() -> None:
            async with manager as value:
                entered.set_result(value)
                await leaving.wait()
                for problem in problems:
                    raise problem

        held = self._loop.create_task(self.run(hold))
        try:
            await _first_of(entered, held)
            if held.done():
                held.result()  # Entering failed, and this raises its exception.
            async with _cancelled_by(held):
                yield entered.result()
        except Exception as error:
            if held.done():
                raise
            problems.append(error)
        except BaseException:
            held.cancel()
            await _end_of(held, held.cancel)
            if not held.cancelled():
                held.result()  # Its exit failed, which is more important than the cancel.
            raise
        if not held.done():
            self._soon(leaving.set)
        cancelled = await _end_of(held, held.cancel)
        held.result()
        if cancelled is not None:
            raise cancelled

    # --------------------------------------------------------------------------------- called in trio

    async def on_asyncio(
        self, function: Callable[[Unpack[Ts]], Coroutine[Any, Any, T]], *args: *Ts
    ) -> T:
        """Await an asyncio function from a trio task; it runs in a new asyncio task.

        A cancel is passed on, and waits until the function has ended. Raises what it raises; ClosedError if another
        asyncio task cancelled it.
        """
        assert self._token is not None
        token, done = self._token, trio.Event()
        task = self._loop.create_task(function(*args))
        task.add_done_callback(lambda _: token.run_sync_soon(done.set))
        try:
            await done.wait()
        finally:
            if not task.done():
                task.cancel()
                with trio.CancelScope(shield=True):
                    await done.wait()
        if task.cancelled():
            raise ClosedError(f"{function!r} was cancelled on the asyncio side")
        return task.result()

    # ------------------------------------------------------------------------------------- internals

    async def start(self) -> None:
        """Start the trio run."""
        trio.lowlevel.start_guest_run(
            self._main,
            run_sync_soon_threadsafe=self._loop.call_soon_threadsafe,
            run_sync_soon_not_threadsafe=self._loop.call_soon,
            done_callback=self._ended.set_result,
            host_uses_signal_set_wakeup_fd=True,
        )
        cancelled = await _end_of(self._started, lambda: None)
        if cancelled is not None:
            await self.stop()
            raise cancelled

    async def stop(self) -> None:
        """Cancel what runs, and wait for its end. Raises what ended the run early."""
        if not self._ended.done():
            assert self._nursery is not None
            self._soon(self._nursery.cancel_scope.cancel)
        cancelled = await _end_of(self._ended, lambda: None)
        self._ended.result().unwrap()
        if cancelled is not None:
            raise cancelled

    async def _main(self) -> None:
        async with trio.open_nursery() as self._nursery:
            self._token = trio.lowlevel.current_trio_token()
            self._started.set_result(None)
            await trio.sleep_forever()

    def _begin(self, call: _Call) -> None:
        nursery = self._nursery
        assert nursery is not None
        # A task that is started in a cancelled nursery would still run up to its first wait.
        if nursery.cancel_scope.cancel_called:
            call.result.set_exception(self._closed())
        else:
            call.context.run(nursery.start_soon, self._serve, call)

    async def _serve(self, call: _Call) -> None:
        result = call.result
        try:
            with call.scope:
                result.set_result(await call.run())
            if call.scope.cancelled_caught:
                result.set_result(None)  # The caller was cancelled, and raises that itself.
        except Exception as error:
            result.set_exception(error)
        finally:
            # The end of the trio side has cancelled it: without a result its caller would wait forever.
            if not result.done():
                result.set_exception(self._closed())

    def _soon(self, function: Callable[[Unpack[Ts]], object], *args: *Ts) -> None:
        """Have the trio side call a function: functions that wake trio's tasks must not be called from outside."""
        try:
            assert self._token is not None
            self._token.run_sync_soon(function, *args)
        except trio.RunFinishedError:
            raise self._closed() from None

    def _closed(self) -> ClosedError:
        return ClosedError("the trio side has ended: the block of open_trio was left")


async def _end_of(
    future: "asyncio.Future[Any]", pass_on: Callable[[], object]
) -> asyncio.CancelledError | None:
    """Wait until the future is done, despite any cancel; pass the cancel on and return it."""
    cancelled = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
            pass_on()
    return cancelled


async def _first_of(*futures: "asyncio.Future[Any]") -> None:
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


@asynccontextmanager
async def _cancelled_by(held: "asyncio.Task[None]") -> AsyncGenerator[None]:
    """Cancel the block if `held` ends before it, and then raise what `held` raised."""
    block = asyncio.current_task()
    assert block is not None
    is_by_exit = False

    def cancel(_: object) -> None:
        nonlocal is_by_exit
        is_by_exit = True
        block.cancel()

    held.add_done_callback(cancel)
    try:
        yield
    except asyncio.CancelledError:
        if not is_by_exit:
            raise
        # The program did not ask for this cancel: `asyncio.timeout` and task groups must not count it.
        block.uncancel()
        held.result()
        raise ClosedError("what was opened on the trio side has ended before its block") from None
    finally:
        held.remove_done_callback(cancel)
