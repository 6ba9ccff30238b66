"""The hot path of a put: checks, address, record, queue entry, marks. Plain synchronous code.

Invariant: a refused put changes nothing; an accepted one is in the log and, if consumers see it, in its queue.
Invariant: the messages of a batch lie next to each other in one file with consecutive queue offsets and one store time.
Answers to: DefaultMessageStore.putMessage(s), CommitLog.asyncPutMessage(s), DefaultAppendMessageCallback.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import attrs

from rocketrio_broker.store.commit_log import CommitLog
from rocketrio_broker.store.config import StoreConfig
from rocketrio_broker.store.consume_queue import ENTRY
from rocketrio_broker.store.consume_queue_table import ConsumeQueueTable
from rocketrio_broker.store.dispatch import (
    TRANSACTION_MASK,
    DelayLevels,
    entry_tags_code,
    has_queue_entry,
    stored_tags_code,
)
from rocketrio_broker.store.log_position import LogPosition
from rocketrio_broker.store.put_message import UNKNOWN_TAGS, AppendResult, PutMessage, PutStatus
from rocketrio_protocol.message_codec import (
    PADDING_HEAD_SIZE,
    encode_record,
    encode_records,
    record_size,
)
from rocketrio_protocol.properties import MAX_PROPERTIES_SIZE, stored_value, tags_code
from rocketrio_protocol.property_names import PROPERTY_DELAY_TIME_LEVEL
from rocketrio_protocol.remoting.ports import WallClock
from rocketrio_protocol.topic_names import SCHEDULE_TOPIC

_SEPARATOR: Final = 2  # the byte between properties
_DELAY: Final = f"{PROPERTY_DELAY_TIME_LEVEL}\x01".encode()


@attrs.define
class PutCounters:
    """What was put since the start."""

    messages: int = 0
    bytes: int = 0
    failures: int = 0


class Appender:
    """Stores messages into the log and their queues."""

    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        table: ConsumeQueueTable,
        dispatched: LogPosition,
        levels: DelayLevels,
        *,
        wall_clock: WallClock,
    ) -> None:
        self.is_slave = False
        self.refusal = ""
        self.disk_refusal = ""
        self.counters = PutCounters()
        self._log = log
        self._table = table
        self._dispatched = dispatched
        self._levels = levels
        self._now_ms = wall_clock.now_ms
        self._max_message_size = config.max_message_size
        self._max_topic_length = config.max_topic_length
        self._largest_record = config.mapped_file_size_commit_log - PADDING_HEAD_SIZE

    def append(self, put: PutMessage) -> AppendResult:
        """Store one message."""
        topic, body, properties = put.topic.encode(), put.body, put.properties
        size = record_size(
            len(body), len(topic), len(properties), len(put.born_host), len(put.store_host)
        )
        refused = self._refused(len(topic), len(body), len(properties), size)
        if refused is not None:
            return refused
        log = self._log
        try:
            physical_offset = log.claim(size)
        except OSError as error:
            return self._no_space(error)
        key = (put.topic, put.queue_id)
        visible = has_queue_entry(put.sys_flag)
        queue = self._table.by_key.get(key) or self._table.queue(*key)
        queue_offset = queue.max_offset if visible else 0
        # Never before the last one: a clock set back must not make times fall along a queue.
        store_ms = max(self._now_ms(), self._dispatched.store_timestamp_ms)
        record = encode_record(
            queue_id=put.queue_id,
            flag=put.flag,
            queue_offset=queue_offset,
            physical_offset=physical_offset,
            sys_flag=put.sys_flag,
            born_timestamp_ms=put.born_timestamp_ms,
            born_host=put.born_host,
            store_timestamp_ms=store_ms,
            store_host=put.store_host,
            reconsume_times=put.reconsume_times,
            prepared_transaction_offset=put.prepared_transaction_offset,
            body=body,
            topic=topic,
            properties=properties,
        )
        end = log.append(record)
        if visible:
            if put.tags is UNKNOWN_TAGS or put.topic == SCHEDULE_TOPIC:
                code = entry_tags_code(put.topic, properties, store_ms, self._levels)
            else:
                code = tags_code(put.tags)
            queue.append(physical_offset, size, code)
            self._table.grown.add(key)
        self._mark(end, store_ms, 1, size)
        return AppendResult(PutStatus.PUT_OK, physical_offset, size, queue_offset, store_ms, 1, end)

    def append_batch(
        self, put: PutMessage, entries: Sequence[tuple[int, bytes, bytes]]
    ) -> AppendResult:
        """Store (flag, body, properties) entries as one unit; `put.properties` is added to each."""
        topic = put.topic.encode()
        entries = _with_common_properties(entries, put.properties)
        overhead = record_size(0, len(topic), 0, len(put.born_host), len(put.store_host))
        sizes = [overhead + len(body) + len(properties) for _, body, properties in entries]
        total = sum(sizes)
        refused = self._refused(
            len(topic),
            sum([len(body) for _, body, _ in entries]),
            max([len(properties) for _, _, properties in entries], default=0),
            total,
        )
        if refused is None:
            refused = self._refused_as_batch(put, entries)
        if refused is not None:
            return refused
        log = self._log
        try:
            start = log.claim(total)
        except OSError as error:
            return self._no_space(error)
        key = (put.topic, put.queue_id)
        queue = self._table.by_key.get(key) or self._table.queue(*key)
        first = queue.max_offset
        store_ms = max(self._now_ms(), self._dispatched.store_timestamp_ms)
        records = encode_records(
            entries,
            queue_id=put.queue_id,
            queue_offset=first,
            physical_offset=start,
            sys_flag=put.sys_flag,
            born_timestamp_ms=put.born_timestamp_ms,
            born_host=put.born_host,
            store_timestamp_ms=store_ms,
            store_host=put.store_host,
            reconsume_times=put.reconsume_times,
            prepared_transaction_offset=put.prepared_transaction_offset,
            topic=topic,
        )
        end = log.append(records)
        offsets = list(accumulate(sizes[:-1], initial=start))
        codes = [stored_tags_code(properties) for _, _, properties in entries]
        queue.append_many(b"".join(map(ENTRY.pack, offsets, sizes, codes)), len(entries), end)
        self._table.grown.add(key)
        self._mark(end, store_ms, len(entries), total)
        return AppendResult(
            PutStatus.PUT_OK, start, total, first, store_ms, len(entries), end, offsets
        )

    def _mark(self, end: int, store_ms: int, count: int, size: int) -> None:
        self._dispatched.store_timestamp_ms = store_ms
        self._dispatched.advance(end)
        counters = self.counters
        counters.messages += count
        counters.bytes += size

    # --- refusing ----------------------------------------------------------------------------

    def _refused(
        self, topic_size: int, body_size: int, properties_size: int, size: int
    ) -> AppendResult | None:
        if self.is_slave or self.refusal or self.disk_refusal:
            why = self.refusal or self.disk_refusal or "this broker is a slave"
            return self._refuse(PutStatus.SERVICE_NOT_AVAILABLE, why)
        if not 0 < topic_size <= self._max_topic_length:
            return self._refuse(
                PutStatus.MESSAGE_ILLEGAL,
                f"a topic has 1 to {self._max_topic_length} bytes, not {topic_size}",
            )
        if body_size > self._max_message_size or size > self._largest_record:
            limit = min(self._max_message_size, self._largest_record)
            return self._refuse(
                PutStatus.MESSAGE_ILLEGAL, f"{body_size} bytes of body; {limit} is the limit"
            )
        if properties_size > MAX_PROPERTIES_SIZE:
            return self._refuse(
                PutStatus.PROPERTIES_SIZE_EXCEEDED,
                f"{properties_size} bytes of properties; {MAX_PROPERTIES_SIZE} is the limit",
            )
        return None

    def _refused_as_batch(
        self, put: PutMessage, entries: Sequence[tuple[int, bytes, bytes]]
    ) -> AppendResult | None:
        why = ""
        if not entries:
            why = "an empty batch"
        elif put.sys_flag & TRANSACTION_MASK:
            why = "a batch cannot be part of a transaction"
        elif any(map(_is_delayed, [properties for _, _, properties in entries])):
            why = "a batch cannot be delayed"
        return self._refuse(PutStatus.MESSAGE_ILLEGAL, why) if why else None

    def _no_space(self, error: OSError) -> AppendResult:
        return self._refuse(PutStatus.CREATE_MAPPED_FILE_FAILED, f"no room in the log: {error}")

    def _refuse(self, status: PutStatus, why: str) -> AppendResult:
        self.counters.failures += 1
        return AppendResult(status, remark=why)


def _with_common_properties(
    entries: Sequence[tuple[int, bytes, bytes]], common: bytes
) -> Sequence[tuple[int, bytes, bytes]]:
    if not common:
        return entries
    return [
        (flag, body, own + common if not own or own[-1] == _SEPARATOR else own + b"\x02" + common)
        for flag, body, own in entries
    ]


def _is_delayed(properties: bytes) -> bool:
    level = stored_value(properties, _DELAY)
    return level.isdigit() and int(level) > 0
