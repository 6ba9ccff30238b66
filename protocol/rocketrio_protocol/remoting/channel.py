"""One open connection, at the client or the server: sends calls, receives requests, and moves the bytes.

The requests of a received chunk are processed synchronously, and their answers are sent in groups. Calls and answers
that are queued at other times wake the writer task, which sends all that was queued in one scheduling tick together. A
call that is alone on its connection is sent at once.

Invariant: only whole frames are queued, and a partly sent one stays first, so no timeout cuts a frame in two.
Invariant: while the peer does not read its answers, none of its further requests is processed.
Invariant: when the connection ends, every pending call fails at once.
Invariant: an exception of this program while it serves a connection ends that connection and nothing else.
Answers to: Channel and ResponseFuture of NettyRemotingAbstract; RocketMQ reference, sections 1.1 and 1.6.
Unlike Java: a call that times out leaves the connection open; the late answer is dropped.
"""

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
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
from rocketrio_protocol.command import FLAG_ONEWAY, RemotingCommand
from rocketrio_protocol.connection import PreparedRequest, RemotingConnection
from rocketrio_protocol.errors import (
    Error,
    LocalProtocolError,
    NotReachableError,
    RequestTimeoutError,
    TlsError,
    TooManyRequestsError,
)
from rocketrio_protocol.frame import Body
from rocketrio_protocol.headers import RequestHeader
from rocketrio_protocol.remoting.faults import ConnectionFaults
from rocketrio_protocol.remoting.ports import Transport
from rocketrio_protocol.remoting.rare_log import RareLog
from rocketrio_protocol.remoting.reactor import Reactor, is_peer_gone
from rocketrio_protocol.remoting.server_limits import ChannelRoom, host_of
from rocketrio_protocol.remoting.sweeper import Sweeper
from rocketrio_protocol.remoting.tls import TlsTransport

IDLE_TIMEOUT: Final = 120.0
"""Seconds without a byte in either direction until a connection is closed (serverChannelMaxIdleTimeSeconds)."""

RECEIVE_SIZE: Final = 128 * 1024
"""Bytes of one read: the most that one connection receives before others have their turn."""

ANSWERS_TOGETHER: Final = 16
"""Answers to one chunk that are sent at once, so that the peer works on them meanwhile; a send costs half an answer."""

REQUESTS_TOGETHER: Final = 16
"""Calls that are sent at once when their tasks were woken together. A peer that answers in bursts, such as a master
whose slave acknowledges a batch, works on the first calls while the others are made."""

HIGH_WATER_MARK: Final = 64 * 1024
"""Bytes of unsent answers above which no further request is processed (Netty's writeBufferHighWaterMark). Requests do
not count: otherwise two peers that stop reading while their own requests wait would wait for each other."""

FRAME_TIMEOUT: Final = 30.0
"""Seconds that a server waits for the rest of a frame after its first byte: 4 MiB at 1.1 Mbit/s."""

FIRST_FRAME_TIMEOUT: Final = 10.0
"""The same for the first frame of a connection. A connection that sends nothing may stay open until it is idle."""

REQUESTS_AT_ONCE: Final = 128
"""Requests that a server decodes at once; the bytes of those that follow take a tenth of the memory."""

REQUEST_WEIGHT: Final = 512
"""Bytes that a decoded request takes without its body."""

ONEWAY_TIME: Final = 0.001
"""Seconds after which a turn ends that has a oneway request: no unread answer ever stops a peer that sends these."""

SEND_REST_TIMEOUT: Final = 1.0
"""Seconds that queued bytes get to be sent before this end closes a connection."""

Dispatch = Callable[["Channel", RemotingCommand], None]
"""Processes one request of a channel. What it raises ends the connection."""

MakeAnswer = Callable[[], RemotingCommand | None]
"""Makes an answer, or returns None if it has already replied or there is none. What it raises ends the connection."""

log = logging.getLogger("rocketrio_protocol")


