"""One live connection of either end: calls out, requests in, and the moving of its bytes.

Every request of a received chunk is acted on synchronously, and their answers are sent together, some at a time.
Everything queued from elsewhere (calls, held answers) wakes the writer, which sends what was queued in
one scheduling tick together; a call that is alone on its connection is sent at once.

Invariant: only whole frames are queued and what was begun stays first in line, so no timeout cuts a frame in two.
Invariant: while the peer does not read its answers, none of its further requests is acted on.
Invariant: when the connection ends every pending call fails at once.
Answers to: Channel and ResponseFuture of NettyRemotingAbstract; RocketMQ reference, sections 1.1 and 1.6.
Unlike Java: a call that times out leaves the connection open; the late answer is dropped.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from math import inf
from typing import Final

import attrs
import outcome
import trio

from rocketrio_protocol.codes import (
    LanguageCode,
    RequestCode,
    ResponseCode,
    SerializeType,
    code_name,
)
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.connection import PreparedRequest, RemotingConnection
from rocketrio_protocol.errors import (
    Error,
    LocalProtocolError,
    NotReachable,
    RequestTimeout,
    TooManyRequests,
)
from rocketrio_protocol.frame import Body
from rocketrio_protocol.headers import RequestHeader
from rocketrio_protocol.remoting.dispatch import Dispatcher
from rocketrio_protocol.remoting.ports import Transport
from rocketrio_protocol.remoting.rare_log import RareLog
from rocketrio_protocol.remoting.reactor import Reactor
from rocketrio_protocol.remoting.server_limits import ChannelRoom
from rocketrio_protocol.remoting.sweeper import Sweeper


@attrs.frozen
class ChannelStatistics:
    """A channel at one moment."""

    pending_count: int
    """Calls that wait for their answers."""
    late_answer_count: int
    """Answers that came after their calls had given up."""
    unsent_size: int
    """Bytes queued that the operating system has not taken."""
    request_type: SerializeType
    """The encoding of our requests."""


REQUESTS_TOGETHER: Final = 16
"""Calls of tasks woken together that are sent at once: a peer that answers many at a time, as a master does whose slave
acknowledges them all, works on the first of them while the others are made."""


@attrs.define(eq=False)
class Call:
    """One awaiting task. Whoever ends it has taken it out of the response table."""

    task: trio.lowlevel.Task
    code: int
    timeout: float
    deadline: float

    def finish(self, answer: RemotingCommand) -> None:
        """Wake the task with its answer."""
        trio.lowlevel.reschedule(self.task, outcome.Value(answer))

    def fail(self, error: Error) -> None:
        """Wake the task with an error of its own."""
        trio.lowlevel.reschedule(self.task, outcome.Error(error))


@attrs.define
class WokenCalls:
    """The tasks that one chunk of answers has woken: what they call next is sent together, some at a time."""

    left: int = 0
    """Those that have not called again; negative once others call too."""
    unsent: int = 0

    def answered(self, count: int) -> None:
        """A chunk has woken so many."""
        self.left, self.unsent = count, 0

    def called(self) -> bool:
        """Note a call; whether those that are not sent yet shall be."""
        self.left -= 1
        self.unsent += 1
        return self.left == 0 or self.unsent >= REQUESTS_TOGETHER <= self.left


def expire_calls(response_table: dict[int, Call], now: float, remote_addr: str) -> float:
    """Fail the calls whose deadline has come; the next deadline."""
    for opaque in [opaque for opaque, call in response_table.items() if call.deadline <= now]:
        call = response_table.pop(opaque)
        call.fail(
            RequestTimeout(
                f"No answer to {code_name(call.code, RequestCode)} within {call.timeout:g} s",
                broker_addr=remote_addr,
            )
        )
    return min((call.deadline for call in response_table.values()), default=inf)


def unanswered(code: int, reason: str, remote_addr: str) -> NotReachable:
    """What a call fails with whose connection ended."""
    return NotReachable(
        f"No answer to {code_name(code, RequestCode)}, the connection is gone ({reason})",
        broker_addr=remote_addr,
    )


IDLE_TIMEOUT: Final = 120.0
"""Seconds without a byte in either direction until a connection is closed (serverChannelMaxIdleTimeSeconds)."""

RECEIVE_SIZE: Final = 128 * 1024
"""Bytes of one read, and so the most that one connection is served before the others."""

ANSWERS_TOGETHER: Final = 16
"""Answers of one chunk sent at once, so that the peer works on them meanwhile; a send costs as much as half of one."""

HIGH_WATER_MARK: Final = 64 * 1024
"""Bytes of unsent answers above which no further request is acted on (Netty's writeBufferHighWaterMark). Answers
only: two peers that stop reading while their own requests wait would wait for each other."""

FRAME_TIMEOUT: Final = 30.0
"""Seconds from a frame's first byte until it has to be whole, at a server: 4 MiB at 1.1 Mbit/s."""

FIRST_FRAME_TIMEOUT: Final = 10.0
"""The same for the first frame of a connection. A connection that says nothing may stay until it is idle."""

TURN_TIME: Final = 0.01
"""Seconds that the requests of one connection are acted on before others have their turn. One that takes longer by
itself is not cut short."""

LAST_WORDS_TIMEOUT: Final = 1.0
"""Seconds that queued bytes get to be sent before a connection is closed by us."""

MakeAnswer = Callable[[], RemotingCommand | None]
"""Makes an answer, or has replied by itself; must not raise."""

log = logging.getLogger("rocketrio_protocol")


class Channel:
    """One connection. Made by a server or a pool, which runs it."""

    def __init__(
        self,
        transport: Transport,
        *,
        connection: RemotingConnection[Call],
        dispatcher: Dispatcher,
        sweeper: Sweeper,
        reactor: Reactor,
        receive_buffer: memoryview,
        rare_log: RareLog,
        idle_timeout: float = IDLE_TIMEOUT,
        room: ChannelRoom | None = None,
    ) -> None:
        """`receive_buffer` may be shared by all channels of a thread: each read is acted on before the next.

        `room` is what the channels of a server share; one of a client has none, and takes what it asked for.
        """
        self.local_addr = transport.local_addr
        self.remote_addr = transport.remote_addr
        self.closed = False
        self.over = trio.Event()
        """Set when the connection has ended."""
        self.last_received = trio.current_time()
        """When bytes last came, or the connection was made."""
        self._transport = transport
        self._connection = connection
        self._dispatcher = dispatcher
        self._sweeper = sweeper
        self._reactor = reactor
        self._buffer = receive_buffer
        self._rare_log = rare_log
        self._idle_timeout = idle_timeout
        self._room = room
        self._last_active = trio.current_time()
        self._scope = trio.CancelScope()
        self._reason: str | None = None
        self._parked_writer: trio.lowlevel.Task | None = None
        self._backlog: list[RemotingCommand] = []  # Received, and not acted on yet.
        self._unfinished_after: int | None = None  # How many frames came before the unfinished one.
        self._frame_deadline = inf  # When that one has to be whole.
        self._ended = False  # The peer sends no more.
        self._woken = WokenCalls()
        # As trio.current_time(), at half its cost.
        self._now = trio.lowlevel.current_clock().current_time
        self._in_round = False  # Requests are acted on, and what that queues is sent at its end.
        self._sending_size = 0  # Bytes the writer has taken from the connection and not sent yet.
        self._sending_answer_size = 0  # How many of these are answers,
        self._queued_answer_size = 0  # and of those it has not taken.
        self._sent = trio.lowlevel.ParkingLot()  # Who waits until more was sent.
        self._in_turn: deque[MakeAnswer] = deque()  # Answers not made yet.
        self._noted_unsent_size = 0  # What the server was told of that is not sent.

    def __repr__(self) -> str:
        return f"<Channel {self.local_addr} -> {self.remote_addr} {'closed' if self.closed else 'open'}>"

    @property
    def peer_language(self) -> LanguageCode | None:
        """What the peer's last request said it is written in."""
        return self._connection.peer_language

    @property
    def peer_version(self) -> int | None:
        """The protocol version number of the peer's last request."""
        return self._connection.peer_version

    @property
    def unsent_size(self) -> int:
        """Bytes queued that the operating system has not taken."""
        return self._connection.out_size + self._sending_size

    @property
    def is_congested(self) -> bool:
        """Whether more answers wait than a peer that reads leaves waiting: no request is acted on now."""
        return self._queued_answer_size + self._sending_answer_size > HIGH_WATER_MARK

    def statistics(self) -> ChannelStatistics:
        """How this connection stands."""
        return ChannelStatistics(
            pending_count=len(self._connection.response_table),
            late_answer_count=self._connection.late_answer_count,
            unsent_size=self.unsent_size,
            request_type=self._connection.request_type,
        )

    # ------------------------------------------------------------------------------- asking, answering

    @trio.lowlevel.enable_ki_protection
    async def call(
        self,
        request: RemotingCommand | RequestHeader | PreparedRequest,
        body: Body = b"",
        *,
        timeout: float,
        now: float | None = None,
    ) -> RemotingCommand:
        """Ask the peer; its answer, whatever the code. `now` is when `timeout` begins, for a caller that has looked.

        Raises NotReachable when the connection ends first, RequestTimeout after `timeout` seconds,
        LocalProtocolError and TooManyRequests when nothing was sent. A cancel or timeout leaves the
        connection as it is; the peer may still carry the request out, and its answer is dropped.
        """
        if isinstance(request, RequestHeader):
            request = RemotingCommand.request(request, body)
        if self.closed:
            raise self._gone(request.code)
        if now is None:
            now = trio.current_time()
        deadline = now + timeout
        connection = self._connection
        call = Call(trio.lowlevel.current_task(), request.code, timeout, deadline)
        opaque = connection.start_call(request, call)
        if deadline < self._sweeper.next_look:
            self._sweeper.look_before(deadline)
        is_last = self._woken.called()
        is_alone = self._woken.left < 0 and len(connection.response_table) == 1
        if self._sending_size or not (is_alone or is_last):
            self._wake_writer()
        else:
            self._last_active = now
            self._send_at_once()

        def forget(_: object) -> trio.lowlevel.Abort:
            connection.forget_call(opaque)
            return trio.lowlevel.Abort.SUCCEEDED

        answer: RemotingCommand = await trio.lowlevel.wait_task_rescheduled(forget)
        return answer

    def send_oneway(self, request: RemotingCommand | RequestHeader, body: Body = b"") -> None:
        """Queue a request that wants no answer. Raises NotReachable, LocalProtocolError, TooManyRequests."""
        if isinstance(request, RequestHeader):
            request = RemotingCommand.request(request, body)
        if self.closed:
            raise self._gone(request.code)
        self._connection.send_oneway(request)
        if not self._in_round:
            self._wake_writer()

    def reply(self, answer: RemotingCommand | bytes) -> None:
        """Queue an answer, now or long after its request; dropped when the peer has gone meanwhile.

        An answer that cannot be encoded becomes one that says so; a peer that takes no answers is dropped.
        """
        if self.closed:
            return
        size_before = self._connection.out_size
        try:
            if isinstance(answer, bytes):
                self._connection.send_frame(answer)
            else:
                self._send_answer(answer)
        except TooManyRequests as error:
            self.close(f"the peer does not read its answers: {error.what}")
            return
        self._queued_answer_size += self._connection.out_size - size_before
        if not self._in_round:
            self._wake_writer()

    def reply_all(self, answers: Iterable[bytes]) -> None:
        """Queue several held answers, and send them in one go without waiting for the writer's turn."""
        self._in_round = True
        for answer in answers:
            self.reply(answer)
        self._in_round = False
        self._send_now()

    def reply_in_turn(self, make: MakeAnswer) -> None:
        """Make an answer, or none, and queue it, as soon as the peer has read what it was sent before.

        For an answer long after its request, which may be large. Dropped when the peer has gone meanwhile.
        """
        if not self.closed:
            self._in_turn.append(make)
            self._make_answers()

    async def drain(self) -> None:
        """Wait until everything queued so far was sent, or the connection ended."""
        while self.unsent_size and not self.closed:
            await self._sent.park()

    def close(self, reason: str = "closed here") -> None:
        """End the connection at once: pending calls fail, queued bytes that were not taken are lost."""
        if not self.closed:
            self._reason = reason
            self._end()
            self._scope.cancel()

    def _send_answer(self, answer: RemotingCommand) -> None:
        try:
            self._connection.send_answer(answer)
        except LocalProtocolError as error:
            log.error("an answer cannot be sent peer=%s error=%s", self.remote_addr, error)
            failure = attrs.evolve(
                answer, code=ResponseCode.SYSTEM_ERROR, remark=str(error), ext_fields={}, body=b""
            )
            self._connection.send_answer(failure)

    def give_up_calls(self, code: int, reason: str) -> None:
        """Fail the pending calls of one request code with NotReachable; late answers are dropped."""
        table = self._connection.response_table
        for opaque in [opaque for opaque, call in table.items() if call.code == code]:
            table.pop(opaque).fail(NotReachable(reason, broker_addr=self.remote_addr))

    # -------------------------------------------------------------------------------------- the tasks

    @trio.lowlevel.enable_ki_protection
    async def run(self, on_end: Callable[["Channel"], None] | None = None) -> None:
        """Move bytes until either end closes. Never raises for what the peer or the network does."""
        self._sweeper.add(self)
        self._sweeper.look_before(self._last_active + self._idle_timeout)
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write)
                    await self._read()
                    nursery.cancel_scope.cancel()
        finally:
            self._end()
            if on_end is not None:
                on_end(self)
            await self._transport.aclose()

    def sweep(self, now: float) -> float:
        """End calls that are due, and the connection when it is idle; when to look again."""
        next_deadline = expire_calls(self._connection.response_table, now, self.remote_addr)
        idle_at = self._last_active + self._idle_timeout
        if idle_at <= now:
            self.close(f"idle for {self._idle_timeout:g} s")
            return inf
        if self._frame_deadline <= now:
            size = self._connection.unfinished_size
            self._rare_log.warning(
                "a frame took too long", "peer=%s received=%d", self.remote_addr, size
            )
            self.close(f"a frame took too long; {size} bytes of it came")
            return inf
        return min(idle_at, next_deadline, self._frame_deadline)

    async def _read(self) -> None:
        connection = self._connection
        while True:
            try:
                await self._reactor.receive(self._transport, self._buffer, self._act_on_chunk)
            except NotReachable as error:
                return self.close(error.what)
            while self._backlog:
                self._act(self._now())  # Before any wait: the writer may have sent meanwhile.
                # With nothing unsent the writer sleeps, and would never wake us.
                if self._backlog:
                    if self.is_congested and self.unsent_size:
                        await self._sent.park()
                    else:
                        await trio.lowlevel.checkpoint()
            self._note_unfinished()
            if self._ended:
                return self.close(
                    "the peer closed it" if connection.error is None else connection.error.what
                )
            if connection.error is not None:
                self._rare_log.warning(
                    "bad bytes", "peer=%s error=%s", self.remote_addr, connection.error
                )
                with trio.move_on_after(LAST_WORDS_TIMEOUT):
                    await self.drain()
                return self.close(connection.error.what)

    def _act_on_chunk(self, size: int) -> bool:
        """Act on received bytes; whether to go on reading, or leave the rest to `_read`."""
        connection = self._connection
        if size == 0:
            connection.receive_eof()
            self._ended = True
            return False
        now = self.last_received = self._last_active = self._now()
        self._backlog, finished = connection.receive(self._buffer[:size])
        for call, answer in finished:
            call.finish(answer)
        self._woken.answered(len(finished))
        if self._backlog:
            self._act(now)
        if connection.unfinished_size or self._unfinished_after is not None or self._backlog:
            self._note_unfinished()
        return not self._backlog and connection.error is None

    def _note_unfinished(self) -> None:
        """Note how much was received that nothing could be done with yet, and give an unfinished frame its time."""
        room, connection = self._room, self._connection
        if room is None or self.closed:
            return
        unfinished, count = connection.unfinished_size, connection.frame_count
        waiting = sum(len(request.body) for request in self._backlog)
        if not unfinished:
            self._unfinished_after, self._frame_deadline = None, inf
        elif self._backlog:  # Its rest is not read now.
            self._unfinished_after, self._frame_deadline = -1, inf
        elif self._unfinished_after != count:
            self._unfinished_after = count
            limit = FRAME_TIMEOUT if count else FIRST_FRAME_TIMEOUT
            self._frame_deadline = trio.current_time() + limit
            self._sweeper.look_before(self._frame_deadline)
        room.hold_unfinished(self, unfinished + waiting, is_proven=count > 0)

    def _act(self, began: float) -> None:
        """Act on the requests received, as far as the peer reads its answers and others need not wait for long."""
        dispatch = self._dispatcher.dispatch
        requests = self._backlog
        now, turn_end, last = self._now, began + TURN_TIME, len(requests) - 1
        self._in_round = True
        for done, request in enumerate(requests):
            if not done % ANSWERS_TOGETHER or self._queued_answer_size > HIGH_WATER_MARK:
                self._send_now()
                if self._queued_answer_size + self._sending_answer_size > HIGH_WATER_MARK:
                    self._backlog = requests[done:]
                    break
            dispatch(self, request)
            if done < last and now() > turn_end:
                self._backlog = requests[done + 1 :]
                break
        else:
            self._backlog = []
        self._in_round = False
        self._send_now()

    def _send_now(self) -> None:
        """Send what is queued as far as the transport takes it; the rest is the writer's."""
        connection = self._connection
        if self._sending_size:
            if self._room is not None:
                self._note_unsent()
            return
        while connection.out_size:
            data = connection.take_output()
            try:
                sent = self._transport.send_nowait(data)
            except NotReachable as error:
                self.close(error.what)
                return
            if sent < len(data):
                connection.put_back(memoryview(data)[sent:])
                self._wake_writer()
                return
        self._queued_answer_size = 0
        if self._sent:  # Nearly never; unparking nobody costs 4 us.
            self._sent.unpark_all()
        if self._noted_unsent_size:
            self._note_unsent()
        if self._in_turn:
            self._make_answers()

    def _send_at_once(self) -> None:
        """Send what is queued without the writer, which takes over what the transport does not take.

        A tick of the scheduler less; of calls whose tasks were woken together some are sent by the last of them.
        """
        self._woken.unsent = 0
        connection = self._connection
        data = connection.take_output()
        try:
            sent = self._transport.send_nowait(data)
        except NotReachable:
            sent = 0  # The writer meets the same, and ends the connection.
        if sent < len(data):
            connection.put_back(memoryview(data)[sent:])
            self._wake_writer()

    @trio.lowlevel.enable_ki_protection
    async def _write(self) -> None:
        connection, transport = self._connection, self._transport
        while True:
            if not connection.out_size:
                await self._park_writer()
            data = connection.take_output()
            if not data:  # The reader has sent it, or a call, which looks for nobody who waits.
                self._queued_answer_size = 0
                if self._in_turn:
                    self._make_answers()
                if self._sent:
                    self._sent.unpark_all()
                continue
            self._sending_size = len(data)
            self._sending_answer_size = min(self._queued_answer_size, len(data))
            self._queued_answer_size -= self._sending_answer_size
            self._last_active = trio.current_time()
            try:
                sent = transport.send_nowait(data)
                if sent < len(data):
                    await transport.send_all(memoryview(data)[sent:])
            except NotReachable as error:
                return self.close(error.what)
            self._sending_size = self._sending_answer_size = 0
            self._sent.unpark_all()
            if self._room is not None:
                self._note_unsent()
            if self._in_turn:
                self._make_answers()

    async def _park_writer(self) -> None:
        def leave(_: object) -> trio.lowlevel.Abort:
            self._parked_writer = None
            return trio.lowlevel.Abort.SUCCEEDED

        self._parked_writer = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(leave)

    def _make_answers(self) -> None:
        while self._in_turn and not self.is_congested:
            answer = self._in_turn.popleft()()
            if answer is not None:
                self.reply(answer)

    def _note_unsent(self) -> None:
        """Let what this peer does not read count among what all peers do not read."""
        room, size = self._room, self.unsent_size
        if size <= HIGH_WATER_MARK:
            size = 0
        if room is not None and size != self._noted_unsent_size and not self.closed:
            self._noted_unsent_size = size
            room.unsent.hold(self, size)

    def _wake_writer(self) -> None:
        if self._room is not None:
            self._note_unsent()
        writer = self._parked_writer
        if writer is not None:
            self._parked_writer = None
            trio.lowlevel.reschedule(writer)

    def _end(self) -> None:
        """Fail what waits; nothing is queued from here on."""
        if self.closed:
            return
        self.closed = True
        log.debug("closed peer=%s reason=%s", self.remote_addr, self._reason or "cancelled")
        self._sweeper.discard(self)
        self._in_turn.clear()
        if self._room is not None:
            self._room.leave(self)
        self._sent.unpark_all()
        self.over.set()
        for call in self._connection.forget_all_calls():
            call.fail(self._gone(call.code))

    def _gone(self, code: int) -> NotReachable:
        return unanswered(code, self._reason or "closed here", self.remote_addr)
