"""One task that reads on behalf of all connections of a server or pool, and divides its time among their hosts.

With a reading task for each connection, trio wakes a task for every chunk: 44 CPU µs a request at 64 connections with
one request each, against 24 with this reactor. With one connection there is no difference. The reactor watches sockets
with an epoll object, which trio watches in turn; transports without a descriptor are read by their own tasks.

    what is ready is served as it comes, while all of it fits into one share of time; the rest waits with its host
    a round gives each host that waits a share of time; other tasks run after each share
    a host's share goes in turn to what has just come, and to what was served before and has more

So a newcomer waits for one share of each other host, and for one turn of its own host's busy connections.

Invariant: a handler returns before the next one is called, so all may share a buffer.
Invariant: an exception of a handler or a piece of work is raised in the task that waits for it, and nowhere else.
Answers to: NettyRemotingServer's selector threads.
"""

import os
import select
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Final, TypeVar

import attrs
import outcome
import trio

from rocketrio_protocol.errors import NotReachableError
from rocketrio_protocol.remoting.ports import PolledTransport, Transport

ROUND_SIZE: Final = 256 * 1024
"""Bytes read before other tasks have their turn: some 10 ms of small requests."""

ROUND_EVENTS: Final = 1024
"""Ready connections taken from the operating system at once; the rest follow in the next round."""

SHARE: Final = 0.01
"""Seconds of a round for one host; a request that takes longer is not interrupted."""

ROUND_TIME: Final = 0.05
"""Seconds of a round for all hosts, whose shares shrink when they are more than five."""

LEAST_SHARE: Final = 0.001
"""The shortest share. Hosts beyond fifty make rounds longer."""

_GONE: Final = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR

Handler = Callable[[int], bool]
"""Processes that many bytes at the start of the buffer, 0 at the stream's end; returns whether to go on reading."""

T = TypeVar("T")


@attrs.define(eq=False)
class _Watch:
    """A task that waits while the reactor reads its socket."""

    task: trio.lowlevel.Task
    host: str
    fileno: int
    transport: PolledTransport
    buffer: memoryview
    handle: Handler
    is_waiting: bool = False
    """Whether it waits with its host for a turn."""
    last_round: int = -2
    """The round in which it was read last."""
    is_peer_gone: bool = False
    """Whether the peer sends no more than what has arrived."""


@attrs.define(eq=False)
class _Work:
    """A task that waits until a piece of its work was done in a turn of its host."""

    task: trio.lowlevel.Task | None
    do: Callable[[], object]


@attrs.define(eq=False)
class _Host:
    """What waits for the next share of one host."""

    fresh: deque[_Watch | _Work] = attrs.Factory(deque)
    """What has just come."""
    again: deque[_Watch | _Work] = attrs.Factory(deque)
    """What was served in the last round and has more."""
    was_fresh: bool = False

    def next(self) -> "_Watch | _Work | None":
        """Remove and return what is to be served now; None if nothing waits."""
        self.was_fresh = bool(self.fresh) and not (self.was_fresh and self.again)
        queue = self.fresh if self.was_fresh else self.again
        return queue.popleft() if queue else None


