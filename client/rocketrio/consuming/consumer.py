"""The object that a user holds: receives messages, commits, and reports its state.

A message that was handed out counts as done when the next receive begins, at `commit()`, and when the block of
`open_consumer` ends without an exception. Only done messages are committed: at least once, never skipped.

Invariant: an answer that brokers could not give is None or an error, never 0.
Answers to: DefaultMQPushConsumer, DefaultLitePullConsumer.
Unlike Java: one class for both, and no listener: the loop belongs to the caller.
"""

from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
)
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import attrs
import trio

from rocketrio.arguments import whole_number
from rocketrio.callables import plain_function
from rocketrio.client import ClientInstance, ask_each
from rocketrio.cluster.api import Offset
from rocketrio.consuming.assignment import Assignment
from rocketrio.consuming.consumer_options import ConsumerOptions
from rocketrio.consuming.frames import (
    COLUMNS,
    TABLE_ROWS,
    Columns,
    receive_pandas,
    receive_polars,
    receive_table,
)
from rocketrio.consuming.hand_out import Batches, HandOut, Values, check_batch
from rocketrio.consuming.offset_store import check_offset
from rocketrio.consuming.process_queue import ProcessQueue
from rocketrio.consuming.pull import PullAPIWrapper
from rocketrio.consuming.rebalance import Rebalance
from rocketrio.consuming.redelivered import RedeliveredMessage
from rocketrio.consuming.running import (
    BATCH_SIZE,
    CONCURRENCY,
    DRAIN_TIMEOUT,
    HANDLER_TIMEOUT,
    BatchHandler,
    Handler,
    Handlers,
)
from rocketrio.consuming.send_back import Delivery, RetryDelay, check_delay, retry_level
from rocketrio.hooks import Hooks, Reader
from rocketrio.live import Live
from rocketrio.routing import PullReason
from rocketrio_protocol.errors import ClosedError, ConfigError, Error, NotReachableError
from rocketrio_protocol.lag import lag_of
from rocketrio_protocol.message import MessageExt, MessageQueue
from rocketrio_protocol.names import retry_topic
from rocketrio_protocol.remoting.tasks import background_nursery, every

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

T = TypeVar("T")
BATCH_MAX_MESSAGES: Final = 1024
CAUGHT_UP_INTERVAL: Final = 0.1
"""Seconds between checks whether a waiting receive has anything left to wait for."""
SHARE_LIMIT: Final = 10.0
"""Seconds in which brokers must report which members share the queues: a few rounds of requests."""


@attrs.frozen
class QueueStatistics:
    """The counts and positions of one queue."""

    position: int | None
    """The offset of the next message to be handed out; None until the start is known."""
    done_offset: int | None
    """The offset that may be committed."""
    cached_messages: int
    cached_bytes: int
    max_offset: int | None
    """The end of the queue at the broker, as the last pull reported it."""
    pull_from_which_node: int
    """The broker id that the next pull goes to."""
    pulled_from: str | None
    """The address that the last pull went to; None before the first pull."""
    pull_reason: PullReason | None
    """Why the last pull went there."""
    pulls: dict[PullReason, int]
    """The number of pulls for each reason of choosing their broker."""
    log_cuts: int
    """How often the log had become shorter than what was read, so that the queue went back."""
    dropped_commits: int
    """How many commits brokers have dropped since the last one that they stored; 0 while they store them."""


@attrs.frozen
class ConsumerStatistics:
    """A consumer's counts and positions."""

    handed_out: int
    queues: dict[MessageQueue, QueueStatistics]


