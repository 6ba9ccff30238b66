"""Commit logs on disk, compared byte by byte."""

import hashlib
from pathlib import Path

from tests.support import wire
from tests.support.waiting import wait_until

CATCH_UP_TIMEOUT = 30.0
"""Seconds; a 4.9 slave reports for the first time more than 5 s after it connected."""


def digest(store: Path, end: int, *, first: int = 0) -> str:
    """A checksum of all commit-log bytes below `end`, with their addresses; of files from address `first` on."""
    sums = hashlib.sha256()
    for path in sorted((store / "commitlog").iterdir()):
        start = int(path.name)
        if first <= start < end:
            sums.update(path.name.encode())
            sums.update(path.read_bytes()[: end - start])
    return sums.hexdigest()


def first_address(store: Path) -> int:
    """Where the log begins."""
    return min(int(path.name) for path in (store / "commitlog").iterdir())


def wait_caught_up(master: str, slave: str) -> int:
    """Return the end of both logs once it is the same and lies beyond 0."""
    ends = [0, 0]

    def same() -> bool:
        ends[:] = wire.max_physical_offset(master), wire.max_physical_offset(slave)
        return ends[0] == ends[1] > 0

    wait_until(same, f"{slave} has all of {master} (the last ends: {ends})", CATCH_UP_TIMEOUT)
    return ends[0]
