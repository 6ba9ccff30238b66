"""Holds rows until they are sent: one backlog for each queue that rows name, one for a topic's rows for any queue.

    Rows -> chunks, each of one backlog and one kind -> a backlog -> requests of up to `sendBatchBytes`

Rows that wait while a request is under way become the next request. This module only decides; it does not wait or send.

Invariant: a backlog returns its rows in the order in which they came. The backlog of a queue has at most one request
under way, so that rows of one sharding key keep their order whatever fails.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from rocketrio.producing.outgoing import Outgoing
from rocketrio.spark.writing.chunks import Chunk, chunks
from rocketrio.spark.writing.rows import Rows, key_shown, stored_key
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.record.batch import decode_batch

BATCH_MAX_MESSAGES: Final = 4000
"""The largest number of messages in one request: its answer holds an id of 32 characters for each."""


@attrs.frozen
class Request:
    """Messages that are sent together."""

    outgoing: Outgoing
    count: int
    size: int

    def named(self, where: str = "") -> str:
        """Return the beginning of a sentence about its rows, with the key of the first."""
        properties = self.outgoing.properties.encode()
        if self.outgoing.is_batch:
            properties = decode_batch(self.outgoing.body)[0][2]
        is_one = self.count == 1
        text = counted(self.count, "row")
        key = stored_key(properties)
        if key is not None:
            text += f" ({key_shown(key)})" if is_one else f" (the first: {key_shown(key)})"
        return f"{text}{where} {'is' if is_one else 'are'}"


def counted(count: int, what: str) -> str:
    """Return `count` and the word, in the plural if necessary."""
    return f"{count} {what}{'' if count == 1 else 's'}"


@attrs.define(eq=False)
class QueueBacklog:
    """Rows of a topic on their way to one queue, or to any."""

    topic: str
    queue: MessageQueue | None
    most_in_flight: int
    waiting: deque[Chunk] = attrs.Factory(deque)
    in_flight: int = 0

    @property
    def is_ready(self) -> bool:
        """Whether another request may be sent."""
        return bool(self.waiting) and self.in_flight < self.most_in_flight

    def take(self, batch_size: int) -> Request:
        """Return the next request of a backlog in which rows wait."""
        first = self.waiting[0]
        if first.single is not None:
            self.waiting.popleft()
            return Request(first.single, 1, first.size)
        parts: list[memoryview] = []
        size = count = 0
        while self.waiting and count < BATCH_MAX_MESSAGES:
            chunk = self.waiting[0]
            if chunk.single is not None or chunk.sys_flag != first.sys_flag:
                break
            part, taken = chunk.take(batch_size - size, BATCH_MAX_MESSAGES - count)
            if not taken:
                break
            parts.append(part)
            size, count = size + len(part), count + taken
            if not chunk.size:
                self.waiting.popleft()
        assert count, "a row too large for a batch was not sent alone"
        outgoing = Outgoing(self.topic, b"".join(parts), "", first.sys_flag, 0, (), is_batch=True)
        return Request(outgoing, count, size)


@attrs.define
class Backlog:
    """All backlogs of a task."""

    batch_size: int
    max_in_flight: int
    waiting_size: int = 0
    """The number of bytes in all backlogs."""
    _by_queue: dict[tuple[str, MessageQueue | None], QueueBacklog] = attrs.Factory(dict)
    _turn: deque[QueueBacklog] = attrs.Factory(deque)
    """The backlogs that are ready, beginning with the one that has waited longest."""

    def add(self, rows: Rows, queues: Mapping[str, Sequence[MessageQueue]]) -> None:
        """Add rows; `queues` are those of their topics, sorted. Raises RowError for a queue that does not exist."""
        for topic, queue, chunk in chunks(rows, queues):
            backlog = self._by_queue.get((topic, queue))
            if backlog is None:
                limit = self.max_in_flight if queue is None else 1
                backlog = self._by_queue[topic, queue] = QueueBacklog(topic, queue, limit)
            was_ready = backlog.is_ready
            backlog.waiting.append(chunk)
            self.waiting_size += chunk.size
            if backlog.is_ready and not was_ready:
                self._turn.append(backlog)

    def next_request(self) -> tuple[QueueBacklog, Request] | None:
        """Return the next request, from each ready backlog in turn; call `answered` after its answer."""
        if not self._turn:
            return None
        backlog = self._turn.popleft()
        request = backlog.take(self.batch_size)
        self.waiting_size -= request.size
        backlog.in_flight += 1
        if backlog.is_ready:
            self._turn.append(backlog)
        return backlog, request

    def answered(self, backlog: QueueBacklog) -> None:
        """Note that a request of the backlog has ended."""
        was_ready = backlog.is_ready
        backlog.in_flight -= 1
        if backlog.is_ready and not was_ready:
            self._turn.append(backlog)
