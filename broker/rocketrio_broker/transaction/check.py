"""Asks producers for the outcome of transactions that they left undecided.

Each round takes the half messages that are old enough. For each one a connected member of its producer group is sent
request 39 about a copy of the message, which counts these checks; the answer is an ordinary request 37. After
`transaction_check_max` checks the message is given up.

Invariant: a half message stays, however long, until it was checked often enough or its time in the log is over.
Invariant: progress is stored after the records that it depends on are on the disk, confirmed, and on every slave that
could take over; no producer is asked about a half message that is not confirmed (read_gate.py).
Answers to: TransactionalMessageCheckService, AbstractTransactionalMessageCheckListener.
Unlike Java: a round without a connected producer of the group does not count as a check, and makes no copy; Java gives
up such messages after 15 rounds all the same, which is 7 to 15 minutes.
"""

import logging
from collections.abc import Callable
from itertools import count
from typing import Final

import attrs
import trio

from rocketrio_broker.clients.connected import ClientChannel, ClientChannelInfo, ProducerManager
from rocketrio_broker.delay.delayed_puts import released
from rocketrio_broker.offsets.manager import ConsumerOffsetManager
from rocketrio_broker.settings.config import LiveConfig
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.store.put_message import REFUSED_FOR_NOW, PutStatus
from rocketrio_broker.transaction.decisions import TransactionDecisions
from rocketrio_broker.transaction.ledger import TransactionLedger
from rocketrio_broker.transaction.records import check_request
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.errors import LocalProtocolError, NotReachableError, TooManyRequestsError
from rocketrio_protocol.message import MessageExt
from rocketrio_protocol.names import (
    LEDGER_END_ID,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    TRANSACTION_GROUP,
)
from rocketrio_protocol.record.properties import (
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    decimal_value,
)
from rocketrio_protocol.remoting.ports import WallClock

logger = logging.getLogger("rocketrio_broker.transaction")

TURN_CHECKS: Final = 64
"""Half messages checked before other tasks get a turn: some 5 ms."""

MOVE_DISTANCE: Final = 100_000
"""Half messages after which an open one is copied to the end; a start reads all from the oldest open one on again."""

_MS_PER_HOUR: Final = 3_600_000


@attrs.define
class TransactionCheckStatistics:
    """Counts of half messages since the broker became master."""

    checked: int = 0
    moved: int = 0
    given_up: int = 0


@attrs.frozen
class _Progress:
    offsets: tuple[tuple[str, int, int], ...]
    """Topic, queue id and offset of each entry of the offset table."""
    log_end: int


