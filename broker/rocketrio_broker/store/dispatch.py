"""Makes queue entries from stored records, with one rule for appends, replication and recovery.

Invariant: prepared and rolled-back transaction records have no entry and do not advance the queue.
Invariant: a record whose topic cannot be a folder's name has no entry; no client could ask for it.
Invariant: entry n of a queue is the message whose record says queue offset n.
Invariant: once a topic's deletion (deletion.py) is dispatched, no queue has messages that lie before it in the log.
Answers to: CommitLog.checkMessageAndReturnSize's second half, CommitLogDispatcherBuildConsumeQueue.
Unlike Java: a gap is filled, not closed up; queue offset 0 after the queue's end means the topic was created again.
"""

import logging
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import numpy as np

from rocketrio_broker.store.consume_queue import ENTRY, ENTRY_TYPE, ConsumeQueue
from rocketrio_broker.store.consume_queue_table import ConsumeQueueTable, can_have_folder
from rocketrio_broker.store.deletion import Deletion, deletion_in
from rocketrio_broker.store.log_walk import LogRecord, LogWalk
from rocketrio_broker.store.property_columns import PropertyColumns
from rocketrio_broker.store.record_columns import LEAST_STRETCH, RecordColumns, stretches
from rocketrio_broker.waiting.watermark import Watermark
from rocketrio_protocol.names import SCHEDULE_TOPIC
from rocketrio_protocol.record.java_hash import tags_code
from rocketrio_protocol.record.properties import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_TAGS,
    decimal_value,
    property_label,
    property_value,
    stored_value,
)
from rocketrio_protocol.record.vectors import Int64s

_LOG: Final = logging.getLogger("rocketrio_broker.store")

TRANSACTION_MASK: Final = 0xC
_SCHEDULE_TOPIC_BYTES: Final = SCHEDULE_TOPIC.encode()
TAGS_LABEL: Final = property_label(PROPERTY_TAGS)
_TAGS_CACHE_SIZE: Final = 4096  # there are few tags, and they repeat in every message
_KEPT_TAGS_SIZE: Final = 256  # bytes; with longer ones anyone could fill the memory
_NO_ENTRY: Final = frozenset((0x4, 0xC))  # prepared, rolled back
_NO_ENTRY_BIT: Final = 0x4  # the bit that these two share

_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_UNKNOWN_LEVEL_DELAY_MS: Final = 1000  # as ScheduleMessageService.computeDeliverTimestamp


def has_queue_entry(sys_flag: int) -> bool:
    """Return whether consumers see a record with this flag."""
    return sys_flag & TRANSACTION_MASK not in _NO_ENTRY


class DelayLevels:
    """The delays of the levels 1, 2, ..., from the setting `message_delay_level`."""

    def __init__(self, text: str) -> None:
        """Parse `text`, a list such as `1s 5s 10s`."""
        self.delays_ms = [int(part[:-1]) * _UNIT_MS[part[-1]] for part in text.split()]

    def deliver_time_ms(self, level: int, store_time_ms: int) -> int:
        """Return when a message of this level, stored at that time, is due, in ms."""
        level = min(level, len(self.delays_ms))
        delay = self.delays_ms[level - 1] if level > 0 else _UNKNOWN_LEVEL_DELAY_MS
        return store_time_ms + delay


def entry_tags_code(
    topic: str, properties: bytes | memoryview, store_time_ms: int, levels: DelayLevels
) -> int:
    """Return the third field of a queue entry: the hash of the tags, or the due time of a delayed message."""
    if topic == SCHEDULE_TOPIC:
        level = decimal_value(property_value(properties, PROPERTY_DELAY_TIME_LEVEL))
        if level:
            return levels.deliver_time_ms(level, store_time_ms)
    return stored_tags_code(bytes(properties))


def stored_tags_code(properties: bytes) -> int:
    """Return the hash of the tags in stored properties, or 0 if they contain none."""
    tags = stored_value(properties, TAGS_LABEL)
    known = _code_of_tags if len(tags) <= _KEPT_TAGS_SIZE else _code_of_tags.__wrapped__
    return known(tags)


def tags_code_column(properties: PropertyColumns) -> Int64s:
    """Return `stored_tags_code` of many records."""
    codes = np.zeros(len(properties.offsets), np.int64)
    tags = properties.values(TAGS_LABEL)
    codes[tags.owners] = properties.hashes(tags).view(np.int32)
    return codes


