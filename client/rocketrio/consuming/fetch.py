"""Keeps one queue pulled ahead: finds the start offset, pulls, waits for room, and pulls again.

Invariant: only the answer "not found" starts a queue from scratch; while no broker answers, the task waits.
Invariant: a slave's bounds never move a consumer, because the slave may be behind. A master's bounds move it back only
while the name servers list that master: a route is up to 30 s old, and the log of a former master is shorter. While no
name server answers, the broker of the last known route is believed: its log may really be shorter.
Invariant: if the log became shorter, a consumer goes back to what its group committed, never to the current end of the
log, and never past messages that it has not handled (docs/decisions/0036).
Invariant: a topic that was deleted and created again is read from its beginning, or from the time that `start_from`
names: all of it was stored after this member began. A deleted group's position stays, and is claimed again
(docs/decisions/0068).
Invariant: a member whose pull got no answer asks for the group's offset before it pulls again: the brokers may have
removed it from the group, and other members may have had the queue.
Invariant: pulls slow down while answers bring no progress (pull_pace.py).
Answers to: PullMessageService, DefaultMQPushConsumerImpl.pullMessage, RebalancePushImpl.computePullFromWhere.
Unlike Java: an illegal offset is corrected at once, without a pause of ten seconds. Java's member that was cut off
continues from its own position, however far other members have come.
"""

import logging
from datetime import datetime
from typing import Final, NoReturn

import attrs
import trio

from rocketrio.client import ClientInstance
from rocketrio.cluster.api import NOT_FOUND
from rocketrio.consuming.consumer_options import ConsumerOptions, StartFrom
from rocketrio.consuming.hand_out import HandOut
from rocketrio.consuming.offsets import OffsetStore, PullCommit, StoredOffset
from rocketrio.consuming.process_queue import ProcessQueue
from rocketrio.consuming.pull import ROUTE_MAX_AGE, SUSPEND_TIMEOUT, PullAPIWrapper
from rocketrio.consuming.pull_pace import PullPace
from rocketrio.consuming.pull_result import PullResult, PullStatus
from rocketrio.consuming.subscription import Subscription
from rocketrio.routing import FindBrokerResult
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.errors import (
    AccessRefusedError,
    Error,
    NotReachableError,
    RemoteProtocolError,
    SystemBusyError,
)
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.names import RETRY_PREFIX
from rocketrio_protocol.reader_place import is_earlier_topic, is_same_topic

PULL_ERROR_PAUSE: Final = 1.0  # pullTimeDelayMillsWhenException
PULL_BUSY_PAUSE: Final = 0.02  # pullTimeDelayMillsWhenBrokerFlowControl
ROOM_POLL_INTERVAL: Final = 30.0
"""Seconds between checks for room or a lock without a wakeup: with thousands of queues each check counts."""
STARTS_AT_ONCE: Final = 64
"""The number of queues that ask for their start offset at the same time: with thousands at once, all would wait too
long for their answer."""
EARLY_ENDS_LOGGED: Final = 10
"""The number of consecutive pulls that a broker did not hold, after which this is logged: a few occur while a broker
stops or is full."""
NO_PROGRESS_PAUSE: Final = 1.0
"""Seconds to wait after an answer without messages and without progress; a lagging slave gives such answers."""

logger = logging.getLogger("rocketrio.consumer")


