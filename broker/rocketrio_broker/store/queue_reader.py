"""Reads from a queue: checks the offset against the queue's bounds, then scans the entries.

The order of the checks and the next offset of each: RocketMQ reference, section 8.1.

Invariant: no message is returned that ends beyond the read gate; a reader between the gate and the end of its queue
keeps its offset, as it would at the end.
Answers to: DefaultMessageStore.getMessage, nextOffsetCorrection.
Unlike Java: an offset beyond the end is never answered with 0.
"""

from rocketrio_broker.store.commit_log import CommitLog
from rocketrio_broker.store.config import StoreConfig
from rocketrio_broker.store.consume_queue_table import ConsumeQueueTable
from rocketrio_broker.store.read import GetResult, GetStatus, get_message
from rocketrio_broker.store.read_gate import ReadGate
from rocketrio_broker.store.record_filter import PropertiesFilter
from rocketrio_broker.store.statistics import StoreStatisticsService


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
        tags_codes: frozenset[int] | None,
        max_bytes: int | None,
        limited_by_bytes: bool,
        matches: PropertiesFilter | None = None,
    ) -> GetResult:
        """Read messages from `offset` on whose tags code is in `tags_codes`, or that `matches` selects."""
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
        if high <= offset <= end:
            return self._outside(GetStatus.OFFSET_OVERFLOW_ONE, offset, offset, low, high)
        if offset > high:
            return self._outside(GetStatus.OFFSET_OVERFLOW_BADLY, offset, high, low, high)
        result = get_message(
            self._log,
            queue,
            offset,
            max_messages,
            end=high,
            config=self._config,
            memory_size=self._memory_size,
            tags_codes=tags_codes,
            matches=matches,
            max_bytes=max_bytes,
            limited_by_bytes=limited_by_bytes,
        )
        if result.status is GetStatus.OFFSET_FOUND_NULL and self._keeps_offsets:
            result.next_begin_offset = offset
        self._statistics.count_get(result.message_count, result.body_size)
        return result

    @property
    def _keeps_offsets(self) -> bool:
        """Whether answers keep the reader's offset: a slave that lags behind must not move its readers."""
        return self.is_slave and not self._config.offset_check_in_slave

    def _outside(
        self, status: GetStatus, offset: int, next_offset: int, low: int, high: int
    ) -> GetResult:
        self._statistics.count_get(0, 0)
        return GetResult(status, offset if self._keeps_offsets else next_offset, low, high)
