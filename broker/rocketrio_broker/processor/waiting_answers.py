"""Answers that wait until their message is safe: one ordered line, one task.

Sends are appended in the order of the log, so whoever stands first in the line waits for the least. The task sleeps
until the disk has reached the first one or its time is up, then answers all that are covered.

Invariant: an answer says SUCCESS only when `flushed` has reached its end offset; each is sent once.
Invariant: end offsets and deadlines rise along the line.
Answers to: GroupCommitService's request queue, handlePutMessageResult.
Unlike Java: no future and no timer per message.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

import attrs
import trio

from rocketrio_broker.processor.answers import SendAnswer
from rocketrio_broker.watermark import Watermark
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.remoting.channel import Channel

WAITING_ANSWERS_LIMIT: Final = 100_000
"""Answers in the line; a disk that far behind sheds load (ten times Java's send queue of 10,000)."""


@attrs.define
class _Waiting:
    end_offset: int
    deadline: float
    channel: Channel
    answer: SendAnswer


class WaitingAnswers:
    """The line of answers that wait for the disk."""

    def __init__(
        self,
        flushed: Watermark,
        *,
        timeout: float,
        limit: int = WAITING_ANSWERS_LIMIT,
        current_time: Callable[[], float] = trio.current_time,
    ) -> None:
        """`timeout` seconds after it came an answer is sent all the same, as FLUSH_DISK_TIMEOUT."""
        self._flushed = flushed
        self._timeout = timeout
        self._limit = limit
        self._current_time = current_time
        self._line: deque[_Waiting] = deque()
        self._added = Watermark()
        self.timeout_count = 0
        """Answers that were sent before their message was safe."""

    def __len__(self) -> int:
        return len(self._line)

    @property
    def is_full(self) -> bool:
        """Whether sends have to be refused, before they are stored."""
        return len(self._line) >= self._limit

    def add(self, end_offset: int, channel: Channel, answer: SendAnswer) -> None:
        """Answer once everything before `end_offset` is on the disk."""
        line = self._line
        assert not line or line[-1].end_offset <= end_offset, "appends come in the order of the log"
        line.append(_Waiting(end_offset, self._current_time() + self._timeout, channel, answer))
        if len(line) == 1:
            self._added.advance(self._added.value + 1)

    def answer_covered(self) -> None:
        """Answer everybody whose message the disk has."""
        line, flushed = self._line, self._flushed.value
        while line and line[0].end_offset <= flushed:
            waiting = line.popleft()
            waiting.channel.reply(waiting.answer.frame())

    def answer_late(self, now: float) -> None:
        """Answer everybody whose time is up: stored, but not yet safe."""
        line = self._line
        while line and line[0].deadline <= now:
            waiting = line.popleft()
            self.timeout_count += 1
            waiting.channel.reply(waiting.answer.frame(ResponseCode.FLUSH_DISK_TIMEOUT))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Send the answers as their messages become safe."""
        task_status.started()
        while True:
            if not self._line:
                await self._added.wait_past(self._added.value)
                continue
            first = self._line[0]
            with trio.move_on_at(first.deadline):
                await self._flushed.wait_reached(first.end_offset)
            self.answer_covered()
            self.answer_late(self._current_time())