@attrs.frozen
class ChannelStatistics:
    """The state of a channel at one moment."""

    pending_count: int
    """Calls that wait for their answers."""
    late_answer_count: int
    """Answers that arrived after their calls had given up."""
    unsent_size: int
    """Bytes queued that the operating system has not accepted."""
    request_type: SerializeType
    """The encoding of requests to the peer."""


@attrs.define(eq=False)
class PendingCall:
    """One task that waits for an answer. Whichever code completes the call first removes it from the response table."""

    task: trio.lowlevel.Task
    code: int
    timeout: float
    deadline: float

    def finish(self, answer: RemotingCommand) -> None:
        """Wake the task with its answer."""
        trio.lowlevel.reschedule(self.task, outcome.Value(answer))

    def fail(self, error: Error) -> None:
        """Wake the task with an error, which no other task may get."""
        trio.lowlevel.reschedule(self.task, outcome.Error(error))


@attrs.define
class _WokenCalls:
    """Counts the tasks that one chunk of answers has woken, so that their next calls are sent together."""

    left: int = 0
    """Woken tasks that have not called again; negative once other tasks call too."""
    unsent: int = 0

    def answered(self, count: int) -> None:
        """Record that one received chunk woke `count` tasks."""
        self.left, self.unsent = count, 0

    def called(self) -> bool:
        """Record a call; return True if the pending ones should be sent now."""
        self.left -= 1
        self.unsent += 1
        return self.left == 0 or self.unsent >= REQUESTS_TOGETHER <= self.left


