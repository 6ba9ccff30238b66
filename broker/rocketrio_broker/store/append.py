"""The hot path of a put: checks, address, record, queue entry, positions. Plain synchronous code.

Invariant: a refused put changes nothing; an accepted one is in the log and, if consumers see it, in its queue.
Invariant: the messages of a batch lie next to each other in one file with consecutive queue offsets and one store time.
Answers to: DefaultMessageStore.putMessage(s), CommitLog.asyncPutMessage(s), DefaultAppendMessageCallback.
"""

import logging
from math import inf
from typing import Final

import attrs

from rocketrio_broker.store.commit_log import CommitLog
from rocketrio_broker.store.config import StoreConfig
from rocketrio_broker.store.consume_queue_table import ConsumeQueueTable, can_have_folder
from rocketrio_broker.store.dispatch import (
    TRANSACTION_MASK,
    DelayLevels,
    entry_tags_code,
    has_queue_entry,
    stored_tags_code,
)
from rocketrio_broker.store.put_batch import Batch, MixedEntries, UniformEntries, batch_of
from rocketrio_broker.store.put_message import UNKNOWN_TAGS, AppendResult, PutMessage, PutStatus
from rocketrio_broker.store.refusals import Refusals
from rocketrio_broker.waiting.watermark import LogPosition
from rocketrio_protocol.names import SCHEDULE_TOPIC
from rocketrio_protocol.record.encode import record_shape
from rocketrio_protocol.record.java_hash import tags_code
from rocketrio_protocol.record.layout import PADDING_HEAD_SIZE
from rocketrio_protocol.record.properties import MAX_PROPERTIES_SIZE
from rocketrio_protocol.remoting.ports import WallClock

NO_ROOM_LOG_INTERVAL: Final = 60.0
"""Seconds between log lines about a disk that stays full."""

_LOG: Final = logging.getLogger("rocketrio_broker.store")
_PUT_OK: Final = PutStatus.PUT_OK  # reading a member of an enumeration costs as much as a call


@attrs.define
class PutCounters:
    """Counts of what was put since the start."""

    messages: int = 0
    bytes: int = 0
    failures: int = 0


@attrs.define
class LogRoom:
    """Whether the disk has room for the log.

    Each refused message is answered with an error. The broker's own log gets one line per `NO_ROOM_LOG_INTERVAL`
    seconds: thousands may be refused each second, and small messages may still fit in between.
    """

    refused: int = 0
    """Messages and batches refused since the last one that was stored."""
    _error: str = ""
    _logged_ms: float = -inf
    _is_logged: bool = False

    @property
    def problem(self) -> str:
        """The problem and its remedy for an operator; empty while there is room."""
        if not self.refused:
            return ""
        return (
            f"the last {self.refused:,} sends found no room in the log ({self._error}): make room on the disk,"
            " or lower file_reserved_time"
        )

    def is_gone(self, error: OSError, now_ms: int) -> None:
        """Record that a put was refused because the disk is full."""
        self.refused += 1
        self._error = str(error)
        if not 0 <= now_ms - self._logged_ms < NO_ROOM_LOG_INTERVAL * 1000:
            self._logged_ms, self._is_logged = now_ms, True
            _LOG.error("no room refused=%d error=%s", self.refused, error)

    def is_there(self) -> None:
        """Record that a put was stored."""
        if self._is_logged:
            _LOG.warning("room again refused=%d", self.refused)
        self.refused, self._is_logged = 0, False


