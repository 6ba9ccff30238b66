"""Answers that wait until their message is safe: on this disk, on the slaves, or both; a line and a task for each.

    a put joins at once  ┬ flush line    the log is flushed   or sync_flush_timeout: FLUSH_DISK_TIMEOUT
                         └ slave line    enough slaves have   or slave_timeout:      FLUSH_SLAVE_TIMEOUT

Sends are appended in the order of the log, so whoever stands first in a line waits for the least. Its task sleeps until
the watermark has reached the first one or its time is up, then decides all that are covered. An answer goes out when
every line it stands in has decided.

Invariant: an answer says SUCCESS only when each watermark it waits for has reached its end offset; each is sent once.
Invariant: end offsets and deadlines rise along a line.
Answers to: GroupCommitService's and GroupTransferService's request queues, handlePutMessageResult.
Unlike Java: no future and no timer per message, and one that waits long holds up no other.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import attrs
import trio

from rocketrio_broker.processor.answers import SendAnswer
from rocketrio_broker.watermark import Watermark
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.remoting.channel import Channel

WAITING_ANSWERS_LIMIT: Final = 100_000
"""Answers that wait; a broker that far behind sheds load (ten times Java's send queue of 10,000)."""

# Plain numbers: hashing a member of an enumeration costs more than all else that is counted here.
_OK: Final = int(ResponseCode.SUCCESS)
_FLUSH_DISK_TIMEOUT: Final = int(ResponseCode.FLUSH_DISK_TIMEOUT)
_FLUSH_SLAVE_TIMEOUT: Final = int(ResponseCode.FLUSH_SLAVE_TIMEOUT)
_SLAVE_NOT_AVAILABLE: Final = int(ResponseCode.SLAVE_NOT_AVAILABLE)

_REMARKS: Final = {
    _FLUSH_DISK_TIMEOUT: "stored, but not flushed to disk in time",
    _FLUSH_SLAVE_TIMEOUT: "stored, but not on enough slaves in time",
    _SLAVE_NOT_AVAILABLE: "stored, but too few slaves are connected and near enough",
}


class Slaves(Protocol):
    """What the slave line goes by: `GroupTransferService`."""

    is_required: bool
    replicated: Watermark
    last_slave: str | None

    def slave_is_available(self, end_offset: int) -> bool: ...


@attrs.frozen
class LastWait:
    """What the last put has waited for."""

    code: ResponseCode
    end_offset: int
    flush_seconds: float | None
    """Until its flush was done or late; None if it waited for none."""
    slave_seconds: float | None
    """Until the slaves had it or were late; None if it waited for none."""
    slave: str | None
    """Whose report let it go, or was the last before its time was up."""

    def __str__(self) -> str:
        told = [self.code.name]
        if self.flush_seconds is not None:
            told.append(f"flush_ms={self.flush_seconds * 1000:.1f}")
        if self.slave_seconds is not None:
            told.append(f"slaves_ms={self.slave_seconds * 1000:.1f} slave={self.slave}")
        return " ".join(told)


@attrs.frozen
class WaitingStatistics:
    """Answers that wait, and those that waited."""

    waiting_count: int
    answered: Mapping[ResponseCode, int]
    """How often puts that wait for disk or slaves were answered with each status."""
    last_wait: LastWait | None


@attrs.define(eq=False)
class _Waiting:
    end_offset: int
    begin: float
    channel: Channel
    answer: SendAnswer
    undecided: int = 0
    """In how many lines it stands."""
    flush_code: int = _OK
    slave_code: int = _OK
    flush_seconds: float | None = None
    slave_seconds: float | None = None

    @property
    def code(self) -> int:
        """What is wrong with the slaves before what is wrong with the disk, as in Java."""
        return self.slave_code or self.flush_code

    @property
    def remark(self) -> str:
        codes = [code for code in (self.slave_code, self.flush_code) if code]
        return "; ".join(_REMARKS[code] for code in codes)


class _Line(ABC):
    """Answers that wait for one watermark, first come first."""

    def __init__(self, reached: Watermark, timeout: float) -> None:
        self.waiting: deque[_Waiting] = deque()
        self.timeout = timeout
        self._reached = reached
        self._added = Watermark()
        self._scope = trio.CancelScope()

    def add(self, waiting: _Waiting) -> None:
        line = self.waiting
        assert not line or line[-1].end_offset <= waiting.end_offset, "appends come in log order"
        waiting.undecided += 1
        line.append(waiting)
        if len(line) == 1:
            self._added.advance(self._added.value + 1)

    async def wait_first(self) -> None:
        """Return when the first one is covered, or its time is up, or the line was emptied."""
        while not self.waiting:
            await self._added.wait_past(self._added.value)
        first = self.waiting[0]
        with trio.CancelScope(deadline=first.begin + self.timeout) as self._scope:
            await self._reached.wait_reached(first.end_offset)

    def decide(self, now: float) -> list[_Waiting]:
        """Take out whoever is covered or late."""
        line, reached, decided = self.waiting, self._reached.value, []
        while line and line[0].end_offset <= reached:
            waiting = line.popleft()
            self.note(waiting, now, is_late=False)
            decided.append(waiting)
        while line and line[0].begin + self.timeout <= now:
            waiting = line.popleft()
            self.note(waiting, now, is_late=True)
            decided.append(waiting)
        return decided

    def give_up(self, now: float) -> list[_Waiting]:
        """Take out everybody, late or not."""
        decided = list(self.waiting)
        self.waiting.clear()
        for waiting in decided:
            self.note(waiting, now, is_late=waiting.end_offset > self._reached.value)
        self._scope.cancel()
        return decided

    @abstractmethod
    def note(self, waiting: _Waiting, now: float, *, is_late: bool) -> None:
        """Write down how its wait in this line ended."""


class _FlushLine(_Line):
    def note(self, waiting: _Waiting, now: float, *, is_late: bool) -> None:
        waiting.flush_seconds = now - waiting.begin
        if is_late:
            waiting.flush_code = _FLUSH_DISK_TIMEOUT


class _SlaveLine(_Line):
    def note(self, waiting: _Waiting, now: float, *, is_late: bool) -> None:
        waiting.slave_seconds = now - waiting.begin
        if is_late:
            waiting.slave_code = _FLUSH_SLAVE_TIMEOUT


class WaitingAnswers:
    """The two lines of answers that wait."""

    def __init__(
        self,
        flushed: Watermark | None,
        slaves: Slaves,
        *,
        flush_timeout: float,
        slave_timeout: float,
        limit: int = WAITING_ANSWERS_LIMIT,
        current_time: Callable[[], float] = trio.current_time,
    ) -> None:
        """`flushed` is None where no put waits for the disk. Both timeouts are seconds from the put on."""
        self._waits_for_flush = flushed is not None
        self._slaves = slaves
        self._flush_line = _FlushLine(flushed or Watermark(), flush_timeout)
        self._slave_line = _SlaveLine(slaves.replicated, slave_timeout)
        self._limit = limit
        self._current_time = current_time
        self._waiting_count = 0
        self._answered = dict.fromkeys((_OK, *_REMARKS), 0)
        self._last_answered: _Waiting | None = None
        self._last_slave: str | None = None

    def __len__(self) -> int:
        return self._waiting_count

    @property
    def is_needed(self) -> bool:
        """Whether puts wait for anything here."""
        return self._waits_for_flush or self._slaves.is_required

    @property
    def is_full(self) -> bool:
        """Whether sends have to be refused, before they are stored."""
        return self._waiting_count >= self._limit

    def statistics(self) -> WaitingStatistics:
        """How many wait, and what came of the others."""
        last, last_wait = self._last_answered, None
        if last is not None:
            last_wait = LastWait(
                ResponseCode(last.code),
                last.end_offset,
                last.flush_seconds,
                last.slave_seconds,
                None if last.slave_seconds is None else self._last_slave,
            )
        answered = {ResponseCode(code): count for code, count in self._answered.items()}
        return WaitingStatistics(self._waiting_count, answered, last_wait)

    def add(self, end_offset: int, channel: Channel, answer: SendAnswer) -> None:
        """Answer once everything before `end_offset` is safe, or at once where waiting would not help."""
        waiting = _Waiting(end_offset, self._current_time(), channel, answer)
        self._waiting_count += 1
        slaves = self._slaves
        if slaves.is_required:
            if slaves.slave_is_available(end_offset):
                self._slave_line.add(waiting)
            else:
                waiting.slave_code = _SLAVE_NOT_AVAILABLE
        if self._waits_for_flush:
            self._flush_line.add(waiting)
        if not waiting.undecided:
            self._answer(waiting)

    def answer_all(self) -> None:
        """Answer everybody now, as if their time were up: the log is cut or the role changes."""
        now = self._current_time()
        for line in (self._slave_line, self._flush_line):
            self._leave(line.give_up(now))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Send the answers as their messages become safe, or their time is up."""
        async with trio.open_nursery() as nursery:
            for line in (self._slave_line, self._flush_line):
                nursery.start_soon(self._run_line, line)
            task_status.started()

    async def _run_line(self, line: _Line) -> None:
        while True:
            await line.wait_first()
            self._leave(line.decide(self._current_time()))

    def _leave(self, decided: list[_Waiting]) -> None:
        """One line less for each of these; none left: the answer goes out."""
        self._last_slave = self._slaves.last_slave
        for waiting in decided:
            waiting.undecided -= 1
            if not waiting.undecided:
                self._answer(waiting)

    def _answer(self, waiting: _Waiting) -> None:
        code = waiting.code
        self._waiting_count -= 1
        self._answered[code] += 1
        self._last_answered = waiting
        remark = waiting.remark if code else ""
        waiting.channel.reply(waiting.answer.frame(code, remark))
