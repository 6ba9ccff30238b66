"""Finds the first record that begins at or after an address, which may be in the middle of a record.

A record contains its own address; that distinguishes it from a magic number inside a body.

Answers to: nothing in Java, where a slave's lag is known in bytes alone.
"""

from collections.abc import Callable
from typing import Final

from rocketrio_broker.store.commit_log import store_timestamp
from rocketrio_protocol.record.decode import possible_records
from rocketrio_protocol.record.layout import BORN_HOST_IPV6, head_struct

SEARCH_LIMIT: Final = 8 << 20
"""Bytes to search: twice the largest message."""

_STEP: Final = 64 * 1024
_PHYSICAL_OFFSET: Final = head_struct("physical_offset")
_HEAD_SIZE: Final = head_struct("store_time", hosts=BORN_HOST_IPV6).size
"""Bytes up to the end of the store time, also after an IPv6 host."""

ReadLog = Callable[[int, int], "memoryview | None"]


def store_timestamp_from(read_log: ReadLog, physical_offset: int) -> int | None:
    """Return the store time (epoch ms) of that record; None if no record begins within `SEARCH_LIMIT`.

    `read_log` takes an address and a size; it returns at most that many bytes there, from one file, or None.
    """
    end = physical_offset + SEARCH_LIMIT
    while physical_offset < end:
        block = read_log(physical_offset, _STEP)
        if not block:
            return None
        found = _search(bytes(block), physical_offset)
        if found is not None:
            return found
        if len(block) < _STEP:
            physical_offset += len(block)  # A file ends here; no record spans two files.
        else:
            # The next block overlaps this one, so that a header split at the end of this block is whole in it.
            physical_offset += _STEP - _HEAD_SIZE + 1
    return None


def _search(block: bytes, physical_offset: int) -> int | None:
    for start in possible_records(block, 0, len(block)):
        if start + _HEAD_SIZE > len(block):
            return None
        if _PHYSICAL_OFFSET.unpack_from(block, start)[0] == physical_offset + start:
            return store_timestamp(memoryview(block)[start:])
    return None
