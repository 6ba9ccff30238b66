"""Where each of many stored messages begins: by one vector compare where sizes repeat, otherwise by a walk.

Invariant: what is found leads to the very end of the chunk, or the chunk is refused.
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
"""Bytes: Arrow's offsets are 32-bit numbers."""

_SIZE: Final = head_struct("size")
_MAGIC_AT: Final = HEAD_OFFSETS["magic"]


def record_starts(chunk: Any) -> Int64s:
    """Where each record of `chunk` begins; sizes that do not lead to its very end are refused."""
    limit = len(chunk)
    if limit > MAX_CHUNK_SIZE:
        raise LocalProtocolError(f"a chunk of {limit} bytes; columns take {MAX_CHUNK_SIZE} at most")
    if not limit:
        return np.empty(0, np.int64)
    if limit >= RECORD_OVERHEAD:
        (first,) = _SIZE.unpack_from(chunk, 0)
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
    if position != limit:
        raise refused(starts[-1] if starts else 0, f"it goes beyond the {limit} bytes of the chunk")
    return starts


def refused(position: int, why: str) -> RemoteProtocolError:
    """What a record that cannot be is worth."""
    return RemoteProtocolError(f"no stored message at byte {position}: {why}")


def check_magics(chunk: Any, starts: Int64s) -> None:
    """Raise RemoteProtocolError unless a message begins at each of these places."""
    magics = items_at_every_byte(chunk, ">i4")[starts + _MAGIC_AT]
    holds = (magics == MAGIC_V1) | (magics == MAGIC_V2)
    if not holds.all():
        raise refused(int(starts[np.argmin(holds)]), "its magic is that of no message")


def any_compressed(chunk: Any, starts: Int64s) -> bool:
    """Whether the body of any message that begins at these places is compressed."""
    everywhere: npt.NDArray[np.uint8] = np.frombuffer(chunk, np.uint8)
    return bool((everywhere[starts + SYS_FLAG_END] & COMPRESSED).any())
