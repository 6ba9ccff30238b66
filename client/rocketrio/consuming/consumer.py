"""What a user holds: receives messages, commits, and asks how it stands.

What was handed out counts as worked on when the next receive begins, at `commit()`, and when the block of
`open_consumer` ends without an exception. Only that is committed: at least once, never skipped.

Answers to: DefaultMQPushConsumer, DefaultLitePullConsumer.
Unlike Java: one consumer for both, and no listener: the loop is the caller's.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from rocketrio.api import Offset
from rocketrio.consuming.assignment import Assignment
from rocketrio.consuming.batches import Batches
from rocketrio.consuming.consumer_statistics import ConsumerStatistics, QueueStatistics
from rocketrio.consuming.delivery import Delivery
from rocketrio.consuming.frames import (
    COLUMNS,
    TABLE_ROWS,
    Columns,
    receive_pandas,
    receive_polars,
    receive_table,
)
from rocketrio.consuming.group_progress import GroupProgress
from rocketrio.consuming.hand_out import HandOut, check_max_messages
from rocketrio.consuming.offset_store import check_offset
from rocketrio.consuming.offsets import OffsetStore
from rocketrio.consuming.process_queue import ProcessQueue
from rocketrio.consuming.pull import PullAPIWrapper
from rocketrio.consuming.queue_questions import (
    begin_offset,
    end_offset,
    known,
    of_each,
    offset_at,
)
from rocketrio.consuming.rebalance_report import RECENT_REBALANCES, Rebalance
from rocketrio.consuming.running import CONCURRENCY, DRAIN_TIMEOUT, Handler, HandlerRun
from rocketrio.consuming.send_back import check_level
from rocketrio.consuming.values import Values
from rocketrio.instance import ClientInstance
from rocketrio.live import Live
from rocketrio_protocol.errors import ClosedError, ConfigError, Error
from rocketrio_protocol.message import MessageExt, MessageQueue
from rocketrio_protocol.topic_names import retry_topic

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

T = TypeVar("T")
BATCH_MAX_MESSAGES: Final = 1024
DRAIN_GRACE: Final = 1.0
"""Seconds beyond the drain timeout that a cancelled handler is waited for."""


class Consumer(Live):
    """Made by `open_consumer`. One task at a time receives from it."""

    def __init__(
        self,
        client: ClientInstance,
        group: str,
        *,
        offsets: OffsetStore,
        pulls: PullAPIWrapper,
        auto_commit: bool,
        delivery: Delivery,
    ) -> None:
        self.client = client
        self.group = group
        self._pulls = pulls
        self._offsets = offsets
        self._delivery = delivery
        self._running: HandlerRun | None = None
        self.hand_out = HandOut(group)
        self.assigned = Assignment(
            offsets=offsets,
            done_offset=self.hand_out.done_offset,
            lost=self.hand_out.lost,
            put_back=self.hand_out.put_back,
            auto_commit=auto_commit,
        )
        self.rebalances: deque[Rebalance] = deque(maxlen=RECENT_REBALANCES)
        """What moved between this member and the others of the group, newest last."""
        self.progress = GroupProgress(group, self.assigned, offsets, auto_commit)
        self.born()

    def __repr__(self) -> str:
        return f"<Consumer group={self.group} queues={len(self.assigned.queues)}>"

    # ------------------------------------------------------------------------------------ receiving

    def __aiter__(self) -> AsyncIterator[MessageExt]:
        return self.hand_out  # As it is: one call less for each message.

    def __anext__(self) -> Coroutine[Any, Any, MessageExt]:
        return self.hand_out.__anext__()

    async def receive(self) -> MessageExt:
        """The next message; waits until there is one.

        Beginning to receive says that the messages received before are worked on, and lets automatic commits include
        them. A cancel takes no message. Raises ClosedError after the consumer's block was left.
        """
        return await self.hand_out.__anext__()

    def batches(
        self, max_messages: int = BATCH_MAX_MESSAGES, max_wait: float = 0.0
    ) -> AsyncIterator[list[MessageExt]]:
        """Iterates over lists of messages, never empty, instead of single ones.

        Each has at most `max_messages`, of one queue or several, in order per queue. A list is given as soon as there
        is a message; with `max_wait` only when it is full, or a queue has pulled ahead all it may, or that many seconds
        later. Cancels as `receive` does.
        """
        check_max_messages(max_messages)
        return Batches(self.hand_out, max_messages, max_wait)

    async def receive_batch(
        self, max_messages: int = BATCH_MAX_MESSAGES, max_wait: float = 0.0
    ) -> list[MessageExt]:
        """The next list of `batches`."""
        return await self.hand_out.receive_batch(max_messages, max_wait)

    def values(self, deserializer: Callable[[MessageExt], T]) -> Values[T]:
        """Iterates over `deserializer(message)` instead of messages.

            async for order in consumer.values(lambda message: message.json(Order)):

        What the deserializer raises comes out of the loop, with a note that names the message. The message is then in
        work, like any other that was received: going on with the same iterator says that it is done and passes over
        it, `await consumer.retry(values.message)` hands it back, and who leaves the block by the exception finds it
        again. Cancels as `receive` does.
        """
        return Values(self.hand_out, deserializer)

    async def read_arrow(
        self, max_messages: int = TABLE_ROWS, max_wait: float = 0.0, *, columns: Columns = COLUMNS
    ) -> "pyarrow.Table":
        """The next messages as an Arrow table, decoded by columns instead of one by one; never an empty one.

        `max_messages`, `max_wait`, positions and cancels are those of `receive_batch`. Wanted columns only are decoded;
        docs/client.md lists all. What is pulled ahead bounds a table too: raise `pull_threshold_for_queue` for larger
        ones. Raises ConfigError for an unknown column or without pyarrow. Where a message cannot be decoded, its
        ProtocolError or BodyUnreadable comes out and nothing was taken: `receive` gets past it.
        """
        return await receive_table(self.hand_out, columns, max_messages, max_wait)

    async def read_pandas(
        self, max_messages: int = TABLE_ROWS, max_wait: float = 0.0, *, columns: Columns = COLUMNS
    ) -> "pandas.DataFrame":
        """As `read_arrow`, as a pandas DataFrame."""
        return await receive_pandas(self.hand_out, columns, max_messages, max_wait)

    async def read_polars(
        self, max_messages: int = TABLE_ROWS, max_wait: float = 0.0, *, columns: Columns = COLUMNS
    ) -> "polars.DataFrame":
        """As `read_arrow`, as a Polars DataFrame."""
        return await receive_polars(self.hand_out, columns, max_messages, max_wait)

    def settle(self) -> None:
        """All that was received is worked on."""
        self.hand_out.settle()

    # ------------------------------------------------------------------------------ handlers, and again

    async def run(
        self,
        handler: Handler,
        *,
        concurrency: int = CONCURRENCY,
        drain_timeout: float = DRAIN_TIMEOUT,
    ) -> None:
        """Call `await handler(message)` for each message, `concurrency` at a time; until cancelled or closed.

            async def bill(message: MessageExt) -> None: ...
            await consumer.run(bill, concurrency=8)

        When the handler returns, the message is done. When it raises an exception, that is logged, and the message goes
        back to the group and comes again later, see `retry`; `ConsumeLater` does that without a log, with a delay of
        your choice. Committed is up to the lowest message of a queue that is not done: at least once, in no order.

        At the end no more messages are taken, and handlers have `drain_timeout` seconds to finish; those that have not
        are cancelled. What is not done is not committed, and is handed out first by another `run` of this consumer.
        A second Ctrl-C waits for nobody. What is no Exception (KeyboardInterrupt) ends the run too, and comes out.

        Without a group to take a message back (`queues=`) an exception of the handler ends the run and comes out.
        Raises ClosedError after the consumer's block was left, BusyResourceError while another task receives.
        """
        if concurrency < 1:
            raise ConfigError(f"concurrency={concurrency} must be at least 1")
        if self.client.traces is not None:
            handler = self.client.traces.handler(self.group, handler)
        self._running = HandlerRun(
            self.hand_out,
            handler,
            self._delivery.hand_back,
            max_reconsume_times=self._delivery.max_reconsume_times,
            is_orderly=self.assigned.locks is not None,
            concurrency=concurrency,
            drain_timeout=drain_timeout,
        )
        await self._running.run(self.assigned.queues.values)

    async def drained(self) -> None:
        """Wait until a `run` in another task has ended, after `close`."""
        if self._running is not None:
            with trio.move_on_after(self._running.drain_timeout + DRAIN_GRACE):
                await self._running.ended.wait()

    async def retry(self, message: MessageExt, delay_level: int = 0) -> None:
        """Hand a message back to the group: it comes again later, to any member, while others go on.

        `delay_level` is 1 to 18 of the broker's list of delays (1 s to 2 h), 0 to wait longer each time (10 s, 30 s,
        1 min ...), -1 for the dead-letter topic at once; there it goes too when it came `max_reconsume_times` again.
        Returns when it is stored; then it is done here, like any message that was worked on. Raises NotReachable,
        BrokerError when no broker stored it, ConfigError without a group to hand it to. After a cancel, and after
        RequestTimeout, nobody knows: it may come again twice.
        """
        check_level(delay_level)
        if self._delivery.send_back is None:
            raise ConfigError(
                "only a member of a group that shares its queues can hand a message back"
            )
        await self._delivery.send_back.send_back(message, delay_level)

    # -------------------------------------------------------------------------------------- offsets

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit all messages received so far, or the given next offsets; returns when brokers have confirmed.

        While handlers `run`, those that are done and have none before them that is not.
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
                if (offset := self.hand_out.committable(process_queue)) is not None
            }
        await self.progress.commit(offsets)

    async def commit_done(self) -> list[Error]:
        """Commit what was worked on; the errors of queues that could not be."""
        return await self.progress.commit_done()

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on from `offset` of an assigned queue; what was pulled is dropped.

        The next commit stores it, also if that lowers what is stored. Synchronous: nothing of it can be cancelled.
        """
        process_queue = self._process_queue(queue)
        check_offset(queue, offset)
        self.hand_out.lost(process_queue)
        self._offsets.reset_offset(queue, offset)
        self.assigned.seek(queue, offset)

    async def seek_to_time(
        self, time: datetime, queues: Iterable[MessageQueue] | None = None
    ) -> dict[MessageQueue, int]:
        """Go to the first message stored at `time` or later, in all assigned queues or some; where each goes on.

        A queue without such a message goes on at its end. Brokers before 5.0 may say the message before. Raises the
        first error when a master cannot be asked: then no queue has moved. A cancel moves none either.
        """
        if time.tzinfo is None:
            raise ConfigError(f"time={time!r} has no time zone")
        answers = await of_each(
            self._chosen(queues), lambda queue: offset_at(self.client, queue, time)
        )
        for answer in answers.values():
            if isinstance(answer, Error):
                raise answer
        moved = {queue: at for queue, at in known(answers).items() if at is not None}
        for queue, offset in moved.items():
            if queue in self.assigned.queues:  # Not moved to another member meanwhile.
                self.seek(queue, offset)
        return moved

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Receive nothing more of these queues, or of all, until `resume`; they stay this member's.

        What was pulled of them is forgotten, and pulled again later. Ends too when a queue moves to another member.
        """
        for queue in self.assigned.queues if queues is None else self._chosen(queues):
            self.assigned.pause(queue)

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Receive from these queues again, or from all."""
        for queue in self.assigned.queues if queues is None else self._chosen(queues):
            self.assigned.resume(queue)
            self.hand_out.offer(self.assigned.queues[queue])

    @property
    def paused(self) -> list[MessageQueue]:
        """The assigned queues that are paused."""
        return [queue for queue in self.assignment if self.assigned.queues[queue].is_paused]

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that this consumer reads now; that of its group's retry topic is its own business."""
        own = retry_topic(self.group)
        return sorted(queue for queue in self.assigned.queues if queue.topic != own)

    def position(self, queue: MessageQueue) -> int | None:
        """Offset of the message that is handed out next; None until the queue's start is known."""
        return self.hand_out.position(self._process_queue(queue))

    async def committed(self, queue: MessageQueue) -> Offset:
        """What is stored for the group, or NOT_FOUND. Raises Error when no broker answers."""
        return await self._offsets.committed(queue)

    async def beginning_offsets(self) -> dict[MessageQueue, int | None]:
        """Offset of the oldest message of each assigned queue, asked of the brokers; None where unknown."""
        return known(await of_each(self.assignment, lambda queue: begin_offset(self.client, queue)))

    async def end_offsets(self) -> dict[MessageQueue, int | None]:
        """The offset that the next message of each assigned queue gets; None where unknown."""
        return known(await of_each(self.assignment, lambda queue: end_offset(self.client, queue)))

    async def lag(self) -> dict[MessageQueue, int | None]:
        """Messages behind the end of each assigned queue, asked of the brokers; None where unknown."""
        found: dict[MessageQueue, int | None] = {}
        for queue, end in (await self.end_offsets()).items():
            process_queue = self.assigned.queues.get(queue)
            position = None if process_queue is None else self.hand_out.position(process_queue)
            # A slave may not have got as far as we have.
            found[queue] = None if position is None or end is None else max(0, end - position)
        return found

    def _chosen(self, queues: Iterable[MessageQueue] | None) -> list[MessageQueue]:
        if queues is None:
            return self.assignment
        return [self._process_queue(queue).queue for queue in queues]

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
                self.hand_out.position(process_queue),
                self.hand_out.done_offset(process_queue),
                process_queue.message_count,
                process_queue.size,
                process_queue.max_offset,
                nodes[queue],
                *self._pulls.where_and_why(queue),
            )
            for queue in nodes
            for process_queue in (self.assigned.queues[queue],)
        }
        return ConsumerStatistics(self.hand_out.handed_out, queues)

    @property
    def is_closed(self) -> bool:
        """Whether its block was left."""
        return self.hand_out.is_closed

    def close(self) -> None:
        """Hand out nothing more; a waiting receive ends with ClosedError."""
        self.hand_out.close()
