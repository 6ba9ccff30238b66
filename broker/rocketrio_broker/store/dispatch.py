"""From a stored record to its queue entry: the one rule for appends, replication and recovery.

Invariant: prepared and rolled-back transaction records have no entry and do not advance the queue.
Invariant: entry n of a queue is the message whose record says queue offset n.
Answers to: CommitLog.checkMessageAndReturnSize's second half, CommitLogDispatcherBuildConsumeQueue.
Unlike Java: a gap is filled, not closed up; queue offset 0 past the queue's end means the topic was made anew.
"""

from typing import Final

from rocketrio_broker.store.consume_queue import ConsumeQueue
from rocketrio_broker.store.consume_queue_table import ConsumeQueueTable
from rocketrio_protocol.message_codec import RecordHeader
from rocketrio_protocol.properties import property_value, tags_code
from rocketrio_protocol.property_names import PROPERTY_DELAY_TIME_LEVEL, PROPERTY_TAGS

SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"

TRANSACTION_MASK: Final = 0xC
_NO_ENTRY: Final = frozenset((0x4, 0xC))  # prepared, rolled back

_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_UNKNOWN_LEVEL_DELAY_MS: Final = 1000  # as ScheduleMessageService.computeDeliverTimestamp


def has_queue_entry(sys_flag: int) -> bool:
    """Whether a record with this flag is one that consumers see."""
    return sys_flag & TRANSACTION_MASK not in _NO_ENTRY


class DelayLevels:
    """The delays of the levels 1, 2, ..."""

    def __init__(self, text: str) -> None:
        """`text` is a list such as `1s 5s 10s`."""
        self.delays_ms = [int(part[:-1]) * _UNIT_MS[part[-1]] for part in text.split()]

    def deliver_timestamp_ms(self, level: int, store_timestamp_ms: int) -> int:
        """When a message of this level, stored at that time, is due."""
        level = min(level, len(self.delays_ms))
        delay = self.delays_ms[level - 1] if level > 0 else _UNKNOWN_LEVEL_DELAY_MS
        return store_timestamp_ms + delay


def entry_tags_code(
    topic: str, properties: bytes | memoryview, store_timestamp_ms: int, levels: DelayLevels
) -> int:
    """What the third field of the queue entry holds: the hash of the tags, or the time a delayed message is due."""
    if topic == SCHEDULE_TOPIC:
        level = property_value(properties, PROPERTY_DELAY_TIME_LEVEL)
        if level is not None and level.isdigit() and int(level) > 0:
            return levels.deliver_timestamp_ms(int(level), store_timestamp_ms)
    return tags_code(property_value(properties, PROPERTY_TAGS))


class QueueDispatcher:
    """Puts records that were found in the log into their queues."""

    def __init__(self, table: ConsumeQueueTable, levels: DelayLevels) -> None:
        self._table = table
        self._levels = levels

    def dispatch(self, record: RecordHeader, physical_offset: int) -> None:
        """Add the entry of one record, unless its queue has it already."""
        if record.sys_flag & TRANSACTION_MASK in _NO_ENTRY:
            return
        table = self._table
        key = (record.topic, record.queue_id)
        queue = table.by_key.get(key) or table.queue(*key)
        if physical_offset < queue.last_physical_end:
            return
        if record.queue_offset != queue.max_offset and not self._line_up(
            queue, record.queue_offset
        ):
            return
        code = entry_tags_code(
            record.topic, record.properties, record.store_timestamp_ms, self._levels
        )
        queue.append(physical_offset, record.size, code)
        table.grown.add(key)

    @staticmethod
    def _line_up(queue: ConsumeQueue, queue_offset: int) -> bool:
        if queue_offset > queue.max_offset:
            queue.fill_to(queue_offset)
        elif queue_offset == 0:
            # Later in the log than the whole queue, and counted from 0 again.
            queue.clear()
        else:
            # Given twice, as a Java broker may after a change of role; the first holder keeps it.
            return False
        return True
