"""Read-only queries about a store's queues, its times and single messages.

Invariant: a message is what an entry of its queue points to, whatever bytes are at a requested address.
Invariant: answers contain nothing beyond the read gate, unless unconfirmed messages are requested too.
Answers to: DefaultMessageStore's getMinOffsetInQueue, getMessageStoreTimeStamp, lookMessageByOffset, queryMessage.
"""

from collections.abc import Iterable, Iterator, Mapping

from rocketrio_broker.store.commit_log import CommitLog
from rocketrio_broker.store.config import StoreConfig
from rocketrio_broker.store.consume_queue import ENTRY, ConsumeQueue
from rocketrio_broker.store.consume_queue_table import ConsumeQueueTable
from rocketrio_broker.store.key_index import KeyIndex
from rocketrio_broker.store.query import Boundary, QueryResult, offset_by_time, query_message
from rocketrio_broker.store.read_gate import EVERYTHING, ReadGate
from rocketrio_broker.store.record_filter import Entry, PropertiesFilter, judged
from rocketrio_protocol.record.decode import RecordStatus, scan_record


class StoreLookups:
    """The read-only queries of a message store; `MessageStore` sets the attributes."""

    config: StoreConfig
    commit_log: CommitLog
    queue_table: ConsumeQueueTable
    key_index: KeyIndex
    read_gate: ReadGate

    @property
    def min_physical_offset(self) -> int:
        return self.commit_log.min_offset

    @property
    def max_physical_offset(self) -> int:
        return self.commit_log.max_offset

    def queues(self) -> Mapping[str, Mapping[int, ConsumeQueue]]:
        """Return the queues of each topic that has messages, by queue id."""
        return self.queue_table.topics()

    def queue_bounds(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """Return (first, next) queue offset that readers see; None for an unknown queue."""
        queue = self.queue_table.by_key.get((topic, queue_id))
        return None if queue is None else (queue.min_offset, self._seen_end(queue))

    def seen_queue_end(self, topic: str, queue_id: int) -> int:
        """Return the queue offset after the last one that readers see; 0 for an unknown queue."""
        queue = self.queue_table.by_key.get((topic, queue_id))
        return 0 if queue is None else self._seen_end(queue)

    def _seen_end(self, queue: ConsumeQueue) -> int:
        return queue.first_ending_beyond(self.read_gate.end.value)

    def queue_offset_at(self, topic: str, queue_id: int, physical_offset: int) -> int:
        """Return the queue offset of the first message at or after an address, or the next one; 0 without a queue."""
        queue = self.queue_table.by_key.get((topic, queue_id))
        return 0 if queue is None else queue.first_at_or_after(physical_offset)

    def queue_entries(self, topic: str, queue_id: int, offset: int, count: int) -> list[Entry]:
        """Return at most `count` entries of a queue; fewer at its end and where one of its files ends."""
        queue = self.queue_table.by_key.get((topic, queue_id))
        if queue is None:
            return []
        count = min(count, self._seen_end(queue) - offset)
        return list(ENTRY.iter_unpack(queue.entries(offset, count)))

    def judged(self, entries: Iterable[Entry], matches: PropertiesFilter) -> Iterator[Entry]:
        """Yield the entries with the verdict of `matches` on their records in place of the tags code."""
        return judged(self.commit_log, entries, matches)

    def store_time_at(self, topic: str, queue_id: int, offset: int) -> int | None:
        """Return when the message at a queue offset was stored, in ms; None if it is not there."""
        queue = self.queue_table.by_key.get((topic, queue_id))
        if queue is None or not queue.min_offset <= offset < self._seen_end(queue):
            return None
        entry = queue.entry(offset)
        return None if entry is None else self.commit_log.store_timestamp_at(entry[0])

    def earliest_store_time(self, topic: str, queue_id: int) -> int | None:
        """Return when the oldest message of a queue was stored, in ms; None if it is not there."""
        bounds = self.queue_bounds(topic, queue_id)
        return None if bounds is None else self.store_time_at(topic, queue_id, bounds[0])

    def earliest_message_time(self) -> int | None:
        """Return when the oldest message of the log was stored, in ms; None if it is not there."""
        return self.commit_log.store_timestamp_at(self.min_physical_offset)

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary = "4.x"
    ) -> int:
        """Return the queue offset of the message stored at a time or next to it; 0 for an unknown queue."""
        queue = self.queue_table.by_key.get((topic, queue_id))
        if queue is None:
            return 0
        end = self._seen_end(queue)
        return offset_by_time(self.commit_log, queue, end, timestamp_ms, boundary)

    def message_at(self, physical_offset: int, *, unconfirmed: bool = False) -> memoryview | None:
        """Return the stored message at an address of the log, or None if its queue has no message there.

        The caller's address may be wrong: bytes inside a message's body can look like another message.
        """
        record = self.commit_log.record_at(physical_offset)
        if record is None or physical_offset + len(record) > self._end(unconfirmed):
            return None
        header = scan_record(record, 0, len(record), check_crc=False)
        queue = self.queue_table.by_key.get((header.topic, header.queue_id))
        if header.status is not RecordStatus.RECORD or queue is None:
            return None
        entry = queue.entry(header.queue_offset)
        is_entered = entry is not None and entry[:2] == (physical_offset, len(record))
        return record if is_entered else None

    def query_message(
        self,
        topic: str,
        key: str,
        max_num: int,
        begin_ms: int,
        end_ms: int,
        *,
        unconfirmed: bool = False,
    ) -> QueryResult:
        """Find the newest messages with this key, stored within these times."""
        return query_message(
            self.commit_log,
            self.key_index,
            topic,
            key,
            min(max_num, self.config.max_msgs_num_batch),
            begin_ms,
            end_ms,
            end=self._end(unconfirmed),
        )

    def _end(self, unconfirmed: bool) -> int:
        return EVERYTHING if unconfirmed else self.read_gate.end.value