@attrs.define(eq=False, repr=False)
class Consumer(Live):
    """The consumer that `open_consumer` makes. Only one task at a time may receive from it."""

    client: ClientInstance
    _options: ConsumerOptions
    rebalances: deque[Rebalance]
    """Queues that moved between this member and the others of the group, newest last."""
    _hand_out: HandOut
    _assigned: Assignment
    _pulls: PullAPIWrapper
    _delivery: Delivery
    _handlers: Handlers
    _reader: Reader
    """What hooks need of it."""

    @property
    def group(self) -> str:
        """The name of the group that consumes."""
        return self._options.group

    def __repr__(self) -> str:
        return f"<Consumer group={self.group} queues={len(self._assigned.queues)}>"

    # ------------------------------------------------------------------------------------ receiving

    def __aiter__(self) -> AsyncIterator[MessageExt]:
        if self.client.hooks is not None:
            return ObservedMessages(self._hand_out, self.client.hooks, self._reader)
        return self._hand_out  # The iterator itself, without a wrapper: one call less per message.

    def __anext__(self) -> Coroutine[Any, Any, MessageExt]:
        return self._hand_out.__anext__() if self.client.hooks is None else self.receive()

    async def receive(self) -> MessageExt:
        """Return the next message; wait until there is one.

        Beginning to receive marks the messages received before as done, so that automatic commits include them. A
        cancel takes no message. Raises ClosedError after the consumer's block was left.
        """
        hooks = self.client.hooks
        if hooks is None:
            return await self._hand_out.__anext__()
        received = hooks.receiving(self._reader)
        message = await self._hand_out.__anext__()
        received([message])
        return message

    def batches(
        self, max_messages: int = BATCH_MAX_MESSAGES, max_wait: float = 0.0
    ) -> AsyncIterator[list[MessageExt]]:
        """Iterate over lists of messages, never empty, instead of single messages.

        Each list has at most `max_messages` messages, of one queue or several, in order per queue. A list is returned
        as soon as there is a message; with `max_wait` only when it is full, when a queue may not pull ahead any
        further, or after that many seconds. The decompressed size of a list is bounded (INFLATE_LIMIT): a list that
        would exceed it is shorter. Cancels as `receive` does.
        """
        check_batch(max_messages, max_wait)
        receiver = self._hand_out if self.client.hooks is None else self
        return Batches(receiver, max_messages, max_wait)

    async def receive_batch(
        self, max_messages: int = BATCH_MAX_MESSAGES, max_wait: float = 0.0
    ) -> list[MessageExt]:
        """Return the next list of `batches`."""
        hooks = self.client.hooks
        if hooks is None:
            return await self._hand_out.receive_batch(max_messages, max_wait)
        received = hooks.receiving(self._reader)
        messages = await self._hand_out.receive_batch(max_messages, max_wait)
        received(messages)
        return messages

    def values(self, deserializer: Callable[[MessageExt], T]) -> Values[T]:
        """Iterate over `deserializer(message)` instead of messages.

            async for order in consumer.values(lambda message: message.json(Order)):

        An exception of the deserializer comes out of the loop, with a note that names the message. The message is then
        in work, like any other received message: continuing with the same iterator marks it as done and skips it,
        `await consumer.retry(values.message)` hands it back, and leaving the block with the exception redelivers it.
        Cancels as `receive` does.
        """
        plain_function("deserializer", deserializer)
        return Values(aiter(self), deserializer)

    async def read_arrow(
        self, max_messages: int = TABLE_ROWS, max_wait: float = 0.0, *, columns: Columns = COLUMNS
    ) -> "pyarrow.Table":
        """Return the next messages as an Arrow table, never empty; they are decoded by column instead of one by one.

        `max_messages`, `max_wait`, positions and cancels work as in `receive_batch`. Only the requested columns are
        decoded; docs/client.md lists all. A table has no more rows than were pulled ahead: raise
        `Prefetch(queue_messages=)` for larger tables. Raises ConfigError for an unknown column, or if pyarrow is
        missing.
        If a message cannot be decoded, its ProtocolError or BodyUnreadableError is raised and no message was taken:
        `receive` gets past it.
        """
        return await receive_table(self._hand_out, columns, max_messages, max_wait)

    async def read_pandas(
        self, max_messages: int = TABLE_ROWS, max_wait: float = 0.0, *, columns: Columns = COLUMNS
    ) -> "pandas.DataFrame":
        """Return the next messages as a pandas DataFrame; otherwise as `read_arrow`."""
        return await receive_pandas(self._hand_out, columns, max_messages, max_wait)

    async def read_polars(
        self, max_messages: int = TABLE_ROWS, max_wait: float = 0.0, *, columns: Columns = COLUMNS
    ) -> "polars.DataFrame":
        """Return the next messages as a Polars DataFrame; otherwise as `read_arrow`."""
        return await receive_polars(self._hand_out, columns, max_messages, max_wait)

    def until_caught_up(
        self,
        receive: Callable[[], Awaitable[T]],
        ends: Mapping[MessageQueue, int] | None = None,
    ) -> AsyncGenerator[T]:
        """Iterate over the results of `receive`, until all messages that existed at the start were received.

            async for messages in consumer.until_caught_up(consumer.receive_batch): ...
            async for table in consumer.until_caught_up(consumer.read_arrow): ...

        The start is when the first result is requested; later messages may be included. `ends` names other offsets to
        end at, of all queues; a queue that it does not name counts as read. If a queue moves to another
        member meanwhile, that member reads the rest. At the end all received messages count as done.

        Raises what `receive` raises, and NotReachableError if no broker reports the end of a queue or its owner.
        """
        return _until_caught_up(self, receive, ends)

    def _settle(self) -> None:
        """Mark all received messages as done."""
        self._hand_out.settle()

    # -------------------------------------------------------------------------- handlers and redelivery

    async def run(
        self,
        handler: Handler,
        *,
        concurrency: int = CONCURRENCY,
        drain_timeout: float = DRAIN_TIMEOUT,
        handler_timeout: float = HANDLER_TIMEOUT,
    ) -> None:
        """Call `await handler(message)` for each message, `concurrency` at a time, until cancelled or closed.

            async def bill(message: MessageExt) -> None: ...
            await consumer.run(bill, concurrency=8)

        When the handler returns, the message is done. When it raises an exception, the exception is logged, and the
        message goes back to the group and is delivered again later, see `retry`; raising `ConsumeLater` does the same
        without a log line, with a delay of your choice. A queue is committed up to its lowest message that is not done:
        at least once, in no order. A handler that takes longer than `handler_timeout` seconds (up to a tenth more) is
        cancelled and has failed.

        At the end no more messages are taken, and handlers have `drain_timeout` seconds to finish; after that they are
        cancelled. Messages that are not done are not committed, and another `run` of this consumer handles them first.
        A second Ctrl-C does not wait. A BaseException that is not an Exception (KeyboardInterrupt) also ends the run
        and is raised.

        If no group can take a message back (`queues=`), an exception of the handler ends the run and is raised.
        Raises ClosedError after the consumer's block was left, BusyResourceError while another task receives, and
        ConfigError for a handler that is not async.
        """
        await self._handlers.run(
            handler,
            batch_size=None,
            concurrency=concurrency,
            drain_timeout=drain_timeout,
            handler_timeout=handler_timeout,
        )

    async def run_batches(
        self,
        handler: BatchHandler,
        max_messages: int = BATCH_SIZE,
        *,
        concurrency: int = CONCURRENCY,
        drain_timeout: float = DRAIN_TIMEOUT,
        handler_timeout: float = HANDLER_TIMEOUT,
    ) -> None:
        """Do as `run`, but pass the handler a list of 1 to `max_messages` messages of one queue, in order.

            async def store(messages: list[MessageExt]) -> None: ...
            await consumer.run_batches(store, 100)

        A list holds the messages that are available; it is never waited for to fill up. When the handler returns, the
        whole list is done; when it raises, the whole list goes back to the group, unless it raises
        `ConsumeLater(done=n)`: then the first n messages are done. An orderly consumer tries a failed list again
        unchanged, without dead letters.
        """
        whole_number("max_messages", max_messages, least=1)
        await self._handlers.run(
            handler,
            batch_size=max_messages,
            concurrency=concurrency,
            drain_timeout=drain_timeout,
            handler_timeout=handler_timeout,
        )

    async def retry(self, message: MessageExt, delay: RetryDelay = None) -> None:
        """Hand a message back to the group: it is delivered again later, to any member, while other messages go on.

        `delay` is a timedelta: brokers have a list of delays (1 s to 2 h), and the shortest one that is at least as
        long is used. None waits longer each time (10 s, 30 s, 1 min ...), `GIVE_UP` sends the message to the
        dead-letter topic at once; it also goes there after `max_reconsume_times` redeliveries. Returns when a broker
        has stored it; then it is done here, like any handled message. Raises NotReachableError or BrokerError if no
        broker stored it, ConfigError without a group to hand it to, LocalProtocolError for a delay beyond the longest.
        After a cancel or RequestTimeoutError it is unknown whether it was stored: it may be delivered twice.
        """
        check_delay(delay)
        if self._delivery.send_back is None:
            raise ConfigError(
                "only a member of a group that shares its queues can hand a message back"
            )
        level = retry_level(delay, self._delivery.delay_levels)
        await self._delivery.send_back.send_back(message, level)
        self._count_handed_back(message)

    def _count_handed_back(self, message: MessageExt) -> None:
        is_retry = isinstance(message, RedeliveredMessage)
        topic = retry_topic(self.group) if is_retry else message.topic
        queue = MessageQueue(topic, message.broker_name, message.queue_id)
        process_queue = self._assigned.queues.get(queue)
        if process_queue is not None:
            process_queue.counts.failed += 1
            process_queue.counts.handed_back += 1

    # -------------------------------------------------------------------------------------- offsets

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit all messages received so far, or the given next offsets; return when the brokers have confirmed.

        While handlers `run`, only messages that are done and have no unfinished message before them are committed.
        Never lowers a committed offset (see `seek`). Raises NotReachableError or BrokerError if a queue could not be
        committed, and CommitRefusedError if an operator has reset it or another member got it meanwhile; the other
        queues are committed, and a later commit includes the failed one. A cancel leaves open which queues were
        committed.
        """
        if self.is_closed:
            raise ClosedError(f"the consumer of group {self.group} is closed")
        if offsets is None:
            offsets = {
                queue: offset
                for queue, process_queue in self._assigned.queues.items()
                if (offset := self._hand_out.committable(process_queue)) is not None
            }
        hooks = self.client.hooks
        if hooks is None:
            await self._assigned.commit(offsets)
        else:
            with hooks.committing(self._reader, list(offsets)):
                await self._assigned.commit(offsets)

    async def _commit_done(self) -> list[Error]:
        """Commit the messages that are done; return the errors of queues that could not be committed."""
        return await self._assigned.commit_done()

    # ------------------------------------------------------------------------------------ positions

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at `offset` of an assigned queue; pulled messages are dropped.

        The next commit stores the offset, even if it lowers the stored one. Synchronous: it cannot be cancelled
        halfway.
        """
        process_queue = self._process_queue(queue)
        check_offset(queue, offset)
        # First what was pulled, and no await up to the end: no message of the former position comes after the move.
        self._hand_out.lost(process_queue)
        self._assigned.offsets.reset_offset(queue, offset)
        self._assigned.seek(queue, offset)

    async def seek_to_time(
        self, time: datetime, queues: Iterable[MessageQueue] | None = None
    ) -> dict[MessageQueue, int]:
        """Move to the first message stored at `time` or later, in all assigned queues or some; return the new offsets.

        A queue without such a message continues at its end. Brokers before 5.0 may answer with the message before.
        Raises the first error if a master cannot be asked; then no queue has moved. A cancel moves no queue either.
        """
        if time.tzinfo is None:
            raise ConfigError(f"time={time!r} has no time zone")
        answers = await ask_each(
            self._chosen(queues), lambda queue: self.client.offset_at(queue, time)
        )
        for answer in answers.values():
            if isinstance(answer, Error):
                raise answer
        moved = {queue: at for queue, at in _known(answers).items() if at is not None}
        for queue, offset in moved.items():
            # The queue may have moved to another member meanwhile.
            if queue in self._assigned.queues:
                self.seek(queue, offset)
        return moved

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Receive nothing more of these queues, or of all, until `resume`; they stay assigned to this member.

        Messages that were pulled from them are dropped and pulled again later. The pause also ends when a queue moves
        to another member.
        """
        for queue in self._assigned.queues if queues is None else self._chosen(queues):
            self._assigned.pause(queue)

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Receive from these queues again, or from all."""
        for queue in self._assigned.queues if queues is None else self._chosen(queues):
            self._assigned.resume(queue)
            self._hand_out.offer(self._assigned.queues[queue])

    @property
    def paused(self) -> list[MessageQueue]:
        """The assigned queues that are paused."""
        return [queue for queue in self.assignment if self._assigned.queues[queue].is_paused]

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that this consumer reads now, without the queues of its group's retry topic."""
        own = retry_topic(self.group)
        return sorted(queue for queue in self._assigned.queues if queue.topic != own)

    def position(self, queue: MessageQueue) -> int | None:
        """Return the offset of the message that is handed out next; None until the queue's start is known."""
        return self._hand_out.position(self._process_queue(queue))

    async def committed_offset(self, queue: MessageQueue) -> Offset:
        """Return the stored offset of the group, or NOT_FOUND. Raises Error if no broker answers."""
        return (await self._assigned.offsets.committed(queue)).offset

    async def min_offsets(self) -> dict[MessageQueue, int | None]:
        """Ask the brokers for the offset of each assigned queue's oldest message; None where unknown."""
        return _known(await ask_each(self.assignment, self.client.min_offset))

    async def max_offsets(self) -> dict[MessageQueue, int | None]:
        """Ask the brokers for the offset that each assigned queue's next message gets; None where unknown."""
        return _known(await ask_each(self.assignment, self.client.max_offset))

    async def lag(self) -> dict[MessageQueue, int | None]:
        """Ask the brokers how many messages each assigned queue's position is behind its end; None where unknown.

        It is also None where the position lies beyond the end that a broker reports: a slave that has not come as far,
        or a log that became shorter.
        """
        found: dict[MessageQueue, int | None] = {}
        for queue, end in (await self.max_offsets()).items():
            process_queue = self._assigned.queues.get(queue)
            position = None if process_queue is None else self._hand_out.position(process_queue)
            found[queue] = lag_of(position, end)
        return found

    def _chosen(self, queues: Iterable[MessageQueue] | None) -> list[MessageQueue]:
        if queues is None:
            return self.assignment
        return [self._process_queue(queue).queue for queue in queues]

    def _process_queue(self, queue: MessageQueue) -> ProcessQueue:
        process_queue = self._assigned.queues.get(queue)
        if process_queue is None:
            raise ConfigError(f"{queue} is not assigned to this consumer of group {self.group}")
        return process_queue

    # -------------------------------------------------------------------------- state and statistics

    @property
    def pull_from_which_node_table(self) -> dict[MessageQueue, int]:
        """The broker id from which each assigned queue is pulled next."""
        return {queue: self._pulls.next_node(queue) for queue in self.assignment}

    def statistics(self) -> ConsumerStatistics:
        """Return counts and positions."""
        nodes = self.pull_from_which_node_table
        queues = {
            queue: QueueStatistics(
                self._hand_out.position(process_queue),
                self._hand_out.done_offset(process_queue),
                process_queue.message_count,
                process_queue.size,
                process_queue.max_offset,
                nodes[queue],
                *self._pulls.last_choice(queue),
                process_queue.counts.log_cuts,
                self._assigned.offsets.dropped_commits(queue),
            )
            for queue in nodes
            for process_queue in (self._assigned.queues[queue],)
        }
        return ConsumerStatistics(self._hand_out.handed_out, queues)

    @property
    def is_closed(self) -> bool:
        """Whether the consumer's block was left."""
        return self._hand_out.is_closed