class Appender:
    """Stores messages in the log and in their queues."""

    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        table: ConsumeQueueTable,
        dispatched: LogPosition,
        levels: DelayLevels,
        refusals: Refusals,
        *,
        wall_clock: WallClock,
    ) -> None:
        self.counters = PutCounters()
        self.room = LogRoom()
        self._log = log
        self._table = table
        self._dispatched = dispatched
        self._levels = levels
        self._refusals = refusals
        self._now_ms = wall_clock.now_ms
        self._max_message_size = config.max_message_size
        self._max_topic_length = config.max_topic_length
        self._largest_record = config.mapped_file_size_commit_log - PADDING_HEAD_SIZE

    def append(self, put: PutMessage) -> AppendResult:
        """Store one message; return its place, or a result that says why it was refused.

        Every send runs this, so it does by itself what `append_batch` calls functions for.
        """
        topic, body, properties = put.topic.encode(), put.body, put.properties
        born_host, store_host = put.born_host, put.store_host
        new_size = 0 if put.is_accepted else len(body)
        refused = self._refused(len(topic), new_size, len(properties))
        if refused is not None:
            return refused
        key = (put.topic, put.queue_id)
        queue = self._table.by_key.get(key)
        if queue is None and not can_have_folder(*key):
            return self._no_queue(*key)
        shape = record_shape(topic, len(born_host), len(store_host))
        size = shape.overhead + len(body) + len(properties)
        if size > self._largest_record:
            return self._too_large(len(body))
        log, table = self._log, self._table
        try:
            # Every check comes before this, the first step that changes something: it may end the file with padding.
            physical_offset = log.claim(size)
        except OSError as error:
            return self._no_space(error)
        sys_flag = put.sys_flag
        visible = sys_flag & TRANSACTION_MASK == 0 or has_queue_entry(sys_flag)
        # Only now: a refused message must leave no queue behind.
        queue = queue or table.queue(*key)
        queue_offset = queue.max_offset if visible else 0
        store_ms, last_ms = self._now_ms(), self._dispatched.store_time_ms
        # The clock may be set back; a search by time needs store times that do not fall along a queue.
        if store_ms < last_ms:
            store_ms = last_ms
        record = shape.record(
            put.queue_id,
            put.flag,
            queue_offset,
            physical_offset,
            sys_flag,
            put.born_time_ms,
            born_host,
            store_ms,
            store_host,
            put.reconsume_times,
            put.prepared_transaction_offset,
            body,
            properties,
        )
        end = log.append(record)
        if visible:
            if put.topic == SCHEDULE_TOPIC:
                code = entry_tags_code(put.topic, properties, store_ms, self._levels)
            elif put.tags is UNKNOWN_TAGS:
                code = stored_tags_code(properties)
            else:
                code = tags_code(put.tags)
            # Before `dispatched` moves: a pull that waits for it must find the message.
            queue.append(physical_offset, size, code)
            table.grown.add(key)
        dispatched, counters = self._dispatched, self.counters
        dispatched.store_time_ms = store_ms
        dispatched.advance(end)
        counters.messages += 1
        counters.bytes += size
        if self.room.refused:
            self.room.is_there()
        return AppendResult(_PUT_OK, physical_offset, size, queue_offset, store_ms, 1, end)

    def append_batch(self, put: PutMessage, entries: UniformEntries | MixedEntries) -> AppendResult:
        """Store the entries of a batch as one unit; add `put.properties` to the properties of each entry."""
        topic, batch = put.topic.encode(), batch_of(entries, put.properties)
        refused = self._refused(len(topic), batch.body_size, batch.properties_size)
        key = (put.topic, put.queue_id)
        queue = self._table.by_key.get(key)
        if refused is None and queue is None and not can_have_folder(*key):
            refused = self._no_queue(*key)
        if refused is None:
            refused = self._refused_as_batch(put, batch)
        if refused is not None:
            return refused
        shape = record_shape(topic, len(put.born_host), len(put.store_host))
        size = batch.size(shape)
        if size > self._largest_record:
            return self._too_large(batch.body_size)
        log, table = self._log, self._table
        try:
            # The whole batch at once: claimed one by one, its records could be divided between two files.
            start = log.claim(size)
        except OSError as error:
            return self._no_space(error)
        queue = queue or table.queue(*key)
        first, count = queue.max_offset, batch.count
        store_ms = self._store_ms()
        records, addresses, queue_entries = batch.records(shape, put, first, start, store_ms)
        end = log.append(records)
        queue.append_many(queue_entries, count, end)
        table.grown.add(key)
        self._mark(end, store_ms, count, size)
        return AppendResult(_PUT_OK, start, size, first, store_ms, count, end, addresses)

    def _store_ms(self) -> int:
        """Return the current time, or the last store time if that is later: store times in a queue must not fall."""
        now_ms, last_ms = self._now_ms(), self._dispatched.store_time_ms
        return now_ms if now_ms > last_ms else last_ms

    def _mark(self, end: int, store_ms: int, count: int, size: int) -> None:
        self._dispatched.store_time_ms = store_ms
        self._dispatched.advance(end)
        counters = self.counters
        counters.messages += count
        counters.bytes += size
        if self.room.refused:
            self.room.is_there()

    # --- refusing ----------------------------------------------------------------------------

    def _refused(
        self, topic_size: int, body_size: int, properties_size: int
    ) -> AppendResult | None:
        if self._refusals.reason:
            return self._refuse(PutStatus.SERVICE_NOT_AVAILABLE, self._refusals.reason)
        return self._illegal(topic_size, body_size, properties_size)

    def never_takes(self, put: PutMessage) -> AppendResult | None:
        """Return the refusal of a message that can never be stored, however it is retried; None if it can be."""
        topic, body_size, properties_size = put.topic.encode(), len(put.body), len(put.properties)
        new_size = 0 if put.is_accepted else body_size
        refused = self._illegal(len(topic), new_size, properties_size)
        if refused is not None:
            return refused
        if not can_have_folder(put.topic, put.queue_id):
            return self._no_queue(put.topic, put.queue_id)
        shape = record_shape(topic, len(put.born_host), len(put.store_host))
        if shape.overhead + body_size + properties_size > self._largest_record:
            return self._too_large(body_size)
        return None

    def _illegal(
        self, topic_size: int, body_size: int, properties_size: int
    ) -> AppendResult | None:
        if not 0 < topic_size <= self._max_topic_length:
            return self._refuse(
                PutStatus.MESSAGE_ILLEGAL,
                f"a topic has 1 to {self._max_topic_length} bytes, not {topic_size}",
            )
        if body_size > self._max_message_size:
            return self._too_large(body_size)
        if properties_size > MAX_PROPERTIES_SIZE:
            return self._refuse(
                PutStatus.PROPERTIES_SIZE_EXCEEDED,
                f"{properties_size} bytes of properties; {MAX_PROPERTIES_SIZE} is the limit",
            )
        return None

    def _no_queue(self, topic: str, queue_id: int) -> AppendResult:
        why = f"there can be no queue {queue_id} of {topic!r}"
        return self._refuse(PutStatus.MESSAGE_ILLEGAL, why)

    def _too_large(self, body_size: int) -> AppendResult:
        limit = min(self._max_message_size, self._largest_record)
        return self._refuse(
            PutStatus.MESSAGE_ILLEGAL, f"{body_size} bytes of body; {limit} is the limit"
        )

    def _refused_as_batch(self, put: PutMessage, batch: Batch) -> AppendResult | None:
        why = ""
        if not batch.count:
            why = "an empty batch"
        elif put.sys_flag & TRANSACTION_MASK:
            why = "a batch cannot be part of a transaction"
        elif batch.is_delayed:
            why = "a batch cannot be delayed"
        return self._refuse(PutStatus.MESSAGE_ILLEGAL, why) if why else None

    def _no_space(self, error: OSError) -> AppendResult:
        self.room.is_gone(error, self._now_ms())
        return self._refuse(
            PutStatus.CREATE_MAPPED_FILE_FAILED,
            f"no room in the log: {OSError(error.errno, error.strerror)}",
        )

    def _refuse(self, status: PutStatus, why: str) -> AppendResult:
        self.counters.failures += 1
        return AppendResult(status, remark=why)