class Reactor:
    """Reads on behalf of many connections."""

    def __init__(self) -> None:
        self.turn_end = inf
        """When the handler or the piece of work that runs now should return."""
        self._epoll = select.epoll()
        self._watches: dict[int, _Watch] = {}
        self._hosts: dict[str, _Host] = {}
        self._round = 0
        # Like trio.current_time(), at half its cost.
        self._now = trio.lowlevel.current_clock().current_time
        self._is_waiting = False
        self._alarm = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._alarm, select.EPOLLIN)

    @trio.lowlevel.enable_ki_protection
    async def receive(
        self, transport: Transport, buffer: memoryview, handle: Handler, *, host: str = ""
    ) -> None:
        """Hand every chunk to `handle` until it returns False, in the turns of `host`.

        What a peer sent before it closed the connection is handed over for one more turn, then the end. Raises
        NotReachableError when the connection breaks or the reactor is closed, and what `handle` raises. A cancel
        leaves unread bytes unread.
        """
        if not isinstance(transport, PolledTransport):
            while True:
                size = await transport.receive_into(buffer)
                self.turn_end = trio.current_time() + SHARE
                if not handle(size):
                    return
        with suppress(BlockingIOError):
            while transport.holds_bytes:
                self.turn_end = trio.current_time() + SHARE
                if not handle(transport.receive_nowait(buffer)):
                    return
        self._check_open(transport.remote_addr)
        fileno = transport.fileno()
        task = trio.lowlevel.current_task()
        self._watches[fileno] = _Watch(task, host, fileno, transport, buffer, handle)
        self._epoll.register(fileno, select.EPOLLIN | select.EPOLLRDHUP)

        def leave(_: object) -> trio.lowlevel.Abort:
            self._forget(fileno)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(leave)

    @trio.lowlevel.enable_ki_protection
    async def turn(self, host: str, do: Callable[[], T], *, is_rest: bool = False) -> T:
        """Do a piece of work in the next turn of a host, by `turn_end` if it can end early; return its result.

        `is_rest` says that it continues what has had a turn already.
        """
        self._check_open(host)
        work = _Work(trio.lowlevel.current_task(), do)
        waiting = self._host(host)
        (waiting.again if is_rest else waiting.fresh).append(work)
        if self._is_waiting:
            self._is_waiting = False
            os.eventfd_write(self._alarm, 1)

        def leave(_: object) -> trio.lowlevel.Abort:
            work.task = None
            return trio.lowlevel.Abort.SUCCEEDED

        # An exception of `do` comes out here (`_done`), in the task that asked for the work.
        result: T = await trio.lowlevel.wait_task_rescheduled(leave)
        return result

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Read until cancelled."""
        try:
            while True:
                if self._hosts:
                    await trio.lowlevel.checkpoint()
                else:
                    self._is_waiting = True
                    await trio.lowlevel.wait_readable(self._epoll.fileno())
                    self._is_waiting = False
                self._take_ready()
                if self._hosts:
                    await trio.lowlevel.checkpoint()
                    await self._serve_hosts()
        finally:
            self.close()

    def close(self) -> None:
        """Stop watching all connections."""
        if not self._epoll.closed:
            self._epoll.close()
            os.close(self._alarm)

    def _check_open(self, addr: str) -> None:
        # A connection may be accepted in the same tick in which everything ended.
        if self._epoll.closed:
            raise NotReachableError("this end is closing", broker_addr=addr)

    def _host(self, name: str) -> _Host:
        host = self._hosts.get(name)
        if host is None:
            host = self._hosts[name] = _Host()
        return host

    def _take_ready(self) -> None:
        """Serve connections with unread bytes for one share of time, if nothing waits; let the others wait."""
        watches, now, last = self._watches, self._now, self._round
        budget = 0 if self._hosts else ROUND_SIZE
        self._round += 1
        self.turn_end = end = now() + SHARE
        for fileno, event in self._epoll.poll(0, ROUND_EVENTS):
            if fileno == self._alarm:
                os.eventfd_read(fileno)
                continue
            watch = watches.get(fileno)
            if watch is None:
                continue
            if event & _GONE:
                watch.is_peer_gone = True
            if watch.is_waiting:
                continue
            # Nothing waits, so that no host is passed over by serving at once what fits into one share.
            if budget > 0 and now() < end:
                budget -= self._read(watch)
            else:
                # What was read in the round before waits behind what has just come: the two take turns (`_Host.next`).
                watch.is_waiting = True
                host = self._host(watch.host)
                (host.again if watch.last_round == last else host.fresh).append(watch)

    async def _serve_hosts(self) -> None:
        """Give each host its share, and let other tasks run between them."""
        now = self._now
        share = max(min(SHARE, ROUND_TIME / max(len(self._hosts), 1)), LEAST_SHARE)
        budget, time = ROUND_SIZE, now()
        rested = time
        # A copy: handlers may add hosts, whose turn comes in the next round.
        for name, host in tuple(self._hosts.items()):
            if budget <= 0 or time - rested >= share:
                await trio.lowlevel.checkpoint()
                budget, time = ROUND_SIZE, now()
                rested = time
            self.turn_end = time + share
            while budget > 0 and time < self.turn_end:
                job = host.next()
                if job is None:
                    del self._hosts[name]
                    break
                budget -= self._read(job) if isinstance(job, _Watch) else _done(job)
                time = now()
        self.turn_end = inf

    def _read(self, watch: _Watch) -> int:
        if self._watches.get(watch.fileno) is not watch:  # It left while it waited.
            return 0
        watch.is_waiting, watch.last_round = False, self._round
        total, fault = 0, None
        try:
            while True:
                size = watch.transport.receive_nowait(watch.buffer)
                total += size
                # No checkpoint up to its return: the buffer belongs to all, and the next read overwrites it.
                goes_on = watch.handle(size)
                if not (goes_on and watch.is_peer_gone):
                    break
                # Nothing more will come, so that no event would call for what is left: read on to the stream's end.
                if self._now() >= self.turn_end:
                    goes_on = watch.handle(0)
                    break
        except BlockingIOError:
            goes_on = True
        except Exception as error:
            # It belongs to the task that waits for this connection; raised here it would end all of them.
            goes_on, fault = False, error
        # The callback may have cancelled its own watch.
        if not goes_on and self._watches.get(watch.fileno) is watch:
            self._forget(watch.fileno)
            result = outcome.Value(None) if fault is None else outcome.Error(fault)
            trio.lowlevel.reschedule(watch.task, result)
        return total

    def _forget(self, fileno: int) -> None:
        del self._watches[fileno]
        # Before the socket is closed: its number may be given to the next connection at once.
        if not self._epoll.closed:
            self._epoll.unregister(fileno)


def is_peer_gone(transport: Transport) -> bool:
    """Return whether the peer of a connection that is not read now has closed it."""
    if not isinstance(transport, PolledTransport):
        return False
    poll = select.poll()
    poll.register(transport.fileno(), select.POLLRDHUP)
    return bool(poll.poll(0))


def _done(work: _Work) -> int:
    if work.task is not None:
        result = outcome.capture(work.do)
        task, work.task = work.task, None
        if task is not None:  # It may have cancelled its own task.
            trio.lowlevel.reschedule(task, result)
    return 0
