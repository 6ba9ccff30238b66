"""Receiving messages: as a member of a group, or from queues named by hand.

What was handed out counts as worked on when the next receive begins, at `commit()`, and when the block of
`open_consumer` ends without an exception. Only that is committed: at least once, never skipped.

Invariant: a message is taken and the position moved in one synchronous step, the last one of a receive: a cancel
comes before it, and loses nothing.
Invariant: messages of one queue are handed out in order, by chunks as they were pulled.
Answers to: DefaultMQPushConsumer, DefaultLitePullConsumer.
Unlike Java: one consumer for both, and no listener: the loop is the caller's.
"""

import logging
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final, Self

import trio

from rocketrio.api import Offset
from rocketrio.assignment import Assignment
from rocketrio.batches import Batches
from rocketrio.consumer_statistics import ConsumerStatistics, QueueStatistics
from rocketrio.instance import ClientInstance
from rocketrio.offset_store import RemoteBrokerOffsetStore, check_offset
from rocketrio.process_queue import ProcessQueue
from rocketrio.pull import PullAPIWrapper
from rocketrio.queue_claim import lost_meanwhile
from rocketrio.routing import FindBrokerResult
from rocketrio_protocol.errors import ClosedError, ConfigError, Error
from rocketrio_protocol.message import MessageExt, MessageQueue
from rocketrio_protocol.remoting.tasks import every

CHECKPOINT_EVERY: Final = 64
"""Messages handed out without waiting after which other tasks get a turn."""
BATCH_MAX_MESSAGES: Final = 1024
AUTO_COMMIT_INTERVAL: Final = 5.0  # persistConsumerOffsetInterval
REAFFIRM_EVERY: Final = 6
"""Commit rounds between two looks whether brokers still know what they acknowledged: every 30 s."""

logger = logging.getLogger("rocketrio.consumer")