@attrs.define
class ObservedMessages:
    """Iterator over messages, one by one, each of which the hooks observe."""

    messages: AsyncIterator[MessageExt]
    hooks: Hooks
    reader: Reader

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MessageExt:
        received = self.hooks.receiving(self.reader)
        message = await anext(self.messages)
        received([message])
        return message


def _known(answers: Mapping[MessageQueue, int | Error]) -> dict[MessageQueue, int | None]:
    """Replace errors by None."""
    return {queue: a if isinstance(a, int) else None for queue, a in answers.items()}


async def _until_caught_up(
    consumer: Consumer,
    receive: Callable[[], Awaitable[T]],
    ends: Mapping[MessageQueue, int] | None,
) -> AsyncGenerator[T]:
    """Iterate as described at `Consumer.until_caught_up`.

    The goal is the end of each queue that the consumer owns when the first message is requested. A queue reaches its
    goal by its position, which also passes messages that no tag or expression selects: no idle time has to be guessed.
    It ends only when each message below the goal was handed out, or its queue belongs to another member.
    """
    await _wait_for_share(consumer)
    if ends is None:
        ends = {queue: await consumer.client.max_offset(queue) for queue in consumer.assignment}
    while not _is_past(consumer, ends):
        received: list[T] = []
        async with background_nursery() as nursery:
            nursery.start_soon(_end_when_past, consumer, ends, nursery.cancel_scope)
            received.append(await receive())  # If it is cancelled, it takes no message.
        for one in received:
            yield one
    consumer._settle()


async def _wait_for_share(consumer: Consumer) -> None:
    # Without a share there would be nothing to consume, and that would be mistaken for the end.
    deadline = trio.current_time() + SHARE_LIMIT
    while not consumer.rebalances and not consumer.assignment:
        if trio.current_time() >= deadline:
            raise NotReachableError(
                f"no broker reported within {SHARE_LIMIT:.0f} s which queues this member of group {consumer.group} has"
            )
        await trio.sleep(CAUGHT_UP_INTERVAL)


async def _end_when_past(
    consumer: Consumer, ends: Mapping[MessageQueue, int], scope: trio.CancelScope
) -> None:
    async for _ in every(CAUGHT_UP_INTERVAL, first_after=CAUGHT_UP_INTERVAL):
        if _is_past(consumer, ends):
            scope.cancel()


def _is_past(consumer: Consumer, ends: Mapping[MessageQueue, int]) -> bool:
    # A queue that another member took over is finished by that member.
    for queue in consumer.assignment:
        position = consumer.position(queue)
        if position is None or position < ends.get(queue, 0):
            return False
    return True
