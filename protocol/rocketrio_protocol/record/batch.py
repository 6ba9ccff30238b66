"""Encodes and decodes the body of a batch send: many messages of one topic, which the header names.

    i32 entry size | i32 magic 0 | i32 CRC 0 | i32 flag | i32 n | body | i16 m | properties

Invariant: the size of an entry is exactly the sum of its parts.
Answers to: MessageDecoder.encodeMessages, the reading side of MessageExtBatchEncoder.
"""

import struct
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final

from rocketrio_protocol.errors import LocalProtocolError, RemoteProtocolError
from rocketrio_protocol.record.properties import MAX_PROPERTIES_SIZE

ENTRY_OVERHEAD: Final = 22
"""Bytes of an entry besides its body and properties."""

ENTRY_FLAG_AT: Final = 12
ENTRY_BODY_AT: Final = 20
"""Where the flag and the body of an entry begin."""

_HEAD: Final = Struct(">i8xii")
"""Size, flag and body length; magic and CRC are zeros, and tell a reader nothing."""
_PROPERTIES_SIZE: Final = Struct(">h")


def encode_batch(entries: Iterable[tuple[int, bytes, bytes]]) -> bytes:
    """Encode (flag, body, encoded properties) entries as a batch."""
    parts: list[bytes] = []
    shape, head, tail_head = (-1, -1, -1), b"", b""
    for flag, body, properties in entries:
        # Messages of one producer often have the same lengths, which are then packed once.
        if (flag, len(body), len(properties)) != shape:
            shape = _, body_size, properties_size = flag, len(body), len(properties)
            if properties_size > MAX_PROPERTIES_SIZE:
                raise LocalProtocolError(
                    f"the properties of batch entry {len(parts) // 4} have {properties_size} bytes;"
                    f" {MAX_PROPERTIES_SIZE} is the limit"
                )
            head = _HEAD.pack(ENTRY_OVERHEAD + body_size + properties_size, flag, body_size)
            tail_head = _PROPERTIES_SIZE.pack(properties_size)
        parts += (head, body, tail_head, properties)
    return b"".join(parts)


def batch_size(entries: Sequence[tuple[int, bytes, bytes]]) -> int:
    """Return the size of the batch that `encode_batch` makes of these entries."""
    return sum(ENTRY_OVERHEAD + len(body) + len(properties) for _, body, properties in entries)


def decode_batch(
    body: bytes | bytearray | memoryview, *, limit: int | None = None
) -> list[tuple[int, bytes, bytes]]:
    """Return (flag, body, properties) of each entry. Raises RemoteProtocolError for wrong lengths or too many
    entries.
    """
    data = bytes(body)  # Slicing bytes costs half of slicing a view.
    size_limit, count_limit = len(data), len(data) if limit is None else limit
    entries: list[tuple[int, bytes, bytes]] = []
    position = 0
    unpack_head, unpack_properties_size = _HEAD.unpack_from, _PROPERTIES_SIZE.unpack_from
    while position < size_limit:
        if len(entries) == count_limit:
            raise RemoteProtocolError(f"A batch has {count_limit} messages at most")
        try:
            size, flag, body_size = unpack_head(data, position)
            body_end = position + ENTRY_BODY_AT + body_size
            if body_size < 0:
                raise _refused(position, len(entries), f"its body length is {body_size}")
            (properties_size,) = unpack_properties_size(data, body_end)
        except struct.error:
            raise _refused(
                position, len(entries), f"it goes beyond the {size_limit} bytes of the batch"
            ) from None
        end = body_end + 2 + properties_size
        # Each length is checked against the sum: what one entry has too much, the next one would lack.
        if properties_size < 0 or end - position != size:
            raise _refused(
                position,
                len(entries),
                f"its size {size} does not match {body_size} + {properties_size} bytes",
            )
        if end > size_limit:
            raise _refused(
                position, len(entries), f"it goes beyond the {size_limit} bytes of the batch"
            )
        entries.append((flag, data[position + ENTRY_BODY_AT : body_end], data[body_end + 2 : end]))
        position = end
    return entries


def _refused(position: int, index: int, why: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"batch entry {index} at byte {position}: {why}")
