"""Checks stored records one by one, without trusting their bytes; `layout` describes a record.

Answers to: CommitLog.checkMessageAndReturnSize.
Unlike Java: the checker distinguishes a torn record, a damaged record and the end of the log.
"""

import re
import zlib
from collections.abc import Iterator
from enum import IntEnum
from functools import lru_cache
from mmap import mmap
from struct import Struct
from typing import Final

import attrs

from rocketrio_protocol.record.layout import (
    HEAD_OFFSETS,
    HEAD_SIZE,
    HOSTS_IPV6_MASK,
    MAGIC_PADDING,
    MAGIC_V1,
    MAGIC_V2,
    MAGICS,
    MAX_TOPIC_SIZE_V1,
    MAX_TOPIC_SIZE_V2,
    MIN_TAIL_SIZE,
    PADDING_HEAD_SIZE,
    RECORD_OVERHEAD,
    SIZE_AND_MAGIC,
    head_structs,
)
from rocketrio_protocol.record.properties import (
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQUE_KEY,
    property_value,
)

_TWO_BYTES: Final = Struct(">h")
_TOPIC_CACHE_SIZE: Final = 1024  # Every record repeats the topic.
_KEPT_TOPIC_SIZE: Final = 255  # bytes; longer ones are no names, and would fill the memory


class RecordStatus(IntEnum):
    """What a position of the log contains."""

    RECORD = 0
    PADDING = 1
    """The content of the file ends here; skip `size` bytes."""
    END = 2
    """Nothing was written here: zeros, or too few bytes for a head."""
    INCOMPLETE = 3
    """The beginning of a record or padding that exceeds the limit: torn by a crash, or not received yet."""
    CORRUPT = 4
    """No record, or one that contradicts itself; `problem` says why."""


@attrs.define
class RecordHeader:
    """The result of checking one position, with the fields of a record that dispatch and recovery need."""

    status: RecordStatus
    size: int = 0
    problem: str = ""
    queue_id: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    sys_flag: int = 0
    store_time_ms: int = 0
    prepared_transaction_offset: int = 0
    topic: str = ""
    properties: bytes = b""
    """The properties string; `tags`, `keys` and `uniq_key` search it when they are read."""

    @property
    def tags(self) -> str | None:
        return property_value(self.properties, PROPERTY_TAGS)

    @property
    def keys(self) -> str:
        return property_value(self.properties, PROPERTY_KEYS) or ""

    @property
    def uniq_key(self) -> str | None:
        return property_value(self.properties, PROPERTY_UNIQUE_KEY)


# The fields of the head that the checker needs, by the host bits of sysFlag.
_CHECKED_HEADS: Final = head_structs(
    "size",
    "magic",
    "body_crc",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "sys_flag",
    "store_time",
    "prepared_transaction_offset",
    "body_size",
)
_unpack_checked_head: Final = _CHECKED_HEADS[0].unpack_from


