"""Reads messages of a queue: checks the offset against the queue's bounds, then collects the records of its entries.

The order of the checks, the next offset of each, and the limits: RocketMQ reference, section 8.1.

Invariant: no message is returned that ends beyond the read gate; a reader between the gate and the end of its queue
keeps its offset, as it would at the end.
Invariant: the first message that matches is always taken, however large.
Invariant: an entry for bytes outside of the log, as in a damaged directory, is skipped like one of a deleted message.
Invariant: buffers are in queue order, and views of the log; adjacent records share one. Only many separate records of
one size are copied instead, because their views would cost more than their bytes.
Answers to: DefaultMessageStore.getMessage, nextOffsetCorrection, GetMessageResult.
Unlike Java: a scan goes on into the next queue file; an offset beyond the end is never answered with 0.
"""

from bisect import bisect_right
from collections.abc import Iterable
from enum import Enum
from functools import lru_cache
from itertools import accumulate
from struct import Struct
from typing import Final

import attrs
import numpy as np

from rocketrio_broker.store.commit_log import CommitLog
from rocketrio_broker.store.config import QUEUE_ENTRY_SIZE, StoreConfig
from rocketrio_broker.store.consume_queue import ENTRY, ENTRY_TYPE, FILLER_SIZE, ConsumeQueue
from rocketrio_broker.store.consume_queue_table import ConsumeQueueTable
from rocketrio_broker.store.read_gate import ReadGate
from rocketrio_broker.store.record_filter import CHOSEN, Entry, PropertiesFilter, with_verdicts
from rocketrio_broker.store.statistics import StoreStatisticsService
from rocketrio_protocol.record.vectors import Int64s, items_at_every_byte

_STRUCT_CACHE_SIZE: Final = 64
GATHER_LEAST: Final = 32
"""The number of gaps from which on records are copied into one buffer: 0.1 us a record, where a view costs 0.4."""

_NEVER: Final = 1 << 62  # beyond every address
_SIZE_MAX: Final = (1 << 31) - 1
"""The bytes of one answer: the greatest size of an entry."""


class GetStatus(Enum):
    """The outcome of a read; the names are RocketMQ's, and are used in the remark of a pull answer."""

    FOUND = 0
    NO_MATCHED_MESSAGE = 1
    MESSAGE_WAS_REMOVING = 2
    OFFSET_FOUND_NULL = 3
    OFFSET_OVERFLOW_BADLY = 4
    OFFSET_OVERFLOW_ONE = 5
    OFFSET_TOO_SMALL = 6
    NO_MATCHED_LOGIC_QUEUE = 7
    NO_MESSAGE_IN_QUEUE = 8


@attrs.define
class GetResult:
    """The messages that one read found, and the queue's bounds."""

    status: GetStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    buffers: list[memoryview] = attrs.Factory(list)
    message_count: int = 0
    body_size: int = 0
    """Bytes of all buffers together."""
    suggest_pulling_from_slave: bool = False


def _gathered(span: memoryview, starts: Int64s, size: int) -> memoryview:
    """Copy the records of one size that begin at these places into one buffer."""
    gathered: memoryview = items_at_every_byte(span, f"V{size}")[starts].view(np.uint8).data
    return gathered


@lru_cache(_STRUCT_CACHE_SIZE)
def _entries_struct(count: int) -> Struct:
    return Struct(">" + "qIq" * count)


