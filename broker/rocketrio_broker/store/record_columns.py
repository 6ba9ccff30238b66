"""Reads many records of the log at once, as columns with the fields that dispatch, index and recovery need.

Only the chain of sizes is followed record by record; everything else is read and checked for all records at once.
Whatever is unusual in any way (IPv6 hosts, version 2, padding, damage, a torn end) is left to `LogWalk`.

Invariant: the records of a stretch are those that `LogWalk` would yield, up to the first unusual one.
Invariant: a length is used only after it is known to stay inside its record.
Invariant: no view of a mapping outlives the call that made it; otherwise a deleted file would stay mapped.
Unlike Java: it reads record by record.
"""

from collections.abc import Iterable, Iterator
from mmap import mmap
from typing import Any, Final
from zlib import crc32

import attrs
import numpy as np

from rocketrio_broker.store.log_walk import LogRecord, LogWalk, is_torn
from rocketrio_broker.store.property_columns import PropertyColumns
from rocketrio_protocol.record.layout import (
    HEAD_SIZE,
    HOSTS_IPV6_MASK,
    MAGIC_V1,
    RECORD_OVERHEAD,
    SIZE_AND_MAGIC,
)
from rocketrio_protocol.record.vectors import Int64s, heads_at, items_at_every_byte

STRETCH_SIZE: Final = 512 << 10
"""Bytes of log parsed together: enough to make the cost of the calls small, and still in the CPU's cache."""

FEW_RECORDS: Final = 96
"""Fewer records than this go through `LogWalk`: a stretch of columns costs 150 to 250 us however short (measured)."""

LEAST_STRETCH: Final = FEW_RECORDS * RECORD_OVERHEAD
"""Fewer bytes than this cannot hold `FEW_RECORDS` records."""

_LEAST_WALK: Final = 4096
"""The least bytes passed to `LogWalk`, so that unusual records are not each read twice."""


@attrs.define
class RecordColumns:
    """A stretch of usual records; row n of each column is the n-th record."""

    addresses: Int64s
    sizes: Int64s
    queue_ids: Int64s
    queue_offsets: Int64s
    sys_flags: Int64s
    store_ms: Int64s
    topics: list[bytes]
    properties: PropertyColumns

    def __len__(self) -> int:
        return len(self.topics)

    def record(self, row: int) -> LogRecord:
        return (
            int(self.addresses[row]),
            int(self.sizes[row]),
            self.topics[row],
            int(self.queue_ids[row]),
            int(self.queue_offsets[row]),
            int(self.sys_flags[row]),
            int(self.store_ms[row]),
            self.properties.stored(row),
        )

    def first(self, count: int) -> "RecordColumns":
        """Return the first `count` records, at least one."""
        return RecordColumns(
            self.addresses[:count],
            self.sizes[:count],
            self.queue_ids[:count],
            self.queue_offsets[:count],
            self.sys_flags[:count],
            self.store_ms[:count],
            self.topics[:count],
            self.properties.first(count),
        )

    def by_queue(self, rows: Int64s) -> tuple[Int64s, Int64s]:
        """Group the rows by queue, in their order; return them and where each queue's rows begin, with the end."""
        names = dict.fromkeys(self.topics)
        keys = self.queue_ids[rows]
        if len(names) > 1:
            numbers = {topic: number << 32 for number, topic in enumerate(names)}
            keys = keys + np.array([numbers[topic] for topic in self.topics], np.int64)[rows]
        changes = np.flatnonzero(keys[1:] != keys[:-1]) + 1
        if len(changes) and (keys[1:] < keys[:-1]).any():
            order = np.argsort(keys, kind="stable")
            rows, keys = rows[order], keys[order]
            changes = np.flatnonzero(keys[1:] != keys[:-1]) + 1
        return rows, np.concatenate(([0], changes, [len(rows)]))

    def records(self, rows: Iterable[int]) -> Iterator[LogRecord]:
        """Yield the records of these rows one by one."""
        return map(self.record, rows)


def stretches(walk: LogWalk, max_bytes: int) -> Iterator[RecordColumns | Iterator[LogRecord]]:
    """Yield the next records, about `max_bytes` of them: as columns, or one by one where columns do not pay or fit.

    Records that come one by one must be used up before the next stretch is requested. Ends like `LogWalk.records`.
    """
    stop = walk.position + max_bytes
    before = -1
    while before < walk.position < min(stop, walk.log.max_offset) and not walk.problem:
        before = walk.position
        columns, end = _read_columns(walk, min(stop, before + STRETCH_SIZE))
        if columns is not None:
            yield columns
        if walk.position < end:
            yield walk.records(end - walk.position)


def _read_columns(walk: LogWalk, stop: int) -> tuple[RecordColumns | None, int]:
    """Read usual records from the walk's position on, and move it; return also the end for `LogWalk` to go to."""
    log = walk.log
    end = min(stop, walk.position + _LEAST_WALK)
    file = log.files.file_at(walk.position)
    if file is None:
        return None, end
    base, data = file.start_offset, file.mapping
    at, limit = walk.position - base, min(log.max_offset - base, file.size)
    if min(limit, stop - base) - at < LEAST_STRETCH:
        return None, max(end, min(stop, base + limit))
    alike, starts, chain_end = _chain(data, at, limit, stop - base)
    if len(alike) + len(starts) < FEW_RECORDS:
        return None, max(end, base + chain_end)
    all_starts = np.concatenate((alike, np.array(starts, np.int64)))
    columns = _columns(walk, data, base, all_starts, chain_end)
    if columns is not None:
        last = len(columns) - 1
        walk.last_record = int(columns.addresses[last])
        walk.position = walk.last_record + int(columns.sizes[last])
    return columns, base + chain_end