@lru_cache(_TAGS_CACHE_SIZE)
def _code_of_tags(tags: bytes) -> int:
    return tags_code(tags.decode("utf-8", "replace"))


class QueueGapError(Exception):
    """A queue that had entries lacks those just before the record to add."""


class QueueDispatcher:
    """Adds records that were found in the log to their queues."""

    def __init__(self, table: ConsumeQueueTable, levels: DelayLevels) -> None:
        self.complete_queues: frozenset[tuple[str, int]] = frozenset()
        """Queues in which a gap is an error, after which recovery starts at an earlier address."""
        self.met = Watermark()
        """The number of deletions dispatched or undone; code that keeps data of topics waits for it to grow."""
        self._deletions: list[Deletion] = []
        self._table = table
        self._levels = levels
        self._queues: dict[tuple[bytes, int], ConsumeQueue] = {}
        self._queues_of = -1

    def take_deletions(self) -> list[Deletion]:
        """Return the deletions dispatched or undone since the last call, in the order in which that happened."""
        taken, self._deletions = self._deletions, []
        return taken

    def undo(self, deletions: Iterable[Deletion]) -> None:
        """Note deletions that were cut off the log; earlier ones of the same topics are dispatched again."""
        for deletion in deletions:
            self._note(deletion._replace(is_undone=True))

    def _note(self, deletion: Deletion) -> None:
        self._deletions.append(deletion)
        self.met.advance(self.met.value + 1)

    def dispatch_from(self, walk: LogWalk, max_bytes: int) -> tuple[int, int]:
        """Dispatch the next records of a walk; return the same as `dispatch`."""
        if walk.log.max_offset - walk.position < LEAST_STRETCH:
            return self.dispatch(walk.records(max_bytes))
        count = store_ms = 0
        for stretch in stretches(walk, max_bytes):
            if isinstance(stretch, RecordColumns):
                self.dispatch_columns(stretch)
                count += len(stretch)
                store_ms = int(stretch.store_ms[-1])
            else:
                some, last_ms = self.dispatch(stretch)
                count += some
                store_ms = last_ms if some else store_ms
        return count, store_ms

    def dispatch_columns(self, columns: RecordColumns) -> None:
        """Add the entries of many records, one queue after the other."""
        self._forget_removed_queues()
        # Prepared and rolled back records have no entry. A deletion is written as one, so that it is looked for there.
        has_entry = columns.sys_flags & _NO_ENTRY_BIT == 0
        rows = np.flatnonzero(has_entry)
        if len(rows) < len(columns) and any(
            deletion_in(columns.topics[row], columns.properties.stored(row)) is not None
            for row in np.flatnonzero(~has_entry).tolist()
        ):
            # Messages before and after a deletion belong to different incarnations of the topic: keep the log's order.
            self.dispatch(columns.records(range(len(columns))))
            return
        rows, bounds = columns.by_queue(rows)
        if not len(rows):
            return
        entries = np.empty(len(rows), ENTRY_TYPE)
        entries["address"] = addresses = columns.addresses[rows]
        entries["size"] = sizes = columns.sizes[rows]
        entries["code"] = tags_code_column(columns.properties)[rows]
        packed = entries.tobytes()
        offsets = columns.queue_offsets[rows]
        # Per row, the count of rows so far that do not continue the row before. Rows with equal counts have no gap
        # between them.
        breaks = np.zeros(len(rows), np.int64)
        np.cumsum(offsets[1:] - offsets[:-1] != 1, out=breaks[1:])
        starts, lasts = bounds[:-1], bounds[1:] - 1
        for start, last, row, offset, address, end, is_whole in zip(
            starts.tolist(),
            lasts.tolist(),
            rows[starts].tolist(),
            offsets[starts].tolist(),
            addresses[starts].tolist(),
            (addresses[lasts] + sizes[lasts]).tolist(),
            (breaks[starts] == breaks[lasts]).tolist(),
            strict=True,
        ):
            topic = columns.topics[row]
            queue = self._queue(topic, int(columns.queue_ids[row]))
            if queue is None:
                continue
            # Entry n must be the message with queue offset n. These four hold for nearly every stretch; any other goes
            # through `dispatch`, which fills, clears or leaves out record by record.
            if (
                is_whole
                and offset == queue.max_offset
                and address >= queue.last_physical_end
                and topic != _SCHEDULE_TOPIC_BYTES
            ):
                part = packed[ENTRY.size * start : ENTRY.size * (last + 1)]
                queue.append_many(part, last + 1 - start, end)
                self._table.grown.add(queue.key)
            else:
                self.dispatch(columns.records(rows[start : last + 1].tolist()))

    def dispatch(self, records: Iterable[LogRecord]) -> tuple[int, int]:
        """Add the entries that the queues lack; return the number of records and the last store time."""
        self._forget_removed_queues()
        levels, pack_entry = self._levels, ENTRY.pack
        count = store_ms = 0
        # Consecutive records of one queue are added together: a batch, or messages of one producer.
        run: list[bytes] = []
        queue: ConsumeQueue | None = None
        of_topic, of_queue_id, next_offset, end = b"", -1, -1, 0
        for address, size, topic, queue_id, queue_offset, sys_flag, store_ms, properties in records:
            count += 1
            if sys_flag & TRANSACTION_MASK in _NO_ENTRY:
                deletion = deletion_in(topic, properties)
                if deletion is not None:
                    # What lies before the deletion first, so that it is removed with its queue.
                    self._add(queue, run, end)
                    run, queue, next_offset = [], None, -1
                    self._end_incarnation(deletion, address)
                continue
            if queue_offset != next_offset or queue_id != of_queue_id or topic != of_topic:
                self._add(queue, run, end)
                run = []
                queue = self._queue_for(topic, queue_id, queue_offset, address)
                of_topic, of_queue_id, next_offset = topic, queue_id, queue_offset
                if queue is None:
                    next_offset = -1
                    continue
            if topic == _SCHEDULE_TOPIC_BYTES:
                code = entry_tags_code(SCHEDULE_TOPIC, properties, store_ms, levels)
            else:
                code = stored_tags_code(properties)
            run.append(pack_entry(address, size, code))
            end = address + size
            next_offset += 1
        self._add(queue, run, end)
        return count, store_ms

    def _add(self, queue: ConsumeQueue | None, run: list[bytes], end: int) -> None:
        if queue is not None and run:
            queue.append_many(b"".join(run), len(run), end)
            self._table.grown.add(queue.key)

    def _end_incarnation(self, deletion: Deletion, address: int) -> None:
        """Remove the queues of a topic that was deleted at this address of the log."""
        for queue in list(self._table.topics().get(deletion.topic, {}).values()):
            # After a restart the log is dispatched again: a queue that reaches past the deletion is a later one's.
            if queue.last_physical_end <= address:
                self._table.delete_queue(queue)
        self._forget_removed_queues()
        self._note(deletion)

    def _queue(self, topic: bytes, queue_id: int) -> ConsumeQueue | None:
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            name = topic.decode("utf-8", "replace")
            # Not an error: a peer's log may hold such a record, and replication must go on past it.
            if not can_have_folder(name, queue_id):
                _LOG.warning("record without queue topic=%.100r queue_id=%d", name, queue_id)
                return None
            queue = self._table.queue(name, queue_id)
            self._queues[topic, queue_id] = queue
        return queue

    def _forget_removed_queues(self) -> None:
        if self._queues_of != self._table.generation:
            self._queues.clear()
            self._queues_of = self._table.generation

    def _queue_for(
        self, topic: bytes, queue_id: int, queue_offset: int, physical_offset: int
    ) -> ConsumeQueue | None:
        """Return the queue, ready for this offset; None if it has the record already, or cannot exist."""
        queue = self._queue(topic, queue_id)
        # Recovery dispatches again what the queue may have: records before its end are there.
        if queue is None or physical_offset < queue.last_physical_end:
            return None
        if queue_offset != queue.max_offset and not self._align(queue, queue_offset):
            return None
        return queue

    def _align(self, queue: ConsumeQueue, queue_offset: int) -> bool:
        if queue_offset > queue.max_offset:
            if queue.key in self.complete_queues:
                raise QueueGapError(f"{queue!r} lacks entries before {queue_offset}")
            # Filled with entries of no message: closed up, each later message would have a number that is not its own.
            queue.fill_to(queue_offset)
        elif queue_offset == 0:
            # The record is later in the log than the whole queue, and counts from 0 again.
            queue.clear()
        else:
            # The offset was given twice, as a Java broker may after a change of role; the first message keeps it.
            return False
        return True
