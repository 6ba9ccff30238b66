"""Finds the starts of many stored messages: by one vector comparison if all sizes are equal, otherwise one by one.

Invariant: the last record ends exactly at the end of the chunk, or the chunk is refused.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rocketrio_protocol.errors import LocalProtocolError, RemoteProtocolError
from rocketrio_protocol.record.layout import (
    COMPRESSED,
    HEAD_OFFSETS,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_OVERHEAD,
    SYS_FLAG_END,
    head_struct,
)
from rocketrio_protocol.record.vectors import Int64s, items_at_every_byte

MAX_CHUNK_SIZE: Final = 2**31 - 1
"""Bytes; the offsets of Arrow arrays have 32 bits."""

_SIZE: Final = head_struct("size")
_MAGIC_AT: Final = HEAD_OFFSETS["magic"]


def record_starts(chunk: Any) -> Int64s:
    """Return where each record of `chunk` begins. Raises RemoteProtocolError if the sizes do not end with the chunk."""
    limit = len(chunk)
    if limit > MAX_CHUNK_SIZE:
        raise LocalProtocolError(
            f"the chunk has {limit} bytes; {MAX_CHUNK_SIZE} is the limit for columns"
        )
    if not limit:
        return np.empty(0, np.int64)
    if limit >= RECORD_OVERHEAD:
        (first,) = _SIZE.unpack_from(chunk, 0)
        # Equal sizes alone are no proof: the comparison below reads the size of each record.
        if first >= RECORD_OVERHEAD and limit % first == 0:
            sizes: npt.NDArray[np.int32] = np.ndarray(
                (limit // first,), ">i4", chunk, strides=(first,)
            )
            if (sizes == first).all():
                return np.arange(0, limit, first, dtype=np.int64)
    return np.array(_walk(chunk, limit), np.int64)


def _walk(chunk: Any, limit: int) -> list[int]:
    starts: list[int] = []
    append, unpack = starts.append, _SIZE.unpack_from
    position = 0
    last = limit - RECORD_OVERHEAD
    while position <= last:
        append(position)
        (size,) = unpack(chunk, position)
        if size < RECORD_OVERHEAD:
            raise refused(position, f"its size is {size}")
        position += size
    # A record that is cut off, or bytes after the last one, are not messages: read as such, they would be made up.
    if position != limit:
        raise refused(starts[-1] if starts else 0, f"it exceeds the {limit} bytes of the chunk")
    return starts


def refused(position: int, why: str) -> RemoteProtocolError:
    """Return the error for a malformed record."""
    return RemoteProtocolError(f"no stored message at byte {position}: {why}")


def check_magics(chunk: Any, starts: Int64s) -> None:
    """Check that a message begins at each of these positions. Raises RemoteProtocolError."""
    magics = items_at_every_byte(chunk, ">i4")[starts + _MAGIC_AT]
    holds = (magics == MAGIC_V1) | (magics == MAGIC_V2)
    if not holds.all():
        raise refused(int(starts[np.argmin(holds)]), "its magic number is not that of a message")


def any_compressed(chunk: Any, starts: Int64s) -> bool:
    """Return whether the body of any message at these positions is compressed."""
    everywhere: npt.NDArray[np.uint8] = np.frombuffer(chunk, np.uint8)
    return bool((everywhere[starts + SYS_FLAG_END] & COMPRESSED).any())
