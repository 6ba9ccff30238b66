"""The queues a consumer owns right now, each with its task; taken over and given up.

Invariant: a queue given up is committed before it is taken over again.
Answers to: RebalanceImpl.updateProcessQueueTableInRebalance, removeUnnecessaryMessageQueue.
"""

import logging
from collections.abc import Callable, Iterable, Mapping

import attrs
import trio

from rocketrio.fetch import QueueFetcher
from rocketrio.offset_store import RemoteBrokerOffsetStore
from rocketrio.process_queue import ProcessQueue
from rocketrio_protocol.errors import Error
from rocketrio_protocol.message import MessageQueue

logger = logging.getLogger("rocketrio.consumer")


@attrs.define(eq=False)
class Assignment:
    """Owned queues and their fetchers."""

    offsets: RemoteBrokerOffsetStore
    done_offset: Callable[[ProcessQueue], int | None]
    lost: Callable[[ProcessQueue], None]
    """Told, synchronously, before a queue is dropped."""
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
        """Own exactly these queues of each topic named; other topics stay as they are."""
        for topic, owned in mine.items():
            wanted = set(owned)
            held = {queue for queue in self.queues if queue.topic == topic}
            for queue in sorted(held - wanted):
                self._give_up(queue, nursery)
            for queue in sorted(wanted - held):
                self._take_over(new_fetcher(queue), nursery)
            if held != wanted:
                logger.info(
                    "queues changed topic=%s now=%s",
                    topic, ",".join(f"{queue.broker_name}:{queue.queue_id}" for queue in sorted(wanted)),
                )  # fmt: skip

    def _take_over(self, fetcher: QueueFetcher, nursery: trio.Nursery) -> None:
        queue = fetcher.process_queue.queue
        self.queues[queue] = fetcher.process_queue
        self._fetchers[queue] = fetcher
        nursery.start_soon(self._run, fetcher)

    async def _run(self, fetcher: QueueFetcher) -> None:
        with fetcher.scope:
            while (release := self._releasing.get(fetcher.process_queue.queue)) is not None:
                await release.wait()
            await fetcher.run()

    def _give_up(self, queue: MessageQueue, nursery: trio.Nursery) -> None:
        process_queue = self.queues.pop(queue)
        done = self.done_offset(process_queue)
        self.lost(process_queue)
        process_queue.drop()
        self._fetchers.pop(queue).scope.cancel()
        if self.auto_commit and done is not None:
            self.offsets.update_offset(queue, done)
        self.offsets.lose(queue)  # The next owner may be further by now.
        if queue not in self._releasing:  # Otherwise it had not begun again since.
            self._releasing[queue] = trio.Event()
            nursery.start_soon(self._release, queue)

    async def _release(self, queue: MessageQueue) -> None:
        try:
            if self.auto_commit:
                await self.offsets.persist(queue)
        except Error as error:
            logger.warning("not committed when given up queue=%s error=%s", queue, error)
        finally:
            self.offsets.remove_offset(queue)
            self._releasing.pop(queue).set()

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Let a queue go on elsewhere."""
        self._fetchers[queue].seek(offset)

    def pause(self, queue: MessageQueue) -> None:
        """Pull no more of a queue until `resume`; what was pulled and not handed out is forgotten."""
        process_queue = self.queues[queue]
        process_queue.is_paused = True
        process_queue.rewind()
        process_queue.budget.forget(process_queue)
        self._fetchers[queue].give_up_pull()

    def resume(self, queue: MessageQueue) -> None:
        """Pull again."""
        process_queue = self.queues[queue]
        process_queue.is_paused = False
        process_queue.room.wake()

    def stop(self) -> None:
        """Pull no more."""
        for fetcher in self._fetchers.values():
            fetcher.scope.cancel()
