"""Whether two logs have one history: bytes that a master sends are compared with those that lie here.

    own log   begin ............ start [ compared | yet to compare ] end
    master                       start [ equal    | d ...

A record carries its address, the number in its queue and the time it was stored, so equal bytes of some length at one
address are one history; from the first byte that differs on two masters wrote.

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
"""Bytes before the end of the log that are compared on each connect, and how far back to look when all of them differ;
after the last everything. The first takes about a millisecond, and holds a hundred records and more."""

FIRST_ADDRESS: Final = 1
"""To ask from 0 means "I have nothing": the comparison of a whole log begins at its second byte."""

_BLOCK: Final = 1 << 20
_SCAN: Final = 8 << 20  # before the difference; the longest record is 4 MiB by default


class HistoryCheck:
    """One comparison, from `start` to the end of the log."""

    def __init__(self, log: CommitLog, start: int) -> None:
        self.start = start
        self.position = start
        self.difference: int | None = None
        """The first address that differs; None while none is known."""
        self.heartbeats = 0
        """Heartbeats in a row: the master has had nothing to send from `position` on."""
        self._log = log

    def __repr__(self) -> str:
        return f"<HistoryCheck {self.start}..{self.position} of {self._log!r}>"

    @property
    def is_complete(self) -> bool:
        """Whether the log is equal to its end."""
        return self.position >= self._log.max_offset

    def compare(self, body: memoryview) -> int:
        """Compare what follows; how many of the bytes the log has too. Stops at the first that differs.

        Raises AskAgainError when its own bytes were deleted meanwhile.
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
    """How many bytes are equal from the beginning of two views of one length."""
    # As bytes: one comparison of memory, where two views would be compared item by item.
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
    """Where to begin a comparison that goes to `end`; without a window with the first byte there is."""
    first = max(log.min_offset, FIRST_ADDRESS)
    if window is None or end - window <= first:
        return first
    return end - window


def last_boundary(log: CommitLog, low: int, address: int) -> int:
    """The last address up to `address` where a record begins, or could; `low` is where equal bytes begin."""
    base = max(log.min_offset, address - address % log.file_size)
    scan_from = max(base, low, address - _SCAN)
    # A file begins with a record; nearer ones spare the walk through it.
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
    """Addresses in one file at which whole records say that they lie."""
    block = log.read(start, end - start)
    if block is None:
        return
    data = bytes(block)
    for place in possible_records(data, 0, len(data)):
        if log.record_at(start + place) is not None:
            yield start + place
