"""One task that reads on behalf of all connections of a server or pool, and hands each chunk to a plain function.

With a reading task for each connection, trio wakes a task for every chunk: 44 CPU µs a request at 64 connections with
one request each, against 24 with this reactor. With one connection there is no difference. The reactor watches sockets
with an epoll object, which trio watches in turn; transports without a descriptor are read by their own tasks.

Invariant: a handler returns before the next one is called, so all may share a buffer.
Answers to: NettyRemotingServer's selector threads.
"""

import select
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import attrs
import outcome
import trio

from rocketrio_protocol.errors import NotReachableError
from rocketrio_protocol.remoting.ports import PolledTransport, Transport

ROUND_SIZE: Final = 256 * 1024
"""Bytes read before other tasks have their turn: some 10 ms of small requests."""

ROUND_EVENTS: Final = 256
"""Ready connections taken from the operating system at once; the rest follow in the next round."""

Handler = Callable[[int], bool]
"""Processes that many bytes at the start of the buffer, 0 at the stream's end; returns whether to go on reading."""


@attrs.define(eq=False)
class _Watch:
    """A task that waits while the reactor reads its socket."""

    task: trio.lowlevel.Task
    transport: PolledTransport
    buffer: memoryview
    handle: Handler


class Reactor:
    """Reads on behalf of many connections."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._watches: dict[int, _Watch] = {}

    @trio.lowlevel.enable_ki_protection
    async def receive(self, transport: Transport, buffer: memoryview, handle: Handler) -> None:
        """Hand every chunk to `handle` until it returns False.

        Raises NotReachableError when the connection breaks or the reactor is closed. A cancel leaves unread bytes
        unread.
        """
        if not isinstance(transport, PolledTransport):
            while handle(await transport.receive_into(buffer)):
                pass
            return
        with suppress(BlockingIOError):
            while transport.holds_bytes:
                if not handle(transport.receive_nowait(buffer)):
                    return
        if (
            self._epoll.closed
        ):  # This connection was accepted in the same tick in which everything ended.
            raise NotReachableError("this end is closing", broker_addr=transport.remote_addr)
        fileno = transport.fileno()
        self._watches[fileno] = _Watch(trio.lowlevel.current_task(), transport, buffer, handle)
        self._epoll.register(fileno, select.EPOLLIN)

        def leave(_: object) -> trio.lowlevel.Abort:
            self._forget(fileno)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(leave)

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Read until cancelled."""
        epoll, watches = self._epoll, self._watches
        try:
            while True:
                await trio.lowlevel.wait_readable(epoll.fileno())
                budget = ROUND_SIZE
                for fileno, _ in epoll.poll(0, ROUND_EVENTS):
                    if budget <= 0:
                        await trio.lowlevel.checkpoint()
                        budget = ROUND_SIZE
                    watch = watches.get(
                        fileno
                    )  # It may have left while other tasks had their turn.
                    if watch is not None:
                        budget -= self._read(fileno, watch)
        finally:
            self.close()

    def close(self) -> None:
        """Stop watching all connections."""
        self._epoll.close()

    def _read(self, fileno: int, watch: _Watch) -> int:
        try:
            size = watch.transport.receive_nowait(watch.buffer)
        except BlockingIOError:
            return 0
        except NotReachableError as error:
            self._forget(fileno)
            trio.lowlevel.reschedule(watch.task, outcome.Error(error))
            return 0
        goes_on = watch.handle(size)
        # The callback may have cancelled its own watch.
        if not goes_on and self._watches.get(fileno) is watch:
            self._forget(fileno)
            trio.lowlevel.reschedule(watch.task)
        return size

    def _forget(self, fileno: int) -> None:
        del self._watches[fileno]
        if not self._epoll.closed:
            self._epoll.unregister(fileno)