def _chain(data: mmap, at: int, limit: int, stop: int) -> tuple[Int64s, list[int], int]:
    """Return where adjacent records begin, first those of one size, then the rest; and the end of the last one."""
    unpack = SIZE_AND_MAGIC.unpack_from
    last = min(limit - RECORD_OVERHEAD, stop - 1)
    alike = _alike(data, at, last)
    if len(alike):
        at = int(alike[-1])
    starts: list[int] = []
    while at <= last:
        size, magic = unpack(data, at)
        if magic != MAGIC_V1 or size < RECORD_OVERHEAD:
            break
        starts.append(at)
        at += size
    if at > limit:
        at = starts.pop()
    return alike[:-1], starts, at


def _alike(data: mmap, at: int, last: int) -> Int64s:
    """Return where records of one size begin, if at least `FEW_RECORDS` follow each other here."""
    if at <= last:
        size, magic = SIZE_AND_MAGIC.unpack_from(data, at)
        if magic == MAGIC_V1 and size >= RECORD_OVERHEAD:
            count = (last - at) // size + 1
            if count >= FEW_RECORDS:
                heads = np.ndarray((count,), "V8", data, at, strides=(size,)).view(">u8")
                count = _rows_before_false(heads == heads[0])
                return np.arange(at, at + count * size, size)
    return np.empty(0, np.int64)


def _columns(
    walk: LogWalk, data: mmap, base: int, starts: Int64s, end: int
) -> RecordColumns | None:
    heads = heads_at(data, starts)
    ends = np.append(starts[1:], end)
    body_sizes = heads["body_size"].astype(np.int64)
    is_usual = (heads["sys_flag"] & HOSTS_IPV6_MASK) == 0
    is_usual &= heads["physical_offset"] == starts + base
    is_usual &= (body_sizes >= 0) & (body_sizes <= ends - starts - RECORD_OVERHEAD)
    # Up to here lengths are only compared. Below they are places in the mapping:
    # none of a row that is not usual may be used.
    count = _rows_before_false(is_usual)
    # A view of the mapping: in a column it would keep a deleted file mapped.
    bytes_of = np.frombuffer(data, np.uint8)
    body_ends = starts[:count] + body_sizes[:count] + HEAD_SIZE
    topic_sizes = bytes_of[body_ends].astype(np.int64)
    properties_at = body_ends + topic_sizes + 3
    # The length of the topic has been read: again only rows in which it stays inside the record.
    count = _rows_before_false(properties_at <= ends[:count])
    starts, ends, properties_at = starts[:count], ends[:count], properties_at[:count]
    sizes = ends - properties_at
    high = bytes_of[properties_at - 2].astype(np.int64)
    count = _rows_before_false((high << 8 | bytes_of[properties_at - 1]) == sizes)
    if walk.check_crc:
        count = _rows_of_true_crc(data, starts[:count], body_ends[:count], heads["body_crc"])
    if count == 0:
        return None
    heads = heads[:count]
    # Each record's properties with the byte before them, which becomes their separator.
    gathered = _gathered(data, properties_at[:count] - 1, sizes[:count] + 1)
    columns = RecordColumns(
        addresses=starts[:count] + base,
        sizes=ends[:count] - starts[:count],
        queue_ids=heads["queue_id"].astype(np.int64),
        queue_offsets=heads["queue_offset"].astype(np.int64),
        sys_flags=heads["sys_flag"].astype(np.int64),
        store_ms=heads["store_time"].astype(np.int64),
        topics=_pieces(data, body_ends[:count] + 1, topic_sizes[:count]),
        properties=PropertyColumns(gathered, sizes[:count] + 1),
    )
    return _without_torn(columns) if walk.stop_at_damage else columns


def _rows_before_false(holds: Any) -> int:
    """Return the number of rows before the first for which `holds` is false."""
    first = int(holds.argmin()) if len(holds) else 0
    return first if len(holds) and not holds[first] else len(holds)


def _rows_of_true_crc(data: mmap, starts: Int64s, body_ends: Int64s, crcs: Any) -> int:
    body_starts = (starts + HEAD_SIZE).tolist()
    found = [
        crc32(data[start:end]) for start, end in zip(body_starts, body_ends.tolist(), strict=True)
    ]
    return _rows_before_false((np.array(found, np.uint32) & 0x7FFFFFFF) == crcs[: len(found)])


def _without_torn(columns: RecordColumns) -> RecordColumns | None:
    """Return the records before the first that lost sectors in a power cut."""
    suspects = set(columns.properties.rows_with_zeros())
    if any(0 in topic for topic in set(columns.topics)):
        suspects.update(row for row, topic in enumerate(columns.topics) if 0 in topic)
    for row in sorted(suspects):
        if is_torn(columns.record(row)):
            return columns.first(row) if row else None
    return columns


def _gathered(data: mmap, starts: Int64s, sizes: Int64s) -> bytes:
    """Join pieces of the mapping."""
    size = int(sizes[0])
    if (sizes == size).all():
        gathered: bytes = items_at_every_byte(data, f"V{size}")[starts].tobytes()
        return gathered
    ends = starts + sizes
    return b"".join(
        [data[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    )


def _pieces(data: mmap, starts: Int64s, sizes: Int64s) -> list[bytes]:
    """Return pieces of the mapping as a list."""
    size = int(sizes[0])
    if size and (sizes == size).all():
        pieces: list[bytes] = items_at_every_byte(data, f"V{size}")[starts].tolist()
        return pieces
    ends = starts + sizes
    return [data[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