class TransactionCheckService:
    """Keeps the ledger up to date, and asks producers about open half messages."""

    def __init__(
        self,
        store: MessageStore,
        ledger: TransactionLedger,
        decisions: TransactionDecisions,
        *,
        config: LiveConfig,
        producers: ProducerManager,
        consumer_offsets: ConsumerOffsetManager,
        replicated: Callable[[], int],
        wall_clock: WallClock,
        may_decide: Callable[[ClientChannelInfo, str], bool] = lambda client, topic: True,
    ) -> None:
        """Take `replicated`, which returns the address up to which the log is confirmed and on all eligible slaves.

        `may_decide` returns whether a client may send to a topic, and so may see and decide about a half message of it.
        """
        self._store = store
        self._ledger = ledger
        self._decisions = decisions
        self._config = config
        self._producers = producers
        self._consumer_offsets = consumer_offsets
        self._replicated = replicated
        self._wall_clock = wall_clock
        self._may_decide = may_decide
        self._turn = count()
        self._progress: _Progress | None = None
        self.statistics = TransactionCheckStatistics()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Check periodically until cancelled; report the start after the ledger has read all decisions."""
        self._ledger.begin(*self._stored_progress())
        try:
            # All decisions are read before this broker takes writes: it would deliver a committed message again.
            while self._ledger.load():
                await trio.lowlevel.checkpoint()
            task_status.started()
            while True:
                await trio.sleep(self._config.broker.transaction_check_interval)
                await self.check()
        finally:
            self._ledger.end()

    def _stored_progress(self) -> tuple[int, int]:
        """Return the stored progress on both topics; their begin if one lies beyond its topic's end.

        Such progress belongs to another log. Which half messages are decided is read from this one.
        """
        progress = []
        for topic in (TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC):
            offset = self._consumer_offsets.query_offset(TRANSACTION_GROUP, topic, 0)
            end = self._store.next_queue_offset(topic, 0)
            if offset > end:
                logger.warning(
                    "transaction progress lay beyond the end of its queue topic=%s before=%d end=%d",
                    topic, offset, end,
                )  # fmt: skip
                return 0, 0
            progress.append(offset)
        return progress[0], progress[1]

    async def check(self) -> None:
        """Do one round of checks."""
        # That of an earlier round: its records have had time to be synced, confirmed and replicated.
        self._store_progress()
        timeout_ms = round(1000 * self._config.broker.transaction_timeout)
        now_ms, now = self._wall_clock.now_ms(), trio.current_time()
        while self._ledger.read_due(now_ms=now_ms, now=now, timeout_ms=timeout_ms):
            await trio.lowlevel.checkpoint()
        settled_ms = self._store.clock_watch.settled_ms()
        for number, half_offset in enumerate(self._ledger.due(now), start=1):
            if half_offset in self._ledger.open and not self._check(half_offset, settled_ms):
                return
            if number % TURN_CHECKS == 0:
                await trio.lowlevel.checkpoint()
        self._move_stragglers()
        half_offset, operation_offset = self._ledger.progress()
        # The older one first: replaced in each round, a lagging slave would keep it from ever being stored.
        if self._progress is None:
            self._progress = self._progress_at(half_offset, operation_offset)

    def _progress_at(self, half_offset: int, operation_offset: int) -> _Progress:
        offsets = []
        for topic, offset in (
            (TRANS_HALF_TOPIC, half_offset),
            (TRANS_OP_HALF_TOPIC, operation_offset),
        ):
            end = self._store.next_queue_offset(topic, 0)
            offsets += [(topic, LEDGER_END_ID, end), (topic, 0, offset)]
        return _Progress(tuple(offsets), self._store.max_physical_offset)

    def _store_progress(self) -> None:
        """Store the progress of an earlier round, once its records cannot be lost any more."""
        progress = self._progress
        if progress is None:
            return
        safe = min(self._store.flushed.value, self._replicated())
        # A slave that takes over begins at this progress. Without the copies of open half messages, which lie before
        # this address, it would never ask about them.
        if safe >= progress.log_end:
            for topic, queue_id, offset in progress.offsets:
                self._consumer_offsets.commit_offset(TRANSACTION_GROUP, topic, queue_id, offset)
            self._progress = None

    def _check(self, half_offset: int, settled_ms: int) -> bool:
        """Check one half message; return False if the store takes no messages now."""
        half = self._ledger.message(half_offset)
        if half is None:
            self._ledger.drop(half_offset)
            return True
        if self._decisions.is_superseded(half):
            self._ledger.supersede(half_offset)
            return True
        times = decimal_value(half.property_value(PROPERTY_TRANSACTION_CHECK_TIMES)) or 0
        broker = self._config.broker
        channel = self._channel(half)
        # A producer whose clock is wrong is asked once all the same.
        is_old = (
            times > 0 or channel is None
        ) and settled_ms - half.born_time_ms > broker.store.file_reserved_time * _MS_PER_HOUR
        is_deliverable = released(half) is not None
        if times >= broker.transaction_check_max or is_old or not is_deliverable:
            return self._give_up(half)
        if channel is None:
            return True
        copy, result = self._decisions.copy(half, check_times=times + 1)
        if result.status in REFUSED_FOR_NOW:
            return False
        if result.status is not PutStatus.PUT_OK:
            return self._give_up(half)  # Its properties have no room for the number of checks.
        self.statistics.checked += 1
        try:
            # The request is larger than the half message: it may be too large although that was not.
            header, body = check_request(half, copy, result, broker_name=broker.broker_name)
            channel.send_oneway(RemotingCommand.request(header, body))
        except (NotReachableError, TooManyRequestsError, LocalProtocolError) as error:
            logger.info("transaction not checked, will be again addr=%s error=%s", channel, error)
        return True

    def _give_up(self, half: MessageExt) -> bool:
        """Move the message to where operators find it; return False if the store takes no messages now."""
        self.statistics.given_up += 1
        result = self._decisions.give_up(half)
        if result.status not in (PutStatus.PUT_OK, *REFUSED_FOR_NOW):
            logger.error(
                "half message can neither be checked nor moved topic=%s message_id=%s reason=%s",
                half.property_value(PROPERTY_REAL_TOPIC), half.message_id, result.remark,
            )  # fmt: skip
        return result.status not in REFUSED_FOR_NOW

    def _channel(self, half: MessageExt) -> ClientChannel | None:
        group = half.property_value(PROPERTY_PRODUCER_GROUP) or ""
        topic = half.property_value(PROPERTY_REAL_TOPIC) or ""
        turn = next(self._turn)
        channel = self._producers.available_channel(
            group,
            choose=lambda alive: alive[turn % len(alive)],
            is_permitted=lambda client: self._may_decide(client, topic),
        )
        if channel is None:
            logger.info("transaction waits, no producer is connected group=%s", group)
        return channel

    def _move_stragglers(self) -> None:
        """Copy open half messages that are a file or more before the log's end, or `MOVE_DISTANCE` behind the newest.

        The oldest file may be deleted at any time, and progress must not stop at one open message.
        """
        store = self._store
        least = store.max_physical_offset - store.config.mapped_file_size_commit_log
        for half_offset in self._ledger.far_behind(physical_offset=least, distance=MOVE_DISTANCE):
            half = self._ledger.message(half_offset)
            if half is None:
                self._ledger.drop(half_offset)
                continue
            _, result = self._decisions.copy(half)
            if result.status is not PutStatus.PUT_OK:
                return
            self.statistics.moved += 1
