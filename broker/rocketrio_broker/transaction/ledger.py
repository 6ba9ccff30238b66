"""Keeps in memory which half messages are decided, as the two topics in the log say.

    half queue    ... decided | decided | open | decided | open | not read yet ...
                                          ^ progress              ^ next
Half messages are read in order once they are old enough, and those that are still open are kept here. Most are decided
by then, which costs one number each. An operation counts from the moment it is stored.

Invariant: a half message is open until an operation for it, or a newer half message of the same key, is in the log.
Invariant: progress passes no open half message, and no operation for one at or after it.
Answers to: TransactionalMessageServiceImpl.check with its maps of operations.
"""

import logging
from collections import deque
from collections.abc import Iterator
from typing import Final

import attrs

from rocketrio_broker.delay.delayed_puts import HALF_QUEUE_ID, stored_message
from rocketrio_broker.store.consume_queue import FILLER_SIZE, ConsumeQueue
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.transaction.records import OPERATION_QUEUE_ID, half_offsets_of
from rocketrio_protocol.message import MessageExt
from rocketrio_protocol.names import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from rocketrio_protocol.record.properties import (
    PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET,
    decimal_value,
)

logger = logging.getLogger("rocketrio_broker.transaction")

TURN_RECORDS: Final = 256
"""Records read before other tasks get a turn: some 3 ms if each has to be parsed."""


@attrs.frozen
class OpenHalf:
    """A half message that was read and is not decided."""

    physical_offset: int
    due: float
    """When its producer may be asked, by the monotonic clock, because the wall clock may be set meanwhile."""
    topic: str
    """Where it is delivered if it is committed."""


