"""Decides half messages: delivers, drops, copies or gives them up; every step is a record in the log.

    commit      the message for its topic, then an operation
    rollback    an operation
    copy        the half message again at the end of the log; of several with one key only the newest counts
    give up     the message for TRANS_CHECK_MAX_TIME_TOPIC, then an operation

Invariant: where a step writes two records the operation is the second; without it the step is done again.
Invariant: a decided message is not decided again, whichever of its copies a request names.
Answers to: TransactionalMessageServiceImpl, TransactionalMessageBridge.
Unlike Java: a second commit of a message does not deliver it a second time, a decision for a half message that was
copied meanwhile decides the copy, and a broker that restarts does not copy a message again that has a copy.
"""

import logging
from collections.abc import Callable
from typing import Final

from rocketrio_broker.delay.delayed_puts import DelayedPuts
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.store.put_message import AppendResult, PutMessage, PutStatus
from rocketrio_broker.tables.config_file import ConfigFileError
from rocketrio_broker.tables.topics import TopicConfigManager
from rocketrio_broker.transaction.ledger import TransactionLedger
from rocketrio_broker.transaction.records import committed, copied, given_up, operation
from rocketrio_protocol.commands.transaction import TRANSACTION_COMMIT
from rocketrio_protocol.message import MessageExt
from rocketrio_protocol.names import SCHEDULE_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC
from rocketrio_protocol.record.layout import TRANSACTION_MASK
from rocketrio_protocol.record.properties import (
    PROPERTY_REAL_TOPIC,
    PROPERTY_UNIQUE_KEY,
    property_value,
)
from rocketrio_protocol.remoting.ports import WallClock

logger = logging.getLogger("rocketrio_broker.transaction")

COPIES_LIMIT: Final = 64
"""Records of one unique key among which to find the newest copy; producers are asked at most 15 times by default."""

COMMITS_REMEMBERED: Final = 10_000
"""Keys of the last commits, some 1 MB; they may not be in the index yet, which is built in the background."""

_END_OF_TIME_MS: Final = 2**62