class Consumer:
    """Made by `open_consumer`. One task at a time receives from it."""

    def __init__(
        self,
        client: ClientInstance,
        group: str,
        *,
        offsets: RemoteBrokerOffsetStore,
        pulls: PullAPIWrapper,
        auto_commit: bool,
    ) -> None:
        self.client = client
        self.group = group
        self._pulls = pulls
        self._offsets = offsets
        self._auto_commit = auto_commit
        self.assigned = Assignment(offsets=offsets, done_offset=self._done_offset, lost=self.lost)
        self._ready: deque[ProcessQueue] = deque()
        # The chunk being handed out: messages before _index are with the caller, those before _settled worked on;
        # at _limit other tasks get a turn.
        self._current: ProcessQueue | None = None
        self._messages: list[MessageExt] = []
        self._index = self._limit = self._settled = 0
        self._since_checkpoint = 0
        self._in_work: set[ProcessQueue] = set()
        self._handed_out = 0
        self._is_receiving = False
        self._arrival = trio.Event()
        self.is_closed = False

    def __repr__(self) -> str:
        return f"<Consumer group={self.group} queues={len(self.assigned.queues)}>"

    # ------------------------------------------------------------------------------------ receiving

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MessageExt:
        index = self._index
        if index < self._limit:
            self._index = index + 1
            return self._messages[index]
        return await self._next()

    async def receive(self) -> MessageExt:
        """The next message; waits until there is one.

        Beginning to receive says that the messages received before are worked on, and lets automatic commits include
        them. A cancel takes no message. Raises ClosedError after the consumer's block was left.
        """
        return await self.__anext__()

    def batches(
        self, max_messages: int = BATCH_MAX_MESSAGES, max_wait: float = 0.0
    ) -> AsyncIterator[list[MessageExt]]:
        """Iterates over lists of messages, never empty, instead of single ones.

        Each has at most `max_messages`, of one queue or several, in order per queue. A list is given as soon as there
        is a message; with `max_wait` only when it is full, or that many seconds later. Cancels as `receive` does.
        """
        if max_messages < 1:
            raise ConfigError(f"max_messages={max_messages} must be at least 1")
        return Batches(self, max_messages, max_wait)

    async def receive_batch(
        self, max_messages: int = BATCH_MAX_MESSAGES, max_wait: float = 0.0
    ) -> list[MessageExt]:
        """The next list of `batches`."""
        await self._wait_message()
        if max_wait > 0 and self._at_hand() < max_messages:
            with trio.move_on_after(max_wait):
                while self._at_hand() < max_messages:
                    await self._wait_arrival()
            if not self._at_hand():  # Lost in a rebalance meanwhile.
                await self._wait_message()
        return self._take(max_messages)

    async def _next(self) -> MessageExt:
        is_at_hand = self._current is not None or self._ready
        if not is_at_hand or self._since_checkpoint >= CHECKPOINT_EVERY or self.is_closed:
            await self._wait_message()
        else:
            self.settle()
        if self._current is None:
            if not self._ready:  # The settled chunk was the last one.
                await self._wait_message()
            self._open_chunk()
        index = self._index
        self._index = index + 1
        room = max(1, CHECKPOINT_EVERY - self._since_checkpoint)
        self._limit = min(len(self._messages), index + room)
        self._since_checkpoint += self._limit - index
        return self._messages[index]

    async def _wait_message(self) -> None:
        """Settle what was handed out, let others run, and wait until there is a message."""
        if self.is_closed:
            raise ClosedError(f"the consumer of group {self.group} is closed")
        if self._is_receiving:
            raise trio.BusyResourceError("another task is receiving from this consumer")
        self.settle()
        self._is_receiving = True
        try:
            await trio.lowlevel.checkpoint()
            self._since_checkpoint = 0
            while self._current is None and not self._ready:
                await self._wait_arrival()
        finally:
            self._is_receiving = False

    async def _wait_arrival(self) -> None:
        if self.is_closed:
            raise ClosedError(f"the consumer of group {self.group} is closed")
        await self._arrival.wait()
        self._arrival = trio.Event()

    def _at_hand(self) -> int:
        return len(self._messages) - self._index + sum(queue.message_count for queue in self._ready)

    # ------------------------------------------------------------------- handing out, synchronously

    def arrived(self, process_queue: ProcessQueue) -> None:
        """A pull brought messages."""
        if process_queue not in self._ready:
            self._ready.append(process_queue)
        self._arrival.set()

    def _open_chunk(self) -> None:
        process_queue = self._ready.popleft()
        self._current = process_queue
        self._messages = process_queue.take().messages
        self._index = self._limit = self._settled = 0
        if process_queue.chunks:
            self._ready.append(process_queue)
        self.assigned.made_room(process_queue)

    def _take(self, max_messages: int) -> list[MessageExt]:
        batch: list[MessageExt] = []
        while len(batch) < max_messages and (self._current is not None or self._ready):
            if self._current is None:
                self._open_chunk()
            process_queue = self._current
            assert process_queue is not None
            start = self._index
            end = min(len(self._messages), start + max_messages - len(batch))
            batch += self._messages[start:end]
            self._handed_out += end - start
            self._index = self._limit = self._settled = end
            self._in_work.add(process_queue)
            if end == len(self._messages):
                self._close_chunk()
            else:
                process_queue.position = self._messages[end].queue_offset
        return batch

    def _close_chunk(self) -> None:
        assert self._current is not None
        self._current.finish()
        self._current = None
        self._messages = []
        self._index = self._limit = self._settled = 0

    def settle(self) -> None:
        """All that was handed out is worked on."""
        current = self._current
        if current is not None and self._index > self._settled:
            self._handed_out += self._index - self._settled
            self._settled = self._limit = self._index
            self._in_work.add(current)
            if self._index == len(self._messages):
                self._close_chunk()
            else:
                current.position = self._messages[self._index].queue_offset
        for process_queue in self._in_work:
            process_queue.done_offset = process_queue.position
        self._in_work.clear()

    def _done_offset(self, process_queue: ProcessQueue) -> int | None:
        if process_queue is self._current and self._index > self._settled:
            return self._messages[self._index - 1].queue_offset
        return process_queue.done_offset

    def _handed_offset(self, process_queue: ProcessQueue) -> int | None:
        if process_queue is self._current and self._index > self._settled:
            if self._index == len(self._messages):
                assert process_queue.current is not None
                return process_queue.current.next_offset
            return self._messages[self._index].queue_offset
        return process_queue.position

    def lost(self, process_queue: ProcessQueue) -> None:
        """The queue is no longer ours, or goes on elsewhere: hand out nothing more of what was pulled."""
        if process_queue is self._current:
            self._handed_out += self._index - self._settled
            self._current = None
            self._messages = []
            self._index = self._limit = self._settled = 0
        self._in_work.discard(process_queue)
        if process_queue in self._ready:
            self._ready.remove(process_queue)

    # -------------------------------------------------------------------------------------- offsets

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit all messages received so far, or the given next offsets; returns when brokers have confirmed.

        Never lowers what was committed (see `seek`). Raises NotReachable, BrokerError when a queue could not be
        committed, CommitRefused when an operator has reset it or another member got it meanwhile; the others are, and
        a later commit includes it. A cancel leaves open which ones are.
        """
        if self.is_closed:
            raise ClosedError(f"the consumer of group {self.group} is closed")
        if offsets is None:
            offsets = {
                queue: offset
                for queue, process_queue in self.assigned.queues.items()
                if (offset := self._handed_offset(process_queue)) is not None
            }
        for queue, offset in offsets.items():
            self._process_queue(queue)
            check_offset(queue, offset)
            self._offsets.update_offset(queue, offset)
        errors = await self._offsets.persist_all(list(offsets))
        errors += filter(None, map(self._offsets.overruled, offsets))
        errors += [lost_meanwhile(queue) for queue in offsets if queue not in self.assigned.queues]
        if errors:
            raise errors[0]

    async def commit_done(self) -> list[Error]:
        """Commit what was worked on; the errors of queues that could not be."""
        for queue, process_queue in self.assigned.queues.items():
            offset = self._done_offset(process_queue)
            if offset is not None:
                self._offsets.update_offset(queue, offset)
        return await self._offsets.persist_all(list(self.assigned.queues))

    async def tell_masters(self) -> list[Error]:
        """Repeat to the masters what only slaves acknowledged; the errors of queues that could not be."""
        return await self._offsets.tell_masters()

    async def commit_on_period(self, interval: float) -> None:
        """The task of automatic commits; without them it only keeps brokers to what they acknowledged."""
        round_number = 0
        async for _ in every(interval, first_after=interval):
            round_number += 1
            if round_number % REAFFIRM_EVERY == 0:
                self._offsets.doubt_all()
            if self._auto_commit:
                errors = await self.commit_done()
            else:
                errors = await self._offsets.persist_committed()
            for error in errors:
                logger.warning("commit failed group=%s error=%s", self.group, error)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on from `offset` of an assigned queue; what was pulled is dropped.

        The next commit stores it, also if that lowers what is stored. Synchronous: nothing of it can be cancelled.
        """
        process_queue = self._process_queue(queue)
        check_offset(queue, offset)
        self.lost(process_queue)
        self._offsets.reset_offset(queue, offset)
        self.assigned.seek(queue, offset)

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that this consumer reads now."""
        return sorted(self.assigned.queues)

    def position(self, queue: MessageQueue) -> int | None:
        """Offset of the message that is handed out next; None until the queue's start is known."""
        return self._handed_offset(self._process_queue(queue))

    async def committed(self, queue: MessageQueue) -> Offset:
        """What the broker has stored for the group, or NOT_FOUND. Raises Error when none answers."""
        api, group = self.client.api, self.group

        async def ask(found: FindBrokerResult) -> Offset:
            return await api.query_consumer_offset(found.addr, group, queue, zero_if_young=False)

        return await self.client.ask_broker(queue, ask, insist_on_master=True)

    async def lag(self) -> dict[MessageQueue, int | None]:
        """Messages behind the end of each assigned queue, asked of the brokers; None where unknown."""
        api = self.client.api
        found_lag: dict[MessageQueue, int | None] = {}

        async def measure(queue: MessageQueue) -> None:
            async def ask(found: FindBrokerResult) -> int:
                return await api.max_offset(found.addr, queue)

            found_lag[queue] = None
            try:
                end = await self.client.ask_broker(queue, ask)
            except Error as error:
                logger.info("lag unknown queue=%s error=%s", queue, error)
                return
            process_queue = self.assigned.queues.get(queue)
            position = None if process_queue is None else self._handed_offset(process_queue)
            # A slave may not have got as far as we have.
            found_lag[queue] = None if position is None else max(0, end - position)

        async with trio.open_nursery() as nursery:
            for queue in self.assignment:
                nursery.start_soon(measure, queue)
        return found_lag

    def _process_queue(self, queue: MessageQueue) -> ProcessQueue:
        process_queue = self.assigned.queues.get(queue)
        if process_queue is None:
            raise ConfigError(f"{queue} is not assigned to this consumer of group {self.group}")
        return process_queue

    # ---------------------------------------------------------------------------------- what it sees

    @property
    def pull_from_which_node_table(self) -> dict[MessageQueue, int]:
        """The broker id that each assigned queue is pulled from next."""
        return {queue: self._pulls.next_node(queue) for queue in self.assignment}

    def statistics(self) -> ConsumerStatistics:
        """Counts and positions."""
        nodes = self.pull_from_which_node_table
        queues = {
            queue: QueueStatistics(
                self._handed_offset(process_queue),
                self._done_offset(process_queue),
                process_queue.message_count,
                process_queue.size,
                process_queue.max_offset,
                nodes[queue],
                *self._pulls.where_and_why(queue),
            )
            for queue, process_queue in self.assigned.queues.items()
        }
        return ConsumerStatistics(self._handed_out + self._index - self._settled, queues)

    def close(self) -> None:
        """Hand out nothing more; a waiting receive ends with ClosedError."""
        self.is_closed = True
        self._limit = self._index
        self._arrival.set()


def as_topics(topics: str | Sequence[str]) -> list[str]:
    """One topic or several, each once."""
    return [topics] if isinstance(topics, str) else list(dict.fromkeys(topics))