class TransactionLedger:
    """The state of a master's half messages."""

    def __init__(self, store: MessageStore) -> None:
        self.open: dict[int, OpenHalf] = {}
        """The open half messages by queue offset, in rising order."""
        self.is_loaded = False
        self._store = store
        self._next_half = 0
        self._next_operation = 0
        # Decided half messages: those from `_next_half` on, and older originals of copies by 5.x.
        self._decided: set[int] = set()
        # (operation, the last half message it decides)
        self._operations: deque[tuple[int, int]] = deque()

    def __repr__(self) -> str:
        return f"<TransactionLedger {len(self.open)} open, next {self._next_half}>"

    def begin(self, half_offset: int, operation_offset: int) -> None:
        """Forget everything and start at this progress; the caller then calls `load`."""
        halves, operations = self._half_queue(), self._operation_queue()
        self.open.clear()
        self._decided.clear()
        self._operations.clear()
        self.is_loaded = False
        self._next_half = _within(halves, half_offset)
        self._next_operation = _within(operations, operation_offset)

    def end(self) -> None:
        """Forget everything, because another broker decides now."""
        self.begin(0, 0)

    def load(self) -> bool:
        """Read the next operations; return False if there are no more and the ledger is complete."""
        queue = self._operation_queue()
        for _ in range(TURN_RECORDS):
            if queue is None or self._next_operation >= queue.max_offset:
                self.is_loaded = True
                return False
            message = self._message(queue, self._next_operation)
            halves = [] if message is None else half_offsets_of(message)
            self._note(self._next_operation, halves)
        return True

    def decide(self, half_offset: int, operation_offset: int) -> None:
        """Record an operation that was stored. While the ledger is loading, `load` reads it with the others."""
        if self.is_loaded:
            self._note(operation_offset, [half_offset])

    def _note(self, operation_offset: int, halves: list[int]) -> None:
        self._next_operation = operation_offset + 1
        for half_offset in halves:
            was_open = self.open.pop(half_offset, None) is not None
            # Not read yet: it is decided when it is read. An older one was open, or is over.
            if not was_open and (half_offset >= self._next_half or not self.is_loaded):
                self._decided.add(half_offset)
        if halves:
            self._operations.append((operation_offset, max(halves)))

    def is_open(self, half_offset: int) -> bool:
        """Return whether the message can be decided now; True for every message while the ledger is loading."""
        if not self.is_loaded or half_offset in self.open:
            return True
        return half_offset >= self._next_half and half_offset not in self._decided

    def supersede(self, half_offset: int) -> None:
        """Remove a half message that a newer one replaces."""
        self.open.pop(half_offset, None)

    def drop(self, half_offset: int) -> None:
        """Remove a half message whose record is no longer in the log, and log that."""
        logger.error("half message is not in the log any more queue_offset=%d", half_offset)
        self.open.pop(half_offset, None)

    # ------------------------------------------------------------------------------ finding open ones

    def read_due(self, *, now_ms: int, now: float, timeout_ms: int) -> bool:
        """Read the next confirmed half messages that are old enough; return False if there are no more of them.

        `now_ms` and `now` are the same moment by the wall clock and by the monotonic clock.
        `timeout_ms` is how long after its send a message may stay undecided unless its own property says otherwise.
        For a message with a store time in the future, because the clock was ahead, this time begins now.
        """
        queue = self._half_queue()
        end = self._store.seen_queue_end(TRANS_HALF_TOPIC, HALF_QUEUE_ID)
        for _ in range(TURN_RECORDS):
            if queue is None or self._next_half >= end:
                return False
            half_offset = self._next_half
            # Each number is needed once: the half messages are read in order.
            if half_offset in self._decided:
                self._decided.remove(half_offset)
            else:
                message = self._message(queue, half_offset)
                if message is None:
                    self.drop(half_offset)
                elif now_ms - timeout_ms < message.store_time_ms <= now_ms:
                    return False
                elif not self._is_decided_by_another_name(message):
                    due = now + _wait_ms(message, now_ms, timeout_ms) / 1000
                    self.open[half_offset] = OpenHalf(
                        message.physical_offset, due, _topic_of(message)
                    )
            self._next_half += 1
        return True

    def _is_decided_by_another_name(self, message: MessageExt) -> bool:
        """Return whether its original is decided: 5.x copies half messages whose producers may not be asked yet."""
        original = decimal_value(message.property_value(PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET))
        if original is None or original not in self._decided:
            return False
        self._decided.remove(original)
        return True

    def due(self, now: float) -> list[int]:
        """Return the open half messages whose producers may be asked."""
        return [offset for offset, half in self.open.items() if half.due <= now]

    def far_behind(self, *, physical_offset: int, distance: int) -> Iterator[int]:
        """Yield open half messages before `physical_offset`, or `distance` half messages behind, oldest first."""
        least = self._next_half - distance
        for half_offset, half in list(self.open.items()):
            if half.physical_offset >= physical_offset and half_offset >= least:
                return
            yield half_offset

    def undecided_topics(self) -> Iterator[str | None]:
        """Yield the topic of each undecided half message, also of those that are too young to be read.

        Yields None now and then while it passes decided ones, so that the caller can give other tasks a turn.
        """
        known, queue = list(self.open.values()), self._half_queue()
        end = self._store.seen_queue_end(TRANS_HALF_TOPIC, HALF_QUEUE_ID)
        unread = range(self._next_half, end)
        for half in known:
            yield half.topic
        for half_offset in unread:
            if half_offset in self._decided:
                if half_offset % TURN_RECORDS == 0:
                    yield None
                continue
            message = None if queue is None else self._message(queue, half_offset)
            yield None if message is None else _topic_of(message)

    def progress(self) -> tuple[int, int]:
        """Return the queue offsets of both topics from which a new ledger must read everything."""
        # Not past the oldest open one: a new ledger begins here, and would never ask about what lies before.
        half_offset = next(iter(self.open), self._next_half)
        operations = self._operations
        # An operation is needed as long as one of its half messages is read again.
        while operations and operations[0][1] < half_offset:
            operations.popleft()
        return half_offset, operations[0][0] if operations else self._next_operation

    # --------------------------------------------------------------------------------------- reading

    def message(self, half_offset: int) -> MessageExt | None:
        """Return an open half message, or None if its record is gone."""
        return stored_message(self._store, self.open[half_offset].physical_offset)

    def _message(self, queue: ConsumeQueue, offset: int) -> MessageExt | None:
        entry = queue.entry(offset)
        if entry is None or entry[1] == FILLER_SIZE:
            return None
        return stored_message(self._store, entry[0])

    def _half_queue(self) -> ConsumeQueue | None:
        return self._store.queues().get(TRANS_HALF_TOPIC, {}).get(HALF_QUEUE_ID)

    def _operation_queue(self) -> ConsumeQueue | None:
        return self._store.queues().get(TRANS_OP_HALF_TOPIC, {}).get(OPERATION_QUEUE_ID)


def _within(queue: ConsumeQueue | None, offset: int) -> int:
    return 0 if queue is None else max(min(offset, queue.max_offset), queue.min_offset)


def _topic_of(message: MessageExt) -> str:
    return message.property_value(PROPERTY_REAL_TOPIC) or ""


def _wait_ms(message: MessageExt, now_ms: int, timeout_ms: int) -> int:
    """Return how many ms to wait, from the send by the producer's clock unless it is ahead; copies are stored later."""
    own = decimal_value(message.property_value(PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS))
    if own is not None:
        timeout_ms = 1000 * own
    sent_ms = min(message.born_time_ms, message.store_time_ms, now_ms)
    return max(0, sent_ms + timeout_ms - now_ms)
