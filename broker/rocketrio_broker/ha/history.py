"""Compares bytes that a master sends with those of this log, to find out whether both logs have the same history.

    own log   begin ............ start [ compared | not compared yet ] end
    master                       start [ equal    | d ...

A record contains its address, its number in its queue and the time at which it was stored, so equal bytes of some
length at one address show that the history is the same; from the first byte that differs, two masters wrote the logs.

Invariant: everything between `start` and `position` is equal on both sides.
Invariant: a cut lies at a record's beginning, at or before the first byte that differs.
Unlike Java: nothing is compared there; a log of another history is followed from whatever address it ends at.
"""

from collections.abc import Iterator
from typing import Final

from rocketrio_broker.ha.errors import AskAgainError
from rocketrio_broker.store.commit_log import CommitLog
from rocketrio_broker.store.log_walk import LogWalk
from rocketrio_protocol.record.decode import possible_records

WINDOWS: Final = (256 << 10, 4 << 20, 64 << 20, 1 << 30)
"""The sizes of the end of the log to compare: the first on each connect, the next ones when all bytes of the one before
differ, and finally everything. The first takes about a millisecond, and contains more than a hundred records."""

FIRST_ADDRESS: Final = 1
"""The comparison of a whole log begins at its second byte, because a slave that asks from 0 reports that its log is
empty."""

_BLOCK: Final = 1 << 20
_SCAN: Final = 8 << 20  # bytes before the difference; the longest record is 4 MiB by default


class HistoryCheck:
    """One comparison, from `start` to the end of the log."""

    def __init__(self, log: CommitLog, start: int) -> None:
        self.start = start
        self.position = start
        self.difference: int | None = None
        """The first address that differs; None while none is known."""
        self.heartbeats = 0
        """The number of heartbeats in a row: the master has had nothing to send from `position` on."""
        self._log = log

    def __repr__(self) -> str:
        return f"<HistoryCheck {self.start}..{self.position} of {self._log!r}>"

    @property
    def is_complete(self) -> bool:
        """Whether the log was compared to its end, and is equal."""
        return self.position >= self._log.max_offset

    def compare(self, body: memoryview) -> int:
        """Compare the bytes that follow, and return how many of them this log has too; stop at the first that differs.

        Raises AskAgainError if this log's own bytes were deleted meanwhile.
        """
        taken = 0
        while taken < len(body) and not self.is_complete:
            own = self._log.read(self.position, min(_BLOCK, len(body) - taken))
            if own is None:
                raise AskAgainError(f"The log's bytes at {self.position} were deleted")
            other = body[taken : taken + len(own)]
            same = common_size(own, other)
            self.position += same
            taken += same
            if same < len(own):
                self.difference = self.position
                break
        return taken


def common_size(one: memoryview, other: memoryview) -> int:
    """Return how many bytes are equal from the beginning of two views of the same length."""
    # Bytes are compared in one step, memory views item by item.
    low, high = 0, len(one)
    if bytes(one) == bytes(other):
        return high
    while low < high:  # everything before low is equal, and something before high + 1 is not
        middle = (low + high) // 2
        if bytes(one[low : middle + 1]) == bytes(other[low : middle + 1]):
            low = middle + 1
        else:
            high = middle
    return low


def window_start(log: CommitLog, end: int, window: int | None) -> int:
    """Return where to begin a comparison that goes to `end`; without a window, at the log's first byte."""
    first = max(log.min_offset, FIRST_ADDRESS)
    if window is None or end - window <= first:
        return first
    return end - window


def last_boundary(log: CommitLog, low: int, address: int) -> int:
    """Return the last address up to `address` where a record begins, or could; `low` is where equal bytes begin."""
    base = max(log.min_offset, address - address % log.file_size)
    scan_from = max(base, low, address - _SCAN)
    # A file begins with a record; a nearer record saves reading the whole file.
    start = next(_record_starts(log, scan_from, address), base)
    walk = LogWalk(log, start, stop_at_damage=True)
    boundary = start
    for record in walk.records(address - start):
        if record[0] + record[1] > address:
            return record[0]
        boundary = record[0] + record[1]
    # Padding lies between the last record of a file and the next file.
    return walk.position if walk.position <= address else boundary


def _record_starts(log: CommitLog, start: int, end: int) -> Iterator[int]:
    """Yield the addresses in one file at which there are whole records that contain this address."""
    block = log.read(start, end - start)
    if block is None:
        return
    data = bytes(block)
    for place in possible_records(data, 0, len(data)):
        if log.record_at(start + place) is not None:
            yield start + place