@attrs.define(eq=False)
class QueueFetcher:
    """The task that fills one ProcessQueue."""

    process_queue: ProcessQueue
    wrapper: PullAPIWrapper
    offsets: OffsetStore
    subscription: Subscription
    options: ConsumerOptions
    hand_out: HandOut
    """Learns synchronously what there is to hand out, and that pulled messages are forgotten."""
    starts: trio.Semaphore
    """Shared by all queues of the consumer."""
    scope: trio.CancelScope = attrs.Factory(trio.CancelScope)
    """Cancelled when the queue is lost."""
    _pull_scope: trio.CancelScope | None = None
    _newest_place: str | None = None
    """The place that the last answer from another incarnation of the topic named."""
    _pace: PullPace = attrs.Factory(PullPace)

    async def run(self) -> None:
        """Pull until cancelled. Raises AccessRefusedError, which ends the consumer."""
        await self._start()
        await self._pull_forever()

    def seek(self, offset: int) -> None:
        """Move to an offset; a pull in progress is cancelled."""
        self.process_queue.start(offset)
        self.process_queue.room.wake()
        self._pace = PullPace()
        self.give_up_pull()

    def give_up_pull(self) -> None:
        """Cancel a pull in progress; its answer does not count."""
        if self._pull_scope is not None:
            self._pull_scope.cancel()

    def start_again(self) -> None:
        """Find out where to continue: the broker has nothing of the group's progress any more."""
        if not self.process_queue.must_start_again:
            self.process_queue.must_start_again = True
            self.give_up_pull()

    async def _start(self) -> None:
        process_queue = self.process_queue
        while process_queue.fetch_offset is None:
            if not process_queue.is_locked:  # The former owner may still commit.
                await process_queue.room.wait(ROOM_POLL_INTERVAL)
                continue
            try:
                async with self.starts:
                    start = await self.start_offset()
            except AccessRefusedError:
                raise
            except Error as error:
                # Not "not found": a broker that cannot be asked may hold progress.
                logger.warning(
                    "no start offset yet queue=%s group=%s error=%s",
                    process_queue.queue, self.wrapper.group, error,
                )  # fmt: skip
                await trio.sleep(PULL_ERROR_PAUSE)
            else:
                if process_queue.fetch_offset is None:  # `seek` was not called meanwhile.
                    assert start.offset is not NOT_FOUND
                    process_queue.start(start.offset)
                    self.offsets.set_epoch(process_queue.queue, start.epoch)

    async def start_offset(self) -> StoredOffset:
        """Return the committed offset, or the one that `start_from` selects. Raises Error while no broker knows it."""
        queue, start_from = self.process_queue.queue, self.options.start_from
        # RocketMQ's rule for "latest": a young queue, which may be new to every group, is read from its beginning.
        stored = await self.offsets.read_offset(queue, zero_if_young=start_from == "latest")
        if stored.offset is not NOT_FOUND:
            return stored
        if start_from != "earliest" and stored.is_from_slave:
            raise NotReachableError(
                f"the master of {queue} cannot be reached, and only it knows where its end is",
                topic=queue.topic,
            )
        offset = await self._from_scratch(queue, start_from)
        logger.info(
            "group has no offset yet queue=%s group=%s offset=%d", queue, self.wrapper.group, offset
        )
        return attrs.evolve(stored, offset=offset)

    async def _from_scratch(self, queue: MessageQueue, start_from: StartFrom) -> int:
        client = self.wrapper.client

        async def ask(found: FindBrokerResult) -> int:
            if start_from == "earliest" or queue.topic.startswith(RETRY_PREFIX):
                return await client.api.min_offset(found.addr, queue)
            if found.broker_id != MASTER_ID:
                raise NotReachableError(
                    f"the master of {queue} cannot be reached", topic=queue.topic
                )
            if isinstance(start_from, datetime):
                timestamp_ms = int(start_from.timestamp() * 1000)
                return await client.api.search_offset(found.addr, queue, timestamp_ms)
            return await client.api.max_offset(found.addr, queue)

        return await client.ask_broker(queue, ask, insist_on_master=True)

    async def _beginning(self, queue: MessageQueue) -> int:
        """Return where this member begins in a topic that was created again while it ran."""
        start_from = self.options.start_from
        is_time = isinstance(start_from, datetime)
        return await self._from_scratch(queue, start_from if is_time else "earliest")

    async def _continuation(self, queue: MessageQueue) -> StoredOffset:
        """Return where to continue after a deletion; NOT_FOUND stands for the own position, with a new claim."""
        stored = await self.offsets.standing(queue)
        if stored.epoch is None:
            stored = attrs.evolve(stored, epoch=self._newest_place)
        if stored.offset is not NOT_FOUND:
            return stored
        if stored.is_from_slave:
            raise NotReachableError(
                f"the master of {queue} cannot be reached, and only it knows what was deleted",
                topic=queue.topic,
            )
        if is_same_topic(self.offsets.epoch(queue), stored.epoch):
            return stored
        return attrs.evolve(stored, offset=await self._beginning(queue))

    async def _start_again(self) -> None:
        """Continue after the topic or the group was deleted, with a claim of the queue as it is now."""
        process_queue, queue = self.process_queue, self.process_queue.queue
        while process_queue.must_start_again:
            if not process_queue.is_locked:
                await process_queue.room.wait(ROOM_POLL_INTERVAL)
                continue
            try:
                found = await self._continuation(queue)
            except AccessRefusedError:
                raise
            except Error as error:
                logger.warning("not started again yet queue=%s error=%s", queue, error)
                await trio.sleep(PULL_ERROR_PAUSE)
                continue
            if not process_queue.must_start_again:
                return  # `seek` was called meanwhile.
            process_queue.must_start_again = False
            position = self.hand_out.position(process_queue)
            if found.offset is NOT_FOUND:
                logger.warning(
                    "group was deleted, the member claims its queue again queue=%s group=%s position=%s",
                    queue, self.wrapper.group, position,
                )  # fmt: skip
                self.offsets.claim_again(queue)
            else:
                logger.warning(
                    "topic was deleted, the queue begins again queue=%s group=%s from=%s to=%d",
                    queue, self.wrapper.group, position, found.offset,
                )  # fmt: skip
                self.hand_out.lost(process_queue)
                process_queue.start(found.offset)
                self.offsets.begin_again(queue, found.offset)
            self.offsets.set_epoch(queue, found.epoch)

    async def _catch_up(self) -> None:
        """Move to the group's offset, after a lost lock or a pull without an answer: another member may be further."""
        process_queue = self.process_queue
        while process_queue.may_be_behind:
            if not process_queue.is_locked:
                await process_queue.room.wait(ROOM_POLL_INTERVAL)
                continue
            try:
                stored, own = await self._group_position()
            except AccessRefusedError:
                raise
            except Error as error:
                logger.warning("not caught up yet queue=%s error=%s", process_queue.queue, error)
                await trio.sleep(PULL_ERROR_PAUSE)
                continue
            if process_queue.is_locked and process_queue.may_be_behind:  # No `seek` meanwhile.
                process_queue.may_be_behind = False
                offset = stored.offset
                if own is not None and offset is not NOT_FOUND and offset > own:
                    logger.info(
                        "group offset is ahead of this member queue=%s group=%s from=%d to=%d",
                        process_queue.queue, self.wrapper.group, own, offset,
                    )  # fmt: skip
                    self.hand_out.lost(process_queue)
                    process_queue.start(offset)
                    self.offsets.set_epoch(process_queue.queue, stored.epoch)

    async def _group_position(self) -> tuple[StoredOffset, int | None]:
        """Return the group's stored offset, and this consumer's offset to compare it with."""
        process_queue = self.process_queue
        if process_queue.needs_lock:
            stored = await self.offsets.read_offset(process_queue.queue, zero_if_young=False)
            return stored, process_queue.done_offset
        # This does not claim the queue: another member may own it by now, which the next rebalance reports. Messages in
        # work stay with their handlers, even if another member also had them.
        committed = await self.offsets.committed(process_queue.queue)
        return committed, self.hand_out.position(process_queue)

    async def _pull_forever(self) -> NoReturn:
        while True:
            with trio.CancelScope() as self._pull_scope:  # Cancelled by `seek` and `give_up_pull`.
                while True:
                    await self._start_again()
                    await self._catch_up()
                    pause = await self._pull()
                    if pause:
                        await trio.sleep(pause)

    async def _pull(self) -> float:
        """Pull once; return the seconds to wait before the next pull."""
        process_queue = self.process_queue
        max_bytes, reserved = await self._room()
        epoch, offset = process_queue.epoch, process_queue.fetch_offset
        log_epoch = self.offsets.epoch(process_queue.queue)
        assert offset is not None
        process_queue.counts.last_pull = started = trio.current_time()
        # The first pull is not held: at the end of a queue it would keep its reservation.
        suspend_timeout = 0.0 if process_queue.max_offset is None else SUSPEND_TIMEOUT
        try:
            result = await self.wrapper.pull_kernel(
                process_queue.queue,
                offset,
                max_messages=self.options.prefetch.batch_size,
                max_bytes=max_bytes,
                subscription=self.subscription,
                commit=self._commit_with_pull if self.options.auto_commit else None,
                epoch=log_epoch,
                suspend_timeout=suspend_timeout,
            )
            answered = trio.current_time()
            if self._goes_back(result, offset) and not await is_still_master(
                self.wrapper.client, process_queue.queue, result.addr
            ):
                return self._pace.moved(offset, result.next_begin_offset)
            # Inside the try block: an answer whose messages cannot be read is a failed pull.
            if process_queue.epoch != epoch:  # The position was moved while the pull was under way.
                return 0.0
            if is_earlier_topic(log_epoch, result.epoch):
                self._newest_place = result.epoch
                process_queue.must_start_again = True
                return 0.0
            if result.status is PullStatus.OFFSET_ILLEGAL:
                return await self._correct(result, offset)
            if result.epoch is not None and result.epoch != log_epoch:
                self.offsets.set_epoch(process_queue.queue, result.epoch)
            held = answered - started if suspend_timeout else None
            return self._accept(result, offset, held)
        except AccessRefusedError:
            raise
        except Error as error:
            logger.warning(
                "pull failed queue=%s offset=%d error=%s", process_queue.queue, offset, error
            )
            # A broker that dropped this member would have answered. One that is silent may have dropped it by now.
            if isinstance(error, NotReachableError) and process_queue.epoch == epoch:
                self._pull_got_no_answer()
            return PULL_BUSY_PAUSE if isinstance(error, SystemBusyError) else PULL_ERROR_PAUSE
        finally:
            process_queue.budget.give(reserved)

    def _commit_with_pull(self, addr: str) -> PullCommit | None:
        """Return the progress that a pull to `addr` commits, so that a killed process repeats few messages."""
        process_queue = self.process_queue
        done = self.hand_out.done_offset(process_queue)
        if done is None or process_queue.is_lost:
            return None
        self.offsets.update_offset(process_queue.queue, done)
        return self.offsets.with_pull(process_queue.queue, addr)

    def _pull_got_no_answer(self) -> None:
        # A locked queue belongs to no other member; the expiry of the lock is handled elsewhere.
        if self.options.is_shared and not self.process_queue.needs_lock:
            self.process_queue.may_be_behind = True

    async def _room(self) -> tuple[int, int]:
        """Wait until more may be pulled; return the maximum size of the pull and the bytes reserved for it."""
        process_queue = self.process_queue
        while True:
            if process_queue.has_room:
                granted = process_queue.budget.reserve(
                    process_queue, is_lagging=process_queue.is_lagging
                )
                if granted is not None:
                    return granted
            else:
                process_queue.budget.forget(process_queue)  # Others need not wait for it.
            await process_queue.room.wait(ROOM_POLL_INTERVAL)

    def _accept(self, result: PullResult, offset: int, held: float | None) -> float:
        """Take over an answer. `held` is the seconds that it took if the broker was to hold it, else None."""
        process_queue = self.process_queue
        has_advanced = result.next_begin_offset > offset
        if result.body and not has_advanced:
            raise RemoteProtocolError(
                f"{result.addr} returned messages from offset {offset}, but continues at {result.next_begin_offset}",
                remedy="They would be delivered again and again; check what that broker is",
            )
        # Only OFFSET_ILLEGAL moves a consumer back.
        result.next_begin_offset = max(result.next_begin_offset, offset)
        has_messages = process_queue.put(result)
        is_end = result.status is PullStatus.NO_NEW_MSG
        if has_advanced and not is_end:
            self._pace.advanced(result.next_begin_offset)
        if has_messages:
            process_queue.counts.count_pull(trio.current_time())
            self.hand_out.arrived(process_queue)
            return 0.0
        if is_end and held is not None:
            return self._ended(held, result.addr)
        return 0.0 if has_advanced or is_end else NO_PROGRESS_PAUSE

    def _ended(self, held: float, addr: str) -> float:
        pause = self._pace.found_nothing(held)
        if self._pace.early_ends == EARLY_ENDS_LOGGED:
            logger.warning(
                "pulls are not held, so they are sent less often queue=%s group=%s addr=%s in_a_row=%d",
                self.process_queue.queue, self.wrapper.group, addr, self._pace.early_ends,
            )  # fmt: skip
        return pause

    @staticmethod
    def _goes_back(result: PullResult, offset: int) -> bool:
        """Return whether this answer is a master's and would lower the position."""
        is_moved = result.status is PullStatus.OFFSET_ILLEGAL
        return is_moved and not result.is_from_slave and result.next_begin_offset < offset

    async def _correct(self, result: PullResult, offset: int) -> float:
        process_queue, queue = self.process_queue, self.process_queue.queue
        if result.is_from_slave:
            # The slave's log may be shorter than the master's, or begin later: wait for the master. That may be this
            # one: slaves seldom answer so, and by an old route a new master is a slave.
            self.wrapper.prefer_master(queue)
            await self.wrapper.client.refresh_topic_route(queue.topic, max_age=ROUTE_MAX_AGE)
            return NO_PROGRESS_PAUSE
        pause = self._pace.moved(offset, result.next_begin_offset)
        # The messages in between were deleted; those held here are valid.
        if result.next_begin_offset > offset:
            logger.warning(
                "offset corrected queue=%s group=%s offset=%d to=%d broker_min=%d broker_max=%d",
                queue, self.wrapper.group, offset, result.next_begin_offset,
                result.min_offset, result.max_offset,
            )  # fmt: skip
            process_queue.put(result)
            return pause
        back_to = result.next_begin_offset
        if result.epoch is None:  # An Apache broker returns its current end.
            epoch = process_queue.epoch
            committed = await self.offsets.committed(queue)
            if process_queue.epoch != epoch:  # `seek` was called meanwhile.
                return 0.0
            if committed.offset is not NOT_FOUND:
                back_to = min(back_to, committed.offset)
        done = process_queue.done_offset
        if done is not None:  # Messages that were pulled but not handled are pulled again.
            back_to = min(back_to, done)
        before = self.offsets.epoch(queue)
        is_shorter = None not in (before, result.epoch) and before != result.epoch
        logger.warning(
            "offset set back reason=%s queue=%s group=%s offset=%d to=%d broker_min=%d broker_max=%d",
            "the log became shorter" if is_shorter else "it lies beyond the end",
            queue, self.wrapper.group, offset, back_to, result.min_offset, result.max_offset,
        )  # fmt: skip
        # In this order: nothing pulled may be handed out once the position is back, and no commit be sent in between
        # with the old offset, so that there is no checkpoint until the end.
        self.hand_out.lost(process_queue)
        process_queue.start(back_to)
        if is_shorter:
            process_queue.counts.log_cuts += 1
            self.offsets.cut(queue, back_to)
        else:  # The stored offset may lie beyond the end too.
            self.offsets.reset_offset(queue, back_to)
        self.offsets.set_epoch(queue, result.epoch)
        return pause


async def is_still_master(client: ClientInstance, queue: MessageQueue, addr: str) -> bool:
    """Ask the name servers whether `addr` is the master of the queue's broker."""
    await client.refresh_topic_route(queue.topic)
    master = client.routing.find_broker_address_in_publish(queue.broker_name)
    if master == addr:
        return True
    logger.warning(
        "answer dropped, its broker is not the master queue=%s addr=%s master=%s",
        queue, addr, master,
    )  # fmt: skip
    return False
