"""Counts what tasks have written: rows, bytes, and the offsets in each queue."""

from typing import Final

import attrs

from rocketrio.producing.send_result import SendResult
from rocketrio_protocol.message import MessageQueue

_QUEUES_SHOWN: Final = 8  # in one line of a log


@attrs.define
class Written:
    """Counts of what brokers acknowledged."""

    rows: int = 0
    size: int = 0
    """Bytes of bodies and properties, as sent."""
    requests: int = 0
    retries: int = 0
    """Requests that were sent again; their messages may be stored twice."""
    unsafe_rows: int = 0
    """Rows that only a master has; only with `requireSafeStore=false`."""
    offsets: dict[MessageQueue, tuple[int, int]] = attrs.Factory(dict)
    """The first and the last offset in each queue; messages of other writers may lie between."""

    def add(self, result: SendResult, rows: int, size: int) -> None:
        """Count one acknowledged request."""
        self.rows += rows
        self.size += size
        self.requests += 1
        self._reach(result.queue, result.queue_offset, result.queue_offset + rows - 1)

    def merge(self, other: "Written") -> None:
        """Add what another task has written."""
        self.rows += other.rows
        self.size += other.size
        self.requests += other.requests
        self.retries += other.retries
        self.unsafe_rows += other.unsafe_rows
        for queue, (first, last) in other.offsets.items():
            self._reach(queue, first, last)

    def _reach(self, queue: MessageQueue, first: int, last: int) -> None:
        known_first, known_last = self.offsets.get(queue, (first, last))
        self.offsets[queue] = min(first, known_first), max(last, known_last)

    def __str__(self) -> str:
        shown = sorted(self.offsets.items())[:_QUEUES_SHOWN]
        offsets = " ".join(f"{queue}={first}..{last}" for queue, (first, last) in shown)
        more = len(self.offsets) - len(shown)
        return (
            f"rows={self.rows} bytes={self.size} requests={self.requests} retries={self.retries}"
            f" unsafe_rows={self.unsafe_rows} {offsets}{f' and {more} queues more' if more else ''}"
        ).rstrip()