class Channel:
    """One connection. A server or a pool creates it and runs it."""

    def __init__(
        self,
        transport: Transport,
        *,
        connection: RemotingConnection[PendingCall],
        dispatch: Dispatch,
        sweeper: Sweeper,
        reactor: Reactor,
        receive_buffer: memoryview,
        rare_log: RareLog,
        faults: ConnectionFaults,
        idle_timeout: float = IDLE_TIMEOUT,
        room: ChannelRoom | None = None,
    ) -> None:
        """All channels of a thread may share `receive_buffer`, because each read is processed before the next.

        `room` counts the memory that the channels of a server use together; a client's channel has no such limit.
        """
        self.local_addr = transport.local_addr
        self.remote_addr = transport.remote_addr
        self.closed = False
        self.over = trio.Event()
        """Set when the connection has ended."""
        self.last_received = trio.current_time()
        """When the last bytes arrived, or the connection was opened."""
        self._transport = transport
        self._connection = connection
        self._dispatch = dispatch
        self._sweeper = sweeper
        self._reactor = reactor
        self._buffer = receive_buffer
        self._rare_log = rare_log
        self._faults = faults
        self._host = host_of(transport.remote_addr)
        self._idle_timeout = idle_timeout
        self._room = room
        self._last_active = trio.current_time()
        self._scope = trio.CancelScope()
        self._reason: str | None = None
        self._fault: TlsError | None = None
        self._parked_writer: trio.lowlevel.Task | None = None
        self._backlog: list[RemotingCommand] = []  # Received requests that are not processed yet.
        self._unfinished_after: int | None = None  # How many frames came before the incomplete one.
        self._frame_deadline = inf  # When that frame must be complete.
        self._peer_ended = False  # The peer has closed its side.
        self._woken = _WokenCalls()
        # Like trio.current_time(), at half its cost.
        self._now = trio.lowlevel.current_clock().current_time
        self._in_round = (
            False  # Requests are being processed; the end of the round sends what they queue.
        )
        self._sending_size = 0  # Bytes that the writer has taken and not sent yet.
        self._sending_answer_size = 0  # How many of these belong to answers.
        self._queued_answer_size = 0  # Bytes of answers queued behind them.
        self._sent = trio.lowlevel.ParkingLot()  # Tasks that wait until more was sent.
        self._waiter_count = 0  # How many these are; to ask a ParkingLot takes a call.
        self._in_turn: deque[MakeAnswer] = deque()  # Answers that are not made yet.
        self._noted_unsent_size = 0  # The unsent size that was last reported to `room`.

    def __repr__(self) -> str:
        return f"<Channel {self.local_addr} -> {self.remote_addr} {'closed' if self.closed else 'open'}>"

    @property
    def is_encrypted(self) -> bool:
        """Whether the connection uses TLS."""
        return isinstance(self._transport, TlsTransport)

    @property
    def is_certified(self) -> bool:
        """Whether the peer has shown a certificate, and this end's authority has signed it."""
        transport = self._transport
        return isinstance(transport, TlsTransport) and bool(transport.peer_certificate())

    @property
    def peer_language(self) -> LanguageCode | None:
        """The programming language that the peer's last request named."""
        return self._connection.peer_language

    @property
    def peer_version(self) -> int | None:
        """The protocol version number of the peer's last request."""
        return self._connection.peer_version

    @property
    def unsent_size(self) -> int:
        """Bytes queued that the operating system has not accepted."""
        return self._connection.out_size + self._sending_size

    @property
    def is_congested(self) -> bool:
        """True if no request is processed until more of the answers are sent."""
        return self._queued_answer_size + self._sending_answer_size > HIGH_WATER_MARK

    def statistics(self) -> ChannelStatistics:
        """Return the state of this connection."""
        return ChannelStatistics(
            pending_count=len(self._connection.response_table),
            late_answer_count=self._connection.late_answer_count,
            unsent_size=self.unsent_size,
            request_type=self._connection.request_type,
        )

    # ------------------------------------------------------------------------------ calls and answers

    @trio.lowlevel.enable_ki_protection
    async def call(
        self,
        request: RemotingCommand | RequestHeader | PreparedRequest,
        body: Body = b"",
        *,
        timeout: float,
        now: float | None = None,
    ) -> RemotingCommand:
        """Send a request and return its answer, whatever its code.

        `now` is when `timeout` begins, for a caller that already knows the time. Raises NotReachableError when the
        connection ends first, RequestTimeoutError after `timeout` seconds, and LocalProtocolError or
        TooManyRequestsError when nothing was sent. A cancel or timeout leaves the connection open; the peer may still
        carry out the request, and its late answer is dropped.
        """
        if isinstance(request, RequestHeader):
            request = RemotingCommand.request(request, body)
        if self.closed:
            raise self._gone(request.code)
        if now is None:
            now = trio.current_time()
        deadline = now + timeout
        connection = self._connection
        call = PendingCall(trio.lowlevel.current_task(), request.code, timeout, deadline)
        opaque = connection.start_call(request, call)
        if deadline < self._sweeper.next_sweep:
            self._sweeper.sweep_by(deadline)
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
        """Queue a request that expects no answer.

        Raises NotReachableError, LocalProtocolError, TooManyRequestsError.
        """
        if isinstance(request, RequestHeader):
            request = RemotingCommand.request(request, body)
        if self.closed:
            raise self._gone(request.code)
        try:
            self._connection.send_oneway(request)
        except Error:
            raise
        except Exception as fault:  # The caller may be a service of all connections.
            self.end_by_fault(fault)
            raise self._gone(request.code) from fault
        if not self._in_round:
            self._wake_writer()

    def reply(self, answer: RemotingCommand | bytes) -> None:
        """Queue an answer, now or long after its request. It is dropped if the connection has ended.

        An answer that cannot be encoded is replaced by an error answer. If too many answers wait, the connection is
        closed.
        """
        if self.closed:
            return
        size_before = self._connection.out_size
        try:
            if isinstance(answer, bytes):
                self._connection.send_frame(answer)
            else:
                self._send_answer(answer)
        except TooManyRequestsError as error:
            self.close(f"the peer does not read its answers: {error.what}")
            return
        except Exception as fault:
            self.end_by_fault(fault)
            return
        self._queued_answer_size += self._connection.out_size - size_before
        if not self._in_round:
            self._wake_writer()

    def reply_all(self, answers: Iterable[bytes]) -> None:
        """Queue several held answers, and send them together without waking the writer."""
        self._in_round = True
        for answer in answers:
            self.reply(answer)
        self._in_round = False
        self._send_now()

    def reply_in_turn(self, make: MakeAnswer) -> None:
        """Call `make` and queue its answer, if any, as soon as the peer has read what was sent before.

        Meant for large answers long after their requests. `make` is not called if the connection has ended.
        """
        if not self.closed:
            self._in_turn.append(make)
            self._make_answers()

    async def drain(self) -> None:
        """Wait until everything queued so far is sent, or the connection has ended."""
        while self.unsent_size and not self.closed:
            await self._more_sent()

    async def _more_sent(self) -> None:
        self._waiter_count += 1
        try:
            await self._sent.park()
        finally:
            self._waiter_count -= 1

    def close(self, reason: str = "closed here") -> None:
        """End the connection at once: pending calls fail, and bytes that were not sent are lost."""
        if not self.closed:
            self._reason = reason
            self._end()
            self._scope.cancel()

    def _close_by(self, error: NotReachableError) -> None:
        """End the connection because of an error, which pending calls get if later ones would fail like them."""
        if not self.closed and isinstance(error, TlsError):
            self._fault = error
            self._rare_log.warning("TLS failed peer=%s error=%s", self.remote_addr, error.what)
        self.close(error.what)

    def end_by_fault(self, fault: Exception) -> None:
        """End the connection because of a bug here, or because memory or the stack is full."""
        self._faults.note(self.remote_addr, fault)
        self.close("a fault of this program, which its log describes")

    def _send_answer(self, answer: RemotingCommand) -> None:
        try:
            self._connection.send_answer(answer)
        except LocalProtocolError as error:
            log.error("an answer cannot be encoded peer=%s error=%s", self.remote_addr, error)
            failure = attrs.evolve(
                answer, code=ResponseCode.SYSTEM_ERROR, remark=str(error), ext_fields={}, body=b""
            )
            self._connection.send_answer(failure)

    def give_up_calls(self, code: int, reason: str) -> None:
        """Fail the pending calls of one request code with NotReachableError; late answers are dropped."""
        table = self._connection.response_table
        for opaque in [opaque for opaque, call in table.items() if call.code == code]:
            table.pop(opaque).fail(NotReachableError(reason, broker_addr=self.remote_addr))

    # -------------------------------------------------------------------------------------- the tasks

    @trio.lowlevel.enable_ki_protection
    async def run(
        self, on_end: Callable[["Channel"], None] | None = None, *, received: Body = b""
    ) -> None:
        """Move bytes until either end closes; `received` are the first ones, if they were read already.

        Never raises an Exception.
        """
        if not self.closed:
            self._sweeper.add(self)
            self._sweeper.sweep_by(self._last_active + self._idle_timeout)
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    # Each direction alone: a bug in one ends this connection, and not the nursery of all.
                    nursery.start_soon(self._contained, self._write)
                    await self._contained(partial(self._read, received))
                    nursery.cancel_scope.cancel()
        finally:
            self._end()
            try:
                if on_end is not None:
                    on_end(self)
            except Exception as fault:
                self._faults.note(self.remote_addr, fault)
            await self._transport.aclose()

    async def _contained(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as fault:
            self.end_by_fault(fault)

    def sweep(self, now: float) -> float:
        """Fail calls that are due, and close the connection if it is idle; return when to sweep again."""
        try:
            return self._sweep(now)
        except Exception as fault:
            self.end_by_fault(fault)
            return inf

    def _sweep(self, now: float) -> float:
        next_deadline = _expire_calls(self._connection.response_table, now, self.remote_addr)
        idle_at = self._last_active + self._idle_timeout
        if idle_at <= now:
            self.close(f"idle for {self._idle_timeout:g} s")
            return inf
        if self._frame_deadline <= now:
            size = self._connection.unfinished_size
            self._rare_log.warning(
                "a frame took too long peer=%s received=%d", self.remote_addr, size
            )
            self.close(f"a frame took too long; {size} bytes of it arrived")
            return inf
        return min(idle_at, next_deadline, self._frame_deadline)

    async def _read(self, received: Body) -> None:
        connection, reactor = self._connection, self._reactor
        goes_on = True
        try:
            if received:
                goes_on = await reactor.turn(self._host, partial(self._process_first, received))
            while True:
                if goes_on:
                    await reactor.receive(
                        self._transport, self._buffer, self._process_chunk, host=self._host
                    )
                goes_on = True
                while self._has_work and not self._peer_ended:
                    await self._process_rest()
                self._note_unfinished()
                if self._peer_ended:
                    return self.close(
                        "the peer closed it" if connection.error is None else connection.error.what
                    )
                if connection.error is not None:
                    self._rare_log.warning(
                        "bad bytes peer=%s error=%s", self.remote_addr, connection.error
                    )
                    with trio.move_on_after(SEND_REST_TIMEOUT):
                        await self.drain()
                    return self.close(connection.error.what)
        except NotReachableError as error:
            return self._close_by(error)

    @property
    def _has_work(self) -> bool:
        return bool(self._backlog) or self._connection.holds_frames

    async def _process_rest(self) -> None:
        """Give the requests of a chunk that its turn has left another one; after it drop what a closed peer sent."""
        # If nothing is unsent the writer sleeps, and would never wake this task.
        if self.is_congested and self.unsent_size:
            await self._more_sent()
        is_last = is_peer_gone(self._transport)
        await self._reactor.turn(
            self._host,
            lambda: self._process(inf if is_last else self._now() + ONEWAY_TIME),
            is_rest=True,
        )
        if is_last:
            self._peer_ended = True

    def _process_first(self, received: Body) -> bool:
        self._buffer[: len(received)] = received
        return self._process_chunk(len(received))

    def _process_chunk(self, size: int) -> bool:
        """Process received bytes; return False if `_read` must take over."""
        connection = self._connection
        if size == 0:
            connection.receive_eof()
            self._peer_ended = True
            return False
        now = self.last_received = self._last_active = self._now()
        self._decode(self._buffer[:size])
        if self._backlog or connection.holds_frames:
            self._process(now + ONEWAY_TIME)
        if connection.unfinished_size or self._unfinished_after is not None or self._backlog:
            self._note_unfinished()
        return not self._backlog and not connection.holds_frames and connection.error is None

    def _decode(self, data: Body) -> None:
        self._backlog, finished = self._connection.receive(data)
        for call, answer in finished:
            call.finish(answer)
        self._woken.answered(len(finished))

    def _note_unfinished(self) -> None:
        """Report how many received bytes are not processed yet, and set the deadline of an incomplete frame."""
        room, connection = self._room, self._connection
        if room is None or self.closed:
            return
        unfinished, count = connection.unfinished_size, connection.frame_count
        waiting = sum(len(request.body) + REQUEST_WEIGHT for request in self._backlog)
        if not unfinished:
            self._unfinished_after, self._frame_deadline = None, inf
        elif self._has_work:  # The rest of the frame is not being read now.
            self._unfinished_after, self._frame_deadline = -1, inf
        elif self._unfinished_after != count:
            self._unfinished_after = count
            limit = FRAME_TIMEOUT if count else FIRST_FRAME_TIMEOUT
            self._frame_deadline = trio.current_time() + limit
            self._sweeper.sweep_by(self._frame_deadline)
        room.hold_unfinished(self, unfinished + waiting, is_proven=count > 0)

    def _process(self, oneway_end: float) -> None:
        """Process received requests until the peer stops reading its answers or the turn ends.

        After a oneway request the turn ends at `oneway_end`, if that is earlier.
        """
        dispatch, now, connection, oneway = self._dispatch, self._now, self._connection, FLAG_ONEWAY
        turn_end = self._reactor.turn_end
        self._in_round = True
        while True:
            requests = self._backlog
            last = len(requests) - 1
            for done, request in enumerate(requests):
                if not done % ANSWERS_TOGETHER or self._queued_answer_size > HIGH_WATER_MARK:
                    if connection.out_size or self._queued_answer_size:
                        self._send_now()
                    if self._queued_answer_size + self._sending_answer_size > HIGH_WATER_MARK:
                        # What a peer does not read waits here: processed, its requests
                        # would fill the memory with answers.
                        self._backlog = requests[done:]
                        break
                dispatch(self, request)
                if request.flag & oneway and oneway_end < turn_end:
                    turn_end = oneway_end
                if done < last and now() > turn_end:
                    self._backlog = requests[done + 1 :]
                    break
            else:
                self._backlog = []
            if self._backlog or self.closed or not connection.holds_frames or now() > turn_end:
                break
            self._decode(b"")
        self._in_round = False
        self._send_now()

    def _send_now(self) -> None:
        """Send queued bytes as far as the transport accepts them; leave the rest to the writer."""
        connection = self._connection
        # The writer has a part of a frame on its way, and sends what is queued after it.
        if self._sending_size:
            if self._room is not None:
                self._note_unsent()
            return
        while connection.out_size:
            data = connection.take_output()
            try:
                sent = self._transport.send_nowait(data)
            except NotReachableError as error:
                self._close_by(error)
                return
            except Exception as fault:
                self.end_by_fault(fault)
                return
            if sent < len(data):
                # In front of all that is queued: the peer has the beginning of this frame, and must get its rest next.
                connection.put_back(memoryview(data)[sent:])
                self._wake_writer()
                return
        self._queued_answer_size = 0
        if self._waiter_count:  # Rarely true, and unpark_all costs 4 us even if no task waits.
            self._sent.unpark_all()
        if self._noted_unsent_size:
            self._note_unsent()
        if self._in_turn:
            self._make_answers()

    def _send_at_once(self) -> None:
        """Send queued bytes without the writer, which saves a tick of the scheduler; leave to it what remains.

        Of calls whose tasks were woken together, the last one sends those before it too.
        """
        self._woken.unsent = 0
        connection = self._connection
        data = connection.take_output()
        try:
            sent = self._transport.send_nowait(data)
        except Exception:
            sent = 0  # The writer gets the same error, and ends the connection.
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
            if (
                not data
            ):  # Already sent by the reader task, or by a call (calls do not wake drain() waiters).
                self._queued_answer_size = 0
                if self._in_turn:
                    self._make_answers()
                if self._waiter_count:
                    self._sent.unpark_all()
                continue
            # From here to its end these bytes belong to the writer: nothing else may be sent in the middle of a frame.
            self._sending_size = len(data)
            self._sending_answer_size = min(self._queued_answer_size, len(data))
            self._queued_answer_size -= self._sending_answer_size
            self._last_active = trio.current_time()
            try:
                sent = transport.send_nowait(data)
                if sent < len(data):
                    await transport.send_all(memoryview(data)[sent:])
            except NotReachableError as error:
                return self._close_by(error)
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
        try:
            while self._in_turn and not self.is_congested:
                answer = self._in_turn.popleft()()
                if answer is not None:
                    self.reply(answer)
        except Exception as fault:
            self.end_by_fault(fault)

    def _note_unsent(self) -> None:
        """Report how many bytes this peer has not read, which count against the limit of all peers together."""
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
        """Mark the connection closed and fail everything that waits; nothing is queued afterwards."""
        if self.closed:
            return
        # First: a task that is woken below must find that nothing can be queued any more.
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

    def _gone(self, code: int) -> NotReachableError:
        reason = self._reason or "closed here"
        if self._fault is not None:
            return TlsError(reason, broker_addr=self.remote_addr, remedy=self._fault.advice)
        return NotReachableError(
            f"No answer to {code_name(code, RequestCode)}: the connection has ended ({reason})",
            broker_addr=self.remote_addr,
        )


def _expire_calls(response_table: dict[int, PendingCall], now: float, remote_addr: str) -> float:
    """Fail the calls whose deadline has passed; return the next deadline."""
    for opaque in [opaque for opaque, call in response_table.items() if call.deadline <= now]:
        # Removed by what completes it, and only once: a task that is woken twice would end the program.
        call = response_table.pop(opaque)
        call.fail(
            RequestTimeoutError(
                f"No answer to {code_name(call.code, RequestCode)} within {call.timeout:g} s",
                broker_addr=remote_addr,
            )
        )
    return min((call.deadline for call in response_table.values()), default=inf)
