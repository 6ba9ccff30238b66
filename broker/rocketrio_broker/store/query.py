"""Finds messages by time and by key, and the store time of the next record after any address.

Invariant: a search by time uses store times, which do not fall along a queue.
Invariant: an address may be in the middle of a record; only a record that contains its own address counts as one.
Answers to: ConsumeQueue.getOffsetInQueueByTime, DefaultMessageStore.queryMessage.
Unlike Java: files are not chosen by their modification time; keys are compared here, not only their hashes.
"""

from collections.abc import Callable
from typing import Final, Literal

import attrs

from rocketrio_broker.store.commit_log import CommitLog, store_timestamp
from rocketrio_broker.store.consume_queue import ConsumeQueue
from rocketrio_broker.store.key_index import KeyIndex
from rocketrio_protocol.record.decode import (
    RecordHeader,
    RecordStatus,
    possible_records,
    scan_record,
)
from rocketrio_protocol.record.layout import BORN_HOST_IPV6, head_struct
from rocketrio_protocol.record.properties import KEY_SEPARATOR

Boundary = Literal["4.x", "LOWER", "UPPER"]
"""Which message a time selects: the nearest one, the first at or after it, or the last at or before it."""

SEARCH_LIMIT: Final = 8 << 20
"""Bytes to search: twice the largest message."""

_STEP: Final = 64 * 1024
_PHYSICAL_OFFSET: Final = head_struct("physical_offset")
_HEAD_SIZE: Final = head_struct("store_time", hosts=BORN_HOST_IPV6).size
"""Bytes up to the end of the store time, also after an IPv6 host."""

ReadLog = Callable[[int, int], "memoryview | None"]


@attrs.frozen
class QueryResult:
    """The records found by key, and the position up to which the index is filled."""

    buffers: list[memoryview]
    index_last_update_timestamp: int
    index_last_update_physical_offset: int


def offset_by_time(
    log: CommitLog, queue: ConsumeQueue, end: int, timestamp_ms: int, boundary: Boundary
) -> int:
    """Return the queue offset of the message before `end` that `timestamp_ms` selects."""
    low, high = queue.min_offset, end
    if low >= high:
        return high
    at_or_after = _first_stored(log, queue, high, timestamp_ms)
    if boundary == "LOWER":
        return at_or_after
    if boundary == "UPPER":
        return max(_first_stored(log, queue, high, timestamp_ms + 1) - 1, low)
    if at_or_after == high:
        return high - 1
    if at_or_after == low:
        return low
    after = _store_time(log, queue, at_or_after)
    before = _store_time(log, queue, at_or_after - 1)
    if before is None or after is None or after == timestamp_ms:
        return at_or_after
    return at_or_after - 1 if timestamp_ms - before <= after - timestamp_ms else at_or_after


def _first_stored(log: CommitLog, queue: ConsumeQueue, end: int, timestamp_ms: int) -> int:
    """Return the first entry stored at this time or later; `end` if none before it was."""
    low, high = queue.min_offset, end
    while low < high:
        middle = (low + high) // 2
        time_ms = _store_time(log, queue, middle)
        if time_ms is None or time_ms < timestamp_ms:
            low = middle + 1
        else:
            high = middle
    return low


def _store_time(log: CommitLog, queue: ConsumeQueue, queue_offset: int) -> int | None:
    entry = queue.entry(queue_offset)
    return None if entry is None else log.store_timestamp_at(entry[0])


def query_message(
    log: CommitLog,
    index: KeyIndex,
    topic: str,
    key: str,
    max_num: int,
    begin_ms: int,
    end_ms: int,
    *,
    end: int,
) -> QueryResult:
    """Find a topic's newest records that end before `end`, have a key and were stored within these times."""
    found: dict[int, memoryview] = {}
    for physical_offset in index.find(topic, key, begin_ms, end_ms):
        if len(found) >= max_num:
            break
        record = log.record_at(physical_offset)
        # The index may name bytes that are deleted, or not confirmed yet.
        if record is None or physical_offset in found or physical_offset + len(record) > end:
            continue
        header = scan_record(record, 0, len(record), check_crc=False)
        if begin_ms <= header.store_time_ms <= end_ms and _has_key(header, topic, key):
            found[physical_offset] = record
    return QueryResult(list(found.values()), index.end_timestamp_ms, index.end_physical_offset)


def _has_key(header: RecordHeader, topic: str, key: str) -> bool:
    return (
        header.status is RecordStatus.RECORD
        and header.topic == topic
        and (key == header.uniq_key or key in header.keys.split(KEY_SEPARATOR))
    )


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
        # A body may contain a whole record, or something like it; that names another address.
        if _PHYSICAL_OFFSET.unpack_from(block, start)[0] == physical_offset + start:
            return store_timestamp(memoryview(block)[start:])
    return None
