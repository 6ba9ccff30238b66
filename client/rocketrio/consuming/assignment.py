"""The queues that a consumer owns right now, each with its task; takes queues over, commits and releases them.

Invariant: a released queue is committed before it is taken over again.
Invariant: nothing is committed of a queue whose lock is lost: the member that has it now commits its own work.
Answers to: RebalanceImpl.updateProcessQueueTableInRebalance, removeUnnecessaryMessageQueue; the part of
MQClientInstance and DefaultMQPushConsumerImpl that persists offsets.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import attrs
import trio

from rocketrio.consuming.fetch import QueueFetcher
from rocketrio.consuming.hand_out import HandOut
from rocketrio.consuming.offset_store import check_offset
from rocketrio.consuming.offsets import OffsetStore, lock_lost, lost_meanwhile
from rocketrio.consuming.process_queue import ProcessQueue
from rocketrio.consuming.queue_locks import FINISH_LIMIT, ConsumerLocks
from rocketrio.repeated_failures import RepeatedFailures
from rocketrio_protocol.errors import ConfigError, Error
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.remoting.tasks import every

REAFFIRM_EVERY: Final = 6
"""Commit rounds between two checks that brokers still have what they acknowledged: every 30 s."""
REMIND_EVERY: Final = 12
"""Commit rounds between two warnings that commits of a queue are dropped: every minute."""

logger = logging.getLogger("rocketrio.consumer")


@attrs.define(eq=False)
class Assignment:
    """The owned queues and their fetchers."""

    group: str
    offsets: OffsetStore
    hand_out: HandOut
    """Learns synchronously that a queue is dropped (`lost`), or that its pulled messages are (`put_back`)."""
    locks: ConsumerLocks | None = None
    """Set for an orderly consumer: it finishes the message in work before another member gets the queue."""
    auto_commit: bool = True
    queues: dict[MessageQueue, ProcessQueue] = attrs.Factory(dict)
    _fetchers: dict[MessageQueue, QueueFetcher] = attrs.Factory(dict)
    _releasing: dict[MessageQueue, trio.Event] = attrs.Factory(dict)
    _finishing: dict[MessageQueue, ProcessQueue] = attrs.Factory(dict)
    """Queues that were given up and stay locked until their message in work is done."""

    def change(
        self,
        mine: Mapping[str, Iterable[MessageQueue]],
        *,
        nursery: trio.Nursery,
        new_fetcher: Callable[[MessageQueue], QueueFetcher],
    ) -> None:
        """Own exactly these queues of each topic in `mine`; other topics stay as they are."""
        for topic, owned in mine.items():
            wanted = set(owned)
            held = {queue for queue in self.queues if queue.topic == topic}
            for queue in sorted(held - wanted):
                self._give_up(queue, nursery)
            for queue in sorted(wanted - held):
                self._take_over(new_fetcher(queue), nursery)

    def _take_over(self, fetcher: QueueFetcher, nursery: trio.Nursery) -> None:
        queue = fetcher.process_queue.queue
        self.queues[queue] = fetcher.process_queue
        self._fetchers[queue] = fetcher
        fetcher.process_queue.is_locked = self.locks is None
        nursery.start_soon(self._run, fetcher)

    async def _run(self, fetcher: QueueFetcher) -> None:
        with fetcher.scope:
            # Before it asks where to begin: the commit of its own former turn is
            # still on its way, and must not come after that.
            while (release := self._releasing.get(fetcher.process_queue.queue)) is not None:
                await release.wait()
            if self.locks is not None:
                self.locks.add(fetcher.process_queue)
            await fetcher.run()

    def _give_up(self, queue: MessageQueue, nursery: trio.Nursery) -> None:
        process_queue = self.queues.pop(queue)
        if self.locks is not None and self.locks.is_locked(queue):
            self.hand_out.put_back(process_queue)
        else:
            done = self.hand_out.done_offset(process_queue)
            self.hand_out.lost(process_queue)
            # Without the lock another member works on the queue, and may be further: its own commits count.
            if self.auto_commit and done is not None and not process_queue.is_lost:
                self.offsets.update_offset(queue, done)
            self.offsets.lose(queue)  # The next owner may be further by now.
        process_queue.drop()
        self._fetchers.pop(queue).scope.cancel()
        if queue not in self._releasing:  # Otherwise the queue has not started again since.
            self._releasing[queue] = trio.Event()
            nursery.start_soon(self._release, process_queue)

    async def _release(self, process_queue: ProcessQueue) -> None:
        """Commit and unlock a queue that was given up; after a cancel the end of the consumer does that."""
        queue = process_queue.queue
        try:
            if self.locks is not None and self.locks.is_locked(queue):
                self._finishing[queue] = process_queue
                with trio.move_on_after(FINISH_LIMIT):
                    # The lock keeps other members away until then: the message in work comes before all of theirs.
                    await process_queue.finished()
                self._count_finished(queue)
            if self.auto_commit:
                await self.offsets.persist(queue)
        except Error as error:
            logger.warning("not committed when given up queue=%s error=%s", queue, error)
        self.offsets.lose(queue)
        self.offsets.remove_offset(queue)
        if self.locks is not None:
            await self.locks.unlock([queue])
        # Last: what waits for it may take the queue over again, committed and unlocked.
        self._releasing.pop(queue).set()

    def _count_finished(self, queue: MessageQueue) -> None:
        """Count what was in work when the queue was given up as done; the lock has kept other members away."""
        done = self._finishing.pop(queue).done_offset
        if self.auto_commit and done is not None:
            self.offsets.update_offset(queue, done)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue a queue at `offset`."""
        self._fetchers[queue].seek(offset)

    def pause(self, queue: MessageQueue) -> None:
        """Stop pulling a queue until `resume`; forget messages that were pulled and not handed out."""
        process_queue = self.queues[queue]
        process_queue.is_paused = True
        self.drop_pulled(process_queue)

    def drop_pulled(self, process_queue: ProcessQueue) -> None:
        """Forget messages that were pulled and not handed out; `has_room` decides whether more are pulled."""
        self.hand_out.put_back(process_queue)
        process_queue.rewind()
        process_queue.budget.forget(process_queue)
        fetcher = self._fetchers.get(process_queue.queue)
        if fetcher is not None:
            fetcher.give_up_pull()

    def resume(self, queue: MessageQueue) -> None:
        """Pull a paused queue again."""
        process_queue = self.queues[queue]
        process_queue.is_paused = False
        process_queue.room.wake()

    def stop(self) -> None:
        """Stop pulling all queues."""
        for fetcher in self._fetchers.values():
            fetcher.scope.cancel()

    # ------------------------------------------------------------------------------------- commits

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit these next offsets. Raises the first error after all that can be committed is committed."""
        for queue, offset in offsets.items():
            if queue not in self.queues:
                raise ConfigError(f"{queue} is not assigned to this consumer of group {self.group}")
            check_offset(queue, offset)
        # Not committed, but reported: the caller must learn that these messages come again.
        lost = [queue for queue in offsets if self.queues[queue].is_lost]
        owned = {queue: offset for queue, offset in offsets.items() if queue not in lost}
        for queue, offset in owned.items():
            self.offsets.update_offset(queue, offset)
        errors = await self.offsets.persist_all(list(owned))
        errors += map(lock_lost, lost)
        errors += filter(None, map(self.offsets.overruled, offsets))
        errors += [lost_meanwhile(queue) for queue in offsets if queue not in self.queues]
        self._start_void_queues_again()
        if errors:
            raise errors[0]

    async def commit_done(self) -> list[Error]:
        """Commit the messages that are done; return the errors of queues that could not be committed."""
        owned = {
            queue: process_queue
            for queue, process_queue in self.queues.items()
            if not process_queue.is_lost
        }
        for queue, process_queue in owned.items():
            offset = self.hand_out.done_offset(process_queue)
            if offset is not None:
                self.offsets.update_offset(queue, offset)
        return await self.offsets.persist_all(list(owned))

    async def commit_on_period(self, interval: float, each_round: Callable[[], None]) -> None:
        """Commit periodically; without automatic commits only repeat what brokers may have lost."""
        round_number, failures = 0, RepeatedFailures()
        async for _ in every(interval, first_after=interval):
            round_number += 1
            each_round()
            if round_number % REAFFIRM_EVERY == 0:
                self.offsets.doubt_all()
            if self.auto_commit:
                errors = await self.commit_done()
            else:
                errors = await self.offsets.persist_committed()
            for error in errors:
                if count := failures.failed(str(error)):
                    logger.warning(
                        "commit failed group=%s failures=%d error=%s", self.group, count, error
                    )
            if not errors:
                failures.succeeded()
            self._start_void_queues_again()
            if round_number % REMIND_EVERY == 0:
                self._remind_of_dropped_commits()

    def _remind_of_dropped_commits(self) -> None:
        for queue in self.queues:
            if (why := self.offsets.overruled(queue)) is not None:
                logger.warning(
                    "commits are still dropped queue=%s group=%s dropped=%d error=%s",
                    queue, self.group, self.offsets.dropped_commits(queue), why,
                )  # fmt: skip

    def _start_void_queues_again(self) -> None:
        """Have queues claimed again whose topic or group was deleted: their commits are dropped until then."""
        for queue in filter(self.offsets.is_void, self.queues):
            self._fetchers[queue].start_again()

    async def commit_at_end(self) -> None:
        """Commit a last time when the consumer leaves."""
        if self.auto_commit:
            # Another member may own a queue by now and be further: Apache's brokers are asked first.
            self.offsets.doubt_all()
            finishing = list(self._finishing)
            for queue in finishing:
                self._count_finished(queue)
            errors = await self.commit_done()
            for error in errors + await self.offsets.persist_all(finishing):
                logger.warning("not committed at the end group=%s error=%s", self.group, error)
        for error in await self.offsets.commit_to_masters():
            logger.info("only a slave knows offsets group=%s error=%s", self.group, error)
