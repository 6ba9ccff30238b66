"""The queues that a consumer owns right now, each with its task; takes queues over and releases them.

Invariant: a released queue is committed before it is taken over again.
Answers to: RebalanceImpl.updateProcessQueueTableInRebalance, removeUnnecessaryMessageQueue.
"""

import logging
from collections.abc import Callable, Iterable, Mapping

import attrs
import trio

from rocketrio.consuming.fetch import QueueFetcher
from rocketrio.consuming.offsets import OffsetStore
from rocketrio.consuming.process_queue import ProcessQueue
from rocketrio.consuming.queue_locks import FINISH_LIMIT, QueueLocks
from rocketrio_protocol.errors import Error
from rocketrio_protocol.message import MessageQueue

logger = logging.getLogger("rocketrio.consumer")


@attrs.define(eq=False)
class Assignment:
    """The owned queues and their fetchers."""

    offsets: OffsetStore
    done_offset: Callable[[ProcessQueue], int | None]
    lost: Callable[[ProcessQueue], None]
    """Called synchronously before a queue is dropped."""
    put_back: Callable[[ProcessQueue], None]
    """Called synchronously before pulled messages are forgotten; messages in work go on."""
    locks: QueueLocks | None = None
    """Set for an orderly consumer: it finishes the message in work before another member gets the queue."""
    auto_commit: bool = True
    queues: dict[MessageQueue, ProcessQueue] = attrs.Factory(dict)
    _fetchers: dict[MessageQueue, QueueFetcher] = attrs.Factory(dict)
    _releasing: dict[MessageQueue, trio.Event] = attrs.Factory(dict)

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
            while (release := self._releasing.get(fetcher.process_queue.queue)) is not None:
                await release.wait()
            if self.locks is not None:
                self.locks.want(fetcher.process_queue)
            await fetcher.run()

    def _give_up(self, queue: MessageQueue, nursery: trio.Nursery) -> None:
        process_queue = self.queues.pop(queue)
        if self.locks is not None and self.locks.is_locked(queue):
            self.put_back(process_queue)
        else:
            done = self.done_offset(process_queue)
            self.lost(process_queue)
            if self.auto_commit and done is not None and not process_queue.is_lost:
                self.offsets.update_offset(queue, done)
            self.offsets.lose(queue)  # The next owner may be further by now.
        process_queue.drop()
        self._fetchers.pop(queue).scope.cancel()
        if queue not in self._releasing:  # Otherwise the queue has not started again since.
            self._releasing[queue] = trio.Event()
            nursery.start_soon(self._release, process_queue)

    async def _release(self, process_queue: ProcessQueue) -> None:
        queue = process_queue.queue
        try:
            if self.locks is not None and self.locks.is_locked(queue):
                await self._finish(process_queue)
            if self.auto_commit:
                await self.offsets.persist(queue)
        except Error as error:
            logger.warning("not committed when given up queue=%s error=%s", queue, error)
        finally:
            self.offsets.lose(queue)
            self.offsets.remove_offset(queue)
            if self.locks is not None:
                await self.locks.unlock([queue])
            self._releasing.pop(queue).set()

    async def _finish(self, process_queue: ProcessQueue) -> None:
        """Wait for the message in work while the lock keeps other members away, then count it as done."""
        with trio.move_on_after(FINISH_LIMIT):
            await process_queue.finished()
        if self.auto_commit and process_queue.done_offset is not None:
            self.offsets.update_offset(process_queue.queue, process_queue.done_offset)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue a queue at `offset`."""
        self._fetchers[queue].seek(offset)

    def pause(self, queue: MessageQueue) -> None:
        """Stop pulling a queue until `resume`; forget messages that were pulled and not handed out."""
        process_queue = self.queues[queue]
        process_queue.is_paused = True
        self.stand_still(process_queue)

    def stand_still(self, process_queue: ProcessQueue) -> None:
        """Forget messages that were pulled and not handed out; `has_room` decides whether more are pulled."""
        self.put_back(process_queue)
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
