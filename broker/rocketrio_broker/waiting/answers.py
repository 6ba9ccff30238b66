"""Answers that wait, in two lines, until their message is safe: on this disk, on the slaves, or both.

    a put joins immediately  ┬ flush line    the log is flushed   or sync_flush_timeout: FLUSH_DISK_TIMEOUT
                             └ slave line    enough slaves have   or slave_timeout:      FLUSH_SLAVE_TIMEOUT

Sends are appended in the order of the log, so the first answer in a line waits for the least. Each line has a task.
That of the flush line sleeps until `flushed` has reached the first answer. `GroupTransferService` itself notifies the
slave line while it takes a report, because each turn of the scheduler would make a send in flight wait longer; the task
of the slave line only checks the time. An answer is sent when every line it is in has decided; those of one decision
are sent with one write per connection.

Invariant: an answer says SUCCESS only when each watermark it waits for has reached its end offset; each is sent once.
Invariant: end offsets and deadlines rise along a line.
Invariant: on a synchronous master a successful answer that did not wait for a slave is sent once the epoch's line
records that there are such answers: messages of its epoch are then never cut off automatically.
Answers to: GroupCommitService's and GroupTransferService's request queues, handlePutMessageResult.
Unlike Java: there is neither a future nor a timer per message, and a message that waits long delays no other.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import attrs
import trio

from rocketrio_broker.requests.refusal import RefusedError
from rocketrio_broker.store.put_times import PutTimes
from rocketrio_broker.waiting.watermark import Watermark
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.frame import PREFIX, FrameDecoder
from rocketrio_protocol.remoting.channel import Channel

logger = logging.getLogger("rocketrio_broker")

WAITING_ANSWERS_LIMIT: Final = 100_000
"""The most answers that wait; a broker that far behind sheds load (ten times Java's send queue of 10,000)."""

# Plain numbers: hashing a member of an enumeration takes longer than all the counting here.
_OK: Final = int(ResponseCode.SUCCESS)
_FLUSH_DISK_TIMEOUT: Final = int(ResponseCode.FLUSH_DISK_TIMEOUT)
_FLUSH_SLAVE_TIMEOUT: Final = int(ResponseCode.FLUSH_SLAVE_TIMEOUT)
_SLAVE_NOT_AVAILABLE: Final = int(ResponseCode.SLAVE_NOT_AVAILABLE)

_NOTE_AGAIN_AFTER: Final = 1.0  # seconds

"""The two lengths before a header."""
_CODE_0: Final = b'{"code":0,'
"""The beginning of the headers that `processors/answers.py` writes."""

_REMARKS: Final = {
    _FLUSH_DISK_TIMEOUT: "stored, but not flushed to disk in time",
    _FLUSH_SLAVE_TIMEOUT: "stored, but not on enough slaves in time",
    _SLAVE_NOT_AVAILABLE: "stored, but too few slaves are connected and near enough",
}


class Slaves(Protocol):
    """What the slave line needs of `GroupTransferService`."""

    is_required: bool
    replicated: Watermark
    last_slave: str | None

    available_until: int
    """Answers do not wait for slaves from this address on."""

    def notify(self, waiting: "WaitingAnswers") -> None: ...


class EarlyAnswers(Protocol):
    """Records that a message is answered before slaves have it: `Epochs`."""

    @property
    def notes_early_answers(self) -> bool: ...

    async def note_early_answer(self) -> None: ...


@attrs.frozen
class LastPutWait:
    """What the last put has waited for."""

    code: ResponseCode
    end_offset: int
    flush_seconds: float | None
    """Seconds until its flush was done or late; None if it did not wait for a flush."""
    slave_seconds: float | None
    """Seconds until the slaves had it or were late; None if it did not wait for slaves."""
    slave: str | None
    """The slave whose report released it, or was the last one before its time was up."""

    def __str__(self) -> str:
        texts = [self.code.name]
        if self.flush_seconds is not None:
            texts.append(f"flush_ms={self.flush_seconds * 1000:.1f}")
        if self.slave_seconds is not None:
            texts.append(f"slaves_ms={self.slave_seconds * 1000:.1f} slave={self.slave}")
        return " ".join(texts)


@attrs.frozen
class WaitingStatistics:
    """How many answers wait, and how the others were answered."""

    waiting_count: int
    answered: Mapping[ResponseCode, int]
    """How often puts that wait for disk or slaves were answered with each status."""
    last_wait: LastPutWait | None


@attrs.define(eq=False)
class WaitingAnswer:
    """One answer that waits."""

    end_offset: int
    begin: float
    channel: Channel
    frame: bytes
    """The answer in case of success."""
    undecided: int = 0
    """The number of lines it is in."""
    flush_code: int = _OK
    slave_code: int = _OK
    flushed_at: float = 0.0
    """The time when its flush was done or late; 0 if it does not wait for a flush."""
    replicated_at: float = 0.0
    late_is_success: bool = False

    @property
    def remark(self) -> str:
        codes = [code for code in (self.slave_code, self.flush_code) if code]
        return "; ".join(_REMARKS[code] for code in codes)


class _Line:
    """Answers that wait for one watermark, the first one first."""

    def __init__(self, reached: Watermark, timeout: float) -> None:
        self.waiting: deque[WaitingAnswer] = deque()
        self.reached = reached
        self.timeout = timeout
        self._added = Watermark()
        self._scope = trio.CancelScope()

    def add(self, waiting: WaitingAnswer) -> None:
        line = self.waiting
        # Only the first of a line is looked at: one out of order would be answered too early or too late.
        assert not line or line[-1].end_offset <= waiting.end_offset, "appends come in log order"
        waiting.undecided += 1
        line.append(waiting)
        # The task waits for the first one alone; whatever comes behind it is due later.
        if len(line) == 1:
            self._added.advance(self._added.value + 1)

    async def wait_first_covered(self) -> None:
        """Wait until the first answer is covered, until its deadline, or until the line was emptied."""
        first = await self._wait_any()
        with trio.CancelScope(deadline=first.begin + self.timeout) as self._scope:
            await self.reached.wait_reached(first.end_offset)

    async def wait_first_late(self) -> None:
        """Wait until the first answer's deadline, or until the line was emptied."""
        first = await self._wait_any()
        with trio.CancelScope() as self._scope:
            await trio.sleep_until(first.begin + self.timeout)

    async def _wait_any(self) -> WaitingAnswer:
        while not self.waiting:
            await self._added.wait_past(self._added.value)
        return self.waiting[0]

    def take_covered(self) -> list[WaitingAnswer]:
        """Remove and return the answers whose message is safe."""
        line, reached, taken = self.waiting, self.reached.value, []
        while line and line[0].end_offset <= reached:
            taken.append(line.popleft())
        return taken

    def take_late(self, now: float) -> list[WaitingAnswer]:
        """Remove and return the answers whose time is up."""
        line, taken = self.waiting, []
        while line and line[0].begin + self.timeout <= now:
            taken.append(line.popleft())
        return taken

    def take_all(self) -> list[WaitingAnswer]:
        """Remove and return all answers, and wake the line's task."""
        taken = list(self.waiting)
        self.waiting.clear()
        self._scope.cancel()
        return taken


class WaitingAnswers:
    """The two lines of answers that wait."""

    def __init__(
        self,
        flushed: Watermark | None,
        slaves: Slaves,
        *,
        flush_timeout: float,
        slave_timeout: float,
        early: EarlyAnswers | None = None,
        put_times: PutTimes | None = None,
        limit: int = WAITING_ANSWERS_LIMIT,
        current_time: Callable[[], float] = trio.current_time,
    ) -> None:
        """`flushed` is None if no put waits for the disk. Both timeouts are in seconds, counted from the put."""
        self._waits_for_flush = flushed is not None
        self._slaves = slaves
        self._flush_line = _Line(flushed or Watermark(), flush_timeout)
        self._slave_line = _Line(slaves.replicated, slave_timeout)
        slaves.notify(self)
        self._early = early
        self._put_times = put_times or PutTimes()
        self._unnoted: list[tuple[Channel, bytes]] = []
        self._to_note = Watermark()
        self._limit = limit
        self._current_time = current_time
        self._waiting_count = 0
        self._answered = dict.fromkeys((_OK, *_REMARKS), 0)
        self._last_answered: WaitingAnswer | None = None
        self._last_slave: str | None = None

    def __len__(self) -> int:
        return self._waiting_count

    @property
    def is_needed(self) -> bool:
        """Whether puts wait for anything here."""
        return self._waits_for_flush or self._slaves.is_required

    def check_room(self) -> None:
        """Refuse a send, before it is stored: a producer sends again what was refused as busy."""
        if self._waiting_count >= self._limit:
            raise RefusedError(
                ResponseCode.SYSTEM_BUSY,
                f"[OVERLOAD]{len(self)} messages wait for disk or slaves already, try later",
            )

    def statistics(self) -> WaitingStatistics:
        """Return how many answers wait, and how the others were answered."""
        last, last_wait = self._last_answered, None
        if last is not None:
            last_wait = LastPutWait(
                ResponseCode(last.slave_code or last.flush_code),
                last.end_offset,
                last.flushed_at - last.begin if last.flushed_at else None,
                last.replicated_at - last.begin if last.replicated_at else None,
                self._last_slave if last.replicated_at else None,
            )
        answered = {ResponseCode(code): count for code, count in self._answered.items()}
        return WaitingStatistics(self._waiting_count, answered, last_wait)

    def add(
        self, end_offset: int, channel: Channel, frame: bytes, *, late_is_success: bool = False
    ) -> None:
        """Answer once everything before `end_offset` is safe, or immediately if waiting would not help.

        `frame` is the answer in case of success; with `late_is_success` it is sent in any case, for clients that would
        store the message again.
        """
        waiting = WaitingAnswer(
            end_offset, self._current_time(), channel, frame, late_is_success=late_is_success
        )
        self._waiting_count += 1
        slaves = self._slaves
        if slaves.is_required:
            if end_offset < slaves.available_until:
                self._slave_line.add(waiting)
            else:
                # Now, and not after the timeout: no slave that is near enough could answer it.
                waiting.slave_code = _SLAVE_NOT_AVAILABLE
        if self._waits_for_flush:
            self._flush_line.add(waiting)
        if not waiting.undecided:
            frame = self._frame(waiting)
            if late_is_success and waiting.slave_code:
                self.answer_early(channel, frame)
            else:
                channel.reply(frame)

    def answer_early(self, channel: Channel, frame: bytes) -> None:
        """Answer success without waiting for disk or slaves."""
        early = self._early
        if early is None or not self._slaves.is_required or not early.notes_early_answers:
            channel.reply(frame)
            return
        # Once per epoch the answer waits until the epoch's line records it.
        self._waiting_count += 1
        self._unnoted.append((channel, frame))
        self._to_note.advance(self._to_note.value + 1)

    def answer_replicated(self) -> None:
        """Answer the puts that are covered now that the slaves have more."""
        covered = self._slave_line.take_covered()
        if covered:
            self._slaves_decided(covered)

    def answer_all(self) -> None:
        """Answer all puts now, as if their time were up: the log is cut or the role changes."""
        for line, decided in (
            (self._slave_line, self._slaves_decided),
            (self._flush_line, self._flush_decided),
        ):
            # What is safe already is answered as such; only the rest as late.
            decided(line.take_covered())
            decided(line.take_all(), is_late=True)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Send the answers as their messages become safe, or their time is up."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._mind_slave_line)
            nursery.start_soon(self._mind_flush_line)
            nursery.start_soon(self._note_early)
            task_status.started()

    async def _note_early(self) -> None:
        while True:
            await self._to_note.wait_reached(1)
            self._to_note.reset(0)
            while self._unnoted:
                try:
                    if self._early is not None:
                        await self._early.note_early_answer()
                except OSError as error:
                    logger.error("the epoch file cannot be written, answers wait reason=%s", error)
                    await trio.sleep(_NOTE_AGAIN_AFTER)
                    continue
                # After the line is on the disk: from now on nothing of this epoch is cut off automatically.
                unnoted, self._unnoted = self._unnoted, []
                for channel, frame in unnoted:
                    self._waiting_count -= 1
                    channel.reply(frame)

    async def _mind_slave_line(self) -> None:
        line = self._slave_line
        while True:
            await line.wait_first_late()
            # Those that are covered first: a message that slaves have must not be answered as late.
            self.answer_replicated()
            self._slaves_decided(line.take_late(self._current_time()), is_late=True)

    async def _mind_flush_line(self) -> None:
        line = self._flush_line
        while True:
            await line.wait_first_covered()
            # In this order, for the same reason.
            self._flush_decided(line.take_covered())
            self._flush_decided(line.take_late(self._current_time()), is_late=True)

    def _flush_decided(self, decided: list[WaitingAnswer], *, is_late: bool = False) -> None:
        now = self._current_time()
        for waiting in decided:
            waiting.flushed_at = now
            waiting.undecided -= 1
            if is_late:
                waiting.flush_code = _FLUSH_DISK_TIMEOUT
        self._answer_decided(decided)

    def _slaves_decided(self, decided: list[WaitingAnswer], *, is_late: bool = False) -> None:
        now = self._current_time()
        self._last_slave = self._slaves.last_slave
        for waiting in decided:
            waiting.replicated_at = now
            waiting.undecided -= 1
            if is_late:
                waiting.slave_code = _FLUSH_SLAVE_TIMEOUT
        self._answer_decided(decided)

    def _answer_decided(self, decided: list[WaitingAnswer]) -> None:
        """Send the answers that wait for nothing else, with one write per connection."""
        by_channel: dict[Channel, list[bytes]] = {}
        last: Channel | None = None
        frames: list[bytes] = []
        for waiting in decided:
            # It is in the other line too, and says SUCCESS only when both have decided.
            if waiting.undecided:
                continue
            channel = waiting.channel
            frame = self._frame(waiting)
            if waiting.late_is_success and waiting.slave_code:
                self.answer_early(channel, frame)
                continue
            if channel is not last:
                last, frames = channel, by_channel.setdefault(channel, [])
            frames.append(frame)
        for channel, frames in by_channel.items():
            channel.reply_all(frames)

    def _frame(self, waiting: WaitingAnswer) -> bytes:
        """Return the answer to send, and count it as sent."""
        self._waiting_count -= 1
        self._last_answered = waiting
        self._put_times.add(
            max(waiting.flushed_at, waiting.replicated_at, waiting.begin) - waiting.begin
        )
        # A problem with the slaves comes before one with the disk, as in Java.
        code = waiting.slave_code or waiting.flush_code
        self._answered[code] += 1
        if not code or waiting.late_is_success:
            return waiting.frame
        return with_code(waiting.frame, code, waiting.remark)


def with_code(frame: bytes, code: int, remark: str) -> bytes:
    """Return the same answer with another code and a remark; the remark is written without escaping."""
    if frame.startswith(_CODE_0, PREFIX.size):
        rest = frame[PREFIX.size + len(_CODE_0) :]
        header = b'{"code":%d,"remark":"%s",%s' % (code, remark.encode(), rest)
        return PREFIX.pack(4 + len(header), len(header)) + header
    (only,) = FrameDecoder().feed(frame)
    return attrs.evolve(RemotingCommand.decode(only), code=code, remark=remark).encode()