def scan_record(
    buffer: bytes | bytearray | memoryview, position: int, limit: int, *, check_crc: bool = True
) -> RecordHeader:
    """Check the record at `position`; `limit` is the end of the valid bytes, at most the length of `buffer`."""
    if position + RECORD_OVERHEAD > limit:
        return _too_few_bytes(buffer, position, limit)
    (
        size,
        magic,
        crc,
        queue_id,
        queue_offset,
        physical_offset,
        sys_flag,
        store_ms,
        prepared,
        body_size,
    ) = _unpack_checked_head(buffer, position)
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return _not_a_record(size, magic, limit - position)
    end = position + size
    if size < RECORD_OVERHEAD or end > limit:
        return _of_impossible_size(size, limit - position)
    body_at = position + HEAD_SIZE
    if hosts := sys_flag & HOSTS_IPV6_MASK:
        head = _CHECKED_HEADS[hosts]
        body_at = position + head.size
        if body_at + MIN_TAIL_SIZE > end:
            return RecordHeader(
                RecordStatus.CORRUPT, problem=f"IPv6 hosts do not fit in {size} bytes"
            )
        *_, store_ms, prepared, body_size = head.unpack_from(buffer, position)
    topic_at = body_at + body_size + (1 if magic == MAGIC_V1 else 2)
    if body_size < 0 or topic_at > end:
        return RecordHeader(RecordStatus.CORRUPT, problem=f"the body length is {body_size}")
    topic_size = (
        buffer[topic_at - 1]
        if magic == MAGIC_V1
        else _TWO_BYTES.unpack_from(buffer, topic_at - 2)[0]
    )
    properties_at = topic_at + topic_size + 2
    if (
        not 0 <= topic_size <= (MAX_TOPIC_SIZE_V1 if magic == MAGIC_V1 else MAX_TOPIC_SIZE_V2)
        or properties_at > end
    ):
        return RecordHeader(RecordStatus.CORRUPT, problem=f"the topic length is {topic_size}")
    (properties_size,) = _TWO_BYTES.unpack_from(buffer, properties_at - 2)
    if properties_size < 0 or properties_at + properties_size != end:
        return RecordHeader(
            RecordStatus.CORRUPT,
            problem=f"its lengths {body_size}, {topic_size}, {properties_size} do not add up to {size}",
        )
    if check_crc and crc != zlib.crc32(buffer[body_at : body_at + body_size]) & 0x7FFFFFFF:
        return RecordHeader(RecordStatus.CORRUPT, problem="the body's CRC is wrong")
    return RecordHeader(
        RecordStatus.RECORD,
        size,
        "",
        queue_id,
        queue_offset,
        physical_offset,
        sys_flag,
        store_ms,
        prepared,
        _topic_text(bytes(buffer[topic_at : topic_at + topic_size])),
        bytes(buffer[properties_at:end]),
    )


_MAGIC_AT: Final = HEAD_OFFSETS["magic"]
_RECORD_MAGIC: Final = re.compile(
    b"|".join(re.escape(magic.to_bytes(4, signed=True)) for magic in MAGICS)
)


def possible_records(data: bytes | mmap, start: int, end: int) -> Iterator[int]:
    """Yield each position from `start` where a record may begin: where a magic number lies before `end`.

    Bodies may contain the same bytes, so `scan_record` must check each position. The time is proportional to the size.
    """
    for found in _RECORD_MAGIC.finditer(data, start + _MAGIC_AT, end):
        yield found.start() - _MAGIC_AT


def _topic_text(topic: bytes) -> str:
    known = _kept_topic_text if len(topic) <= _KEPT_TOPIC_SIZE else _kept_topic_text.__wrapped__
    return known(topic)


@lru_cache(_TOPIC_CACHE_SIZE)
def _kept_topic_text(topic: bytes) -> str:
    return topic.decode("utf-8", "replace")


def _too_few_bytes(
    buffer: bytes | bytearray | memoryview, position: int, limit: int
) -> RecordHeader:
    if position + PADDING_HEAD_SIZE > limit:
        return RecordHeader(RecordStatus.END)
    size, magic = SIZE_AND_MAGIC.unpack_from(buffer, position)
    if magic in MAGICS:
        return _of_impossible_size(size, limit - position)
    return _not_a_record(size, magic, limit - position)


def _of_impossible_size(size: int, available: int) -> RecordHeader:
    if size < RECORD_OVERHEAD:
        return RecordHeader(RecordStatus.CORRUPT, problem=f"the size of a record is {size}")
    return _incomplete(size, available)


def _not_a_record(size: int, magic: int, available: int) -> RecordHeader:
    if magic == MAGIC_PADDING:
        if size < PADDING_HEAD_SIZE:
            return RecordHeader(RecordStatus.CORRUPT, problem=f"the size of padding is {size}")
        return (
            _incomplete(size, available)
            if size > available
            else RecordHeader(RecordStatus.PADDING, size)
        )
    if size == 0 and magic == 0:
        return RecordHeader(RecordStatus.END)
    return RecordHeader(RecordStatus.CORRUPT, problem=f"the magic is {magic & 0xFFFFFFFF:#010x}")


def _incomplete(size: int, available: int) -> RecordHeader:
    return RecordHeader(
        RecordStatus.INCOMPLETE, size, f"it claims {size} bytes, but only {available} are there"
    )