class TransactionDecisions:
    """The steps by which a master decides half messages."""

    def __init__(
        self,
        store: MessageStore,
        ledger: TransactionLedger,
        *,
        delayed_puts: DelayedPuts,
        topics: TopicConfigManager,
        store_host: bytes,
        wall_clock: WallClock,
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._delayed_puts = delayed_puts
        self._topics = topics
        self._store_host = store_host
        self._wall_clock = wall_clock
        self._last_committed: dict[str, None] = {}

    def open_half(self, half: MessageExt) -> MessageExt | None:
        """Return the half message to decide if this one is named: it or its newest copy; None if both are decided."""
        if self._ledger.is_open(half.queue_offset):
            return half
        # The producer may name an original, or a copy, that a newer copy has replaced: that one is decided.
        newest = self._newest(half)
        return newest if self._ledger.is_open(newest.queue_offset) else None

    def is_superseded(self, half: MessageExt) -> bool:
        """Return whether a newer half message has its key: a copy, or one that its producer sent again."""
        return self._newest(half).queue_offset > half.queue_offset

    def _newest(self, half: MessageExt) -> MessageExt:
        found = self._with_key_of(half, TRANS_HALF_TOPIC)
        return max(found, key=lambda each: each.queue_offset, default=half)

    def was_given_up(self, half: MessageExt) -> bool:
        """Return whether the message is in TRANS_CHECK_MAX_TIME_TOPIC and was not delivered since."""
        return bool(self._with_key_of(half, TRANS_CHECK_MAX_TIME_TOPIC)) and not self._is_committed(
            half
        )

    def was_rolled_back(self, half: MessageExt) -> bool:
        """Return whether a decided message was not committed; False if that is unknown because it has no key."""
        return half.property_value(PROPERTY_UNIQUE_KEY) is not None and not self._is_committed(half)

    def _is_committed(self, half: MessageExt) -> bool:
        if half.property_value(PROPERTY_UNIQUE_KEY) in self._last_committed:
            return True
        topic = half.property_value(PROPERTY_REAL_TOPIC) or ""
        return any(
            message.sys_flag & TRANSACTION_MASK == TRANSACTION_COMMIT
            for place in (topic, SCHEDULE_TOPIC)
            for message in self._with_key_of(half, place)
        )

    def _with_key_of(self, half: MessageExt, topic: str) -> list[MessageExt]:
        key = half.property_value(PROPERTY_UNIQUE_KEY)
        if key is None:
            return []
        found = self._store.query_message(
            topic, key, COPIES_LIMIT, 0, _END_OF_TIME_MS, unconfirmed=True
        )
        return [MessageExt(bytes(record), 0, len(record)) for record in found.buffers]

    def commit(self, half: MessageExt) -> AppendResult:
        """Deliver the message, later if its delay level says so."""
        put = committed(half)
        if put is None:
            return AppendResult(PutStatus.MESSAGE_ILLEGAL, remark="it names no topic")
        return self._then_operation(half, self._deliver, put)

    def commit_given_up(self, half: MessageExt) -> AppendResult:
        """Deliver a message that was given up, because its producer has decided at last."""
        put = committed(half)
        if put is None:
            return AppendResult(PutStatus.MESSAGE_ILLEGAL, remark="it names no topic")
        return self._deliver(put)

    def _deliver(self, put: PutMessage) -> AppendResult:
        result = self._delayed_puts.put(put)
        key = property_value(put.properties, PROPERTY_UNIQUE_KEY)
        if result.status is PutStatus.PUT_OK and key is not None:
            if len(self._last_committed) >= COMMITS_REMEMBERED:
                del self._last_committed[next(iter(self._last_committed))]
            # The index is built in the background and may not have it yet: a
            # second commit would be answered as a rollback.
            self._last_committed[key] = None
        return result

    def roll_back(self, half: MessageExt) -> AppendResult:
        """Drop the message, so that no consumer sees it."""
        return self._store_operation(half)

    def copy(
        self, half: MessageExt, *, check_times: int | None = None
    ) -> tuple[PutMessage, AppendResult]:
        """Store a copy, to be decided in place of this half message; return the copy and the result."""
        put = copied(half, check_times=check_times)
        result = self._store.append(put)
        if result.status is PutStatus.PUT_OK:
            self._ledger.supersede(half.queue_offset)
        return put, result

    def give_up(self, half: MessageExt) -> AppendResult:
        """Move the message to TRANS_CHECK_MAX_TIME_TOPIC, where operators find it."""
        try:
            if self._topics.topic_config(TRANS_CHECK_MAX_TIME_TOPIC) is None:
                self._topics.create_in_send_back(TRANS_CHECK_MAX_TIME_TOPIC)
                self._topics.table.sync_soon()
        except ConfigFileError as error:
            return AppendResult(PutStatus.SERVICE_NOT_AVAILABLE, remark=str(error))
        result = self._then_operation(half, self._store.append, given_up(half))
        if result.status is PutStatus.PUT_OK:
            logger.warning(
                "transaction given up topic=%s queue_offset=%d message_id=%s",
                TRANS_CHECK_MAX_TIME_TOPIC, half.queue_offset, half.message_id,
            )  # fmt: skip
        return result

    def resume(self, message: MessageExt) -> AppendResult:
        """Make a message that was given up a half message again, with no checks counted."""
        return self._store.append(copied(message, check_times=0))

    def _then_operation(
        self, half: MessageExt, store: Callable[[PutMessage], AppendResult], put: PutMessage
    ) -> AppendResult:
        # The message before the operation: after a crash in between it is delivered again, and never lost.
        result = store(put)
        if result.status is PutStatus.PUT_OK:
            noted = self._store_operation(half)
            if noted.status is PutStatus.PUT_OK:
                result.end_offset = noted.end_offset
            else:
                logger.warning(
                    "operation not stored, the half message will be decided again queue_offset=%d reason=%s",
                    half.queue_offset, noted.remark,
                )  # fmt: skip
        return result

    def _store_operation(self, half: MessageExt) -> AppendResult:
        put = operation(half.queue_offset, host=self._store_host, now_ms=self._wall_clock.now_ms())
        result = self._store.append(put)
        if result.status is PutStatus.PUT_OK:
            # Only what is in the log is decided: the next run reads it from there.
            self._ledger.decide(half.queue_offset, result.queue_offset)
        return result