class QueueReader:
    """Reads queues and counts the reads."""

    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        table: ConsumeQueueTable,
        gate: ReadGate,
        statistics: StoreStatisticsService,
        memory_size: int,
    ) -> None:
        self.is_slave = False
        self._config = config
        self._log = log
        self._table = table
        self._seen_end = gate.end
        self._statistics = statistics
        self._memory_size = memory_size

    def reconfigure(self, config: StoreConfig, memory_size: int) -> None:
        """Use other limits from now on."""
        self._config = config
        self._memory_size = memory_size

    def get_message(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        *,
        tags_codes: frozenset[int] | None = None,
        matches: PropertiesFilter | None = None,
        max_bytes: int | None = None,
        limited_by_bytes: bool = False,
    ) -> GetResult:
        """Return messages of a queue that have one of the tags codes, or properties that `matches` selects.

        `limited_by_bytes` lifts the limits on the number of messages.
        """
        queue = self._table.by_key.get((topic, queue_id))
        if queue is None:
            return self._outside(GetStatus.NO_MATCHED_LOGIC_QUEUE, offset, 0, 0, 0)
        low, high = queue.min_offset, queue.max_offset
        if high == 0:
            return self._outside(GetStatus.NO_MESSAGE_IN_QUEUE, offset, 0, low, high)
        if offset < low:
            return self._outside(GetStatus.OFFSET_TOO_SMALL, offset, low, low, high)
        end, seen_end = high, self._seen_end.value
        if queue.last_physical_end > seen_end:
            high = queue.first_ending_beyond(seen_end)
        # Between the gate and the end of the queue the reader keeps its offset:
        # moved back, it would read messages again.
        if high <= offset <= end:
            return self._outside(GetStatus.OFFSET_OVERFLOW_ONE, offset, offset, low, high)
        if offset > high:
            return self._outside(GetStatus.OFFSET_OVERFLOW_BADLY, offset, high, low, high)
        config = self._config
        scan = _Scan(
            self._log, config, self._memory_size, max_messages, max_bytes, limited_by_bytes
        )
        if tags_codes is None and matches is None:
            count = max(scan.count_in_memory, scan.count_in_disk)
            taken = scan.take_run(queue.entries(offset, min(count, high - offset)))
            if taken:
                return self._result(scan, GetStatus.FOUND, queue, offset + taken, high)
        window = max(config.max_filter_message_size, QUEUE_ENTRY_SIZE * max_messages)
        entries = queue.entries(offset, min(window // QUEUE_ENTRY_SIZE, high - offset))
        if not entries:
            next_offset = offset if self._keeps_offsets else queue.next_file_offset(offset)
            status = GetStatus.OFFSET_FOUND_NULL
            return self._result(scan, status, queue, min(next_offset, high), high)
        each: Iterable[Entry] = ENTRY.iter_unpack(entries)
        if matches is not None:
            each, tags_codes = with_verdicts(self._log, each, matches), CHOSEN
        status = scan.take_matching(each, tags_codes)
        return self._result(scan, status, queue, offset + scan.examined, high)

    @property
    def _keeps_offsets(self) -> bool:
        """Whether answers keep the reader's offset: a slave that lags behind must not move its readers."""
        return self.is_slave and not self._config.offset_check_in_slave

    def _outside(
        self, status: GetStatus, offset: int, next_offset: int, low: int, high: int
    ) -> GetResult:
        self._statistics.count_get(0, 0)
        return GetResult(status, offset if self._keeps_offsets else next_offset, low, high)

    def _result(
        self, scan: "_Scan", status: GetStatus, queue: ConsumeQueue, next_offset: int, end: int
    ) -> GetResult:
        self._statistics.count_get(scan.message_count, scan.total)
        return GetResult(
            status,
            next_offset,
            queue.min_offset,
            end,
            scan.buffers,
            scan.message_count,
            scan.total,
            scan.is_last_cold,
        )


class _Scan:
    """One pass over queue entries, with its limits."""

    __slots__ = (
        "_bytes_in_disk",
        "_bytes_in_memory",
        "_cold_below",
        "_last_examined",
        "_log",
        "buffers",
        "count_in_disk",
        "count_in_memory",
        "examined",
        "message_count",
        "total",
    )

    def __init__(
        self,
        log: CommitLog,
        config: StoreConfig,
        memory_size: int,
        max_messages: int,
        max_bytes: int | None,
        limited_by_bytes: bool,
    ) -> None:
        self._log = log
        self._cold_below = log.max_offset - memory_size
        byte_limit = _SIZE_MAX if max_bytes is None else min(max_bytes, _SIZE_MAX)
        self._bytes_in_memory = min(config.max_transfer_bytes_on_message_in_memory, byte_limit)
        self._bytes_in_disk = min(config.max_transfer_bytes_on_message_in_disk, byte_limit)
        self.count_in_memory = self.count_in_disk = max_messages
        if not limited_by_bytes:
            self.count_in_memory = min(max_messages, config.max_transfer_count_on_message_in_memory)
            self.count_in_disk = min(max_messages, config.max_transfer_count_on_message_in_disk)
        self._last_examined = _NEVER
        self.buffers: list[memoryview] = []
        self.message_count = 0
        self.total = 0
        self.examined = 0

    @property
    def is_last_cold(self) -> bool:
        """Whether the last examined message is too far from the end of the log to be in memory."""
        return self._last_examined < self._cold_below

    def take_run(self, entries: bytes) -> int:
        """Take messages the fast way, without a filter; return how many, or 0 if that is not possible.

        It works on columns of numbers and costs 0.1 us a message, where `take_matching` costs 0.5.
        """
        count = len(entries) // QUEUE_ENTRY_SIZE
        if not count:
            return 0
        numbers = _entries_struct(count).unpack(entries)
        physical_offsets, sizes = numbers[0::3], numbers[1::3]
        # Entries may be damaged: a size of 0 ends this way, and a negative one is read as more than any limit.
        if physical_offsets[0] < self._log.min_offset or not all(sizes):
            return 0
        if physical_offsets[0] >= self._cold_below:
            byte_limit, count_limit = self._bytes_in_memory, self.count_in_memory
        elif physical_offsets[-1] < self._cold_below:
            byte_limit, count_limit = self._bytes_in_disk, self.count_in_disk
        else:
            return 0
        ends = list(accumulate(sizes))
        count = min(max(bisect_right(ends, byte_limit), 1), count, count_limit)
        total = ends[count - 1]
        last = physical_offsets[count - 1]
        if last + sizes[count - 1] - physical_offsets[0] == total:
            # The records are adjacent, so they lie in one file: between files there would be padding.
            view = self._log.record(physical_offsets[0], total)
            if view is None:
                return 0
            self.buffers.append(view)
        elif not self._take_runs(entries[: count * QUEUE_ENTRY_SIZE]):
            return 0
        self.message_count, self.total, self.examined = count, total, count
        self._last_examined = last
        return count

    def _take_runs(self, entries: bytes) -> bool:
        columns = np.frombuffer(entries, ENTRY_TYPE)
        starts, sizes = columns["address"].astype(np.int64), columns["size"].astype(np.int64)
        ends = starts + sizes
        first, last = int(starts[0]), int(ends[-1])
        apart = np.flatnonzero(starts[1:] != ends[:-1]) + 1
        span = self._log.record(first, last - first) if last > first else None
        if span is not None and (starts.min() < first or ends.max() > last):
            span = None  # The addresses do not rise: some are not between first and last.
        if span is not None and len(apart) >= GATHER_LEAST and (sizes == sizes[0]).all():
            self.buffers.append(_gathered(span, starts - first, int(sizes[0])))
            return True
        run_starts = starts[np.concatenate(([0], apart))].tolist()
        run_ends = ends[np.concatenate((apart - 1, [-1]))].tolist()
        for start, end in zip(run_starts, run_ends, strict=True):
            if span is not None:
                self.buffers.append(span[start - first : end - first])
                continue
            view = self._log.record(start, end - start)
            if view is None:
                self.buffers.clear()
                return False
            self.buffers.append(view)
        return True

    def take_matching(
        self, entries: Iterable[Entry], tags_codes: frozenset[int] | None
    ) -> GetStatus:
        """Take messages entry by entry, for a filter and where messages are missing."""
        status = GetStatus.NO_MATCHED_MESSAGE
        log_min, log_end = self._log.min_offset, self._log.max_offset
        run_start = run_end = run_count = 0
        for physical_offset, size, code in entries:
            # Not the first one: a reader could never get past a message that is larger than the limits.
            if self.message_count and self._is_full(physical_offset, size):
                break
            self.examined += 1
            self._last_examined = physical_offset
            # A damaged entry may name any address: it counts as a message that was deleted, and the reader goes on.
            is_outside = physical_offset < log_min or physical_offset + size > log_end
            if is_outside or size == FILLER_SIZE or size <= 0:
                if not self.message_count:
                    status = GetStatus.MESSAGE_WAS_REMOVING
                continue
            if tags_codes is not None and code not in tags_codes:
                if not self.message_count:
                    status = GetStatus.NO_MATCHED_MESSAGE
                continue
            if physical_offset != run_end:
                self._close_run(run_start, run_end, run_count)
                run_start, run_count = physical_offset, 0
            run_end = physical_offset + size
            run_count += 1
            self.message_count += 1
            self.total += size
            status = GetStatus.FOUND
        self._close_run(run_start, run_end, run_count)
        if status is GetStatus.FOUND and not self.message_count:
            return GetStatus.MESSAGE_WAS_REMOVING
        return status

    def _close_run(self, start: int, end: int, count: int) -> None:
        if not count:
            return
        view = self._log.record(start, end - start)
        if view is None:  # The size in a damaged entry extends beyond the end of a file.
            self.message_count -= count
            self.total -= end - start
        else:
            self.buffers.append(view)

    def _is_full(self, physical_offset: int, size: int) -> bool:
        if physical_offset < self._cold_below:
            byte_limit, count_limit = self._bytes_in_disk, self.count_in_disk
        else:
            byte_limit, count_limit = self._bytes_in_memory, self.count_in_memory
        return self.total + size > byte_limit or self.message_count >= count_limit
