"""What a user holds: receives messages, commits, and asks how it stands.

What was handed out counts as worked on when the next receive begins, at `commit()`, and when the block of
`open_consumer` ends without an exception. Only that is committed: at least once, never skipped.

Answers to: DefaultMQPushConsumer, DefaultLitePullConsumer.
Unlike Java: one consumer for both, and no listener: the loop is the caller's.
"""

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from rocketrio.arguments import seconds, whole_number
from rocketrio.callables import async_function, plain_function
from rocketrio.consuming.assignment import Assignment
from rocketrio.consuming.batches import Batches
from rocketrio.consuming.caught_up import until_caught_up
from rocketrio.consuming.consume_rates import ConsumeRates
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
from rocketrio.consuming.hand_out import HandOut, check_batch
from rocketrio.consuming.hands import HANDLER_TIMEOUT
from rocketrio.consuming.offsets import OffsetStore
from rocketrio.consuming.positions import ConsumerPositions
from rocketrio.consuming.pull import PullAPIWrapper
from rocketrio.consuming.rebalance_report import RECENT_REBALANCES, Rebalance
from rocketrio.consuming.redelivered import RedeliveredMessage
from rocketrio.consuming.running import (
    BATCH_SIZE,
    CONCURRENCY,
    DRAIN_TIMEOUT,
    BatchHandler,
    Handler,
    HandlerRun,
)
from rocketrio.consuming.send_back import RetryDelay, check_delay, retry_level
from rocketrio.consuming.values import Values
from rocketrio.instance import ClientInstance
from rocketrio_protocol.errors import ClosedError, ConfigError, Error
from rocketrio_protocol.message import MessageExt, MessageQueue
from rocketrio_protocol.names import retry_topic

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

T = TypeVar("T")
BATCH_MAX_MESSAGES: Final = 1024
DRAIN_GRACE: Final = 1.0
"""Seconds beyond the drain timeout that a cancelled handler is waited for."""


class Consumer(ConsumerPositions):
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
        self.rates = ConsumeRates(self.assigned.queues, self.hand_out.position)
        """How fast it is, by topic."""
        self.progress = GroupProgress(group, self.assigned, offsets, self.rates, auto_commit)
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
        later. What its compressed bodies grow to is bounded (INFLATE_LIMIT): then it is shorter. Cancels as `receive`
        does.
        """
        check_batch(max_messages, max_wait)
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
        plain_function("deserializer", deserializer)
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

    def until_caught_up(self, receive: Callable[[], Awaitable[T]]) -> AsyncGenerator[T]:
        """Iterates over what `receive` gives, and ends when all messages that were there at the start were received.

            async for messages in consumer.until_caught_up(consumer.receive_batch): ...
            async for table in consumer.until_caught_up(consumer.read_arrow): ...

        The start is when the first is asked for; what comes later may be among it. Of a queue that moves to another
        member meanwhile the rest is that member's. At the end all that was received counts as worked on.

        Raises what `receive` raises, NotReachable where no broker tells where a queue ends or whose it is.
        """
        return until_caught_up(self, receive)

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
        handler_timeout: float = HANDLER_TIMEOUT,
    ) -> None:
        """Call `await handler(message)` for each message, `concurrency` at a time; until cancelled or closed.

            async def bill(message: MessageExt) -> None: ...
            await consumer.run(bill, concurrency=8)

        When the handler returns, the message is done. When it raises an exception, that is logged, and the message goes
        back to the group and comes again later, see `retry`; `ConsumeLater` does that without a log, with a delay of
        your choice. Committed is up to the lowest message of a queue that is not done: at least once, in no order.
        A handler that takes over `handler_timeout` seconds (a tenth more at most) is cancelled: it has failed.

        At the end no more messages are taken, and handlers have `drain_timeout` seconds to finish; those that have not
        are cancelled. What is not done is not committed, and is handed out first by another `run` of this consumer.
        A second Ctrl-C waits for nobody. What is no Exception (KeyboardInterrupt) ends the run too, and comes out.

        Without a group to take a message back (`queues=`) an exception of the handler ends the run and comes out.
        Raises ClosedError after the consumer's block was left, BusyResourceError while another task receives, and
        ConfigError for a handler that is not async.
        """
        await self._run(handler, None, concurrency, drain_timeout, handler_timeout)

    async def run_batches(
        self,
        handler: BatchHandler,
        max_messages: int = BATCH_SIZE,
        *,
        concurrency: int = CONCURRENCY,
        drain_timeout: float = DRAIN_TIMEOUT,
        handler_timeout: float = HANDLER_TIMEOUT,
    ) -> None:
        """As `run`, but the handler gets a list of up to `max_messages` messages of one queue, in order, never empty.

            async def store(messages: list[MessageExt]) -> None: ...
            await consumer.run_batches(store, 100)

        A list is what is at hand; nobody waits for it to be full. When the handler returns, all of it is done; when it
        raises, all of it goes back to the group, unless it raises `ConsumeLater(done=n)`: then its first n are done.
        Where order counts a failed list is tried again as it is, without what became a dead letter.
        """
        whole_number("max_messages", max_messages, least=1)
        await self._run(handler, max_messages, concurrency, drain_timeout, handler_timeout)

    async def _run(
        self,
        handler: Callable[[Any], Awaitable[object]],
        batch_size: int | None,
        concurrency: int,
        drain_timeout: float,
        handler_timeout: float,
    ) -> None:
        whole_number("concurrency", concurrency, least=1)
        seconds("drain_timeout", drain_timeout, may_be_0=True)
        seconds("handler_timeout", handler_timeout)
        handler = async_function("handler", handler)
        if self.client.traces is not None:
            handler = self.client.traces.handler(self.group, handler)
        self.hand_out.check_free()  # Before another run, if there is one, is forgotten.
        self._running = HandlerRun(
            self.hand_out,
            handler,
            self._delivery.hand_back,
            max_reconsume_times=self._delivery.max_reconsume_times,
            delay_levels=self._delivery.delay_levels,
            is_orderly=self.assigned.locks is not None,
            concurrency=concurrency,
            drain_timeout=drain_timeout,
            handler_timeout=handler_timeout,
            batch_size=batch_size,
        )
        await self._running.run(self.assigned.queues.values)

    async def drained(self) -> None:
        """Wait until a `run` in another task has ended, after `close`."""
        if self._running is not None:
            with trio.move_on_after(self._running.drain_timeout + DRAIN_GRACE):
                await self._running.ended.wait()

    async def retry(self, message: MessageExt, delay: RetryDelay = None) -> None:
        """Hand a message back to the group: it comes again later, to any member, while others go on.

        `delay` is a timedelta: brokers have a list of delays (1 s to 2 h), and the shortest one that is not shorter is
        taken. None waits longer each time (10 s, 30 s, 1 min ...), `GIVE_UP` is for the dead-letter topic at once;
        there it goes too when it came `max_reconsume_times` again. Returns when it is stored; then it is done here,
        like any message that was worked on. Raises NotReachable, BrokerError when no broker stored it, ConfigError
        without a group to hand it to, LocalProtocolError for a delay beyond the longest. After a cancel, and after
        RequestTimeout, nobody knows: it may come again twice.
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
        process_queue = self.assigned.queues.get(queue)
        if process_queue is not None:
            process_queue.counts.failed += 1
            process_queue.counts.handed_back += 1

    @property
    def handlers(self) -> HandlerRun | None:
        """The `run` that is under way; None while messages are received otherwise."""
        run = self._running
        return None if run is None or run.ended.is_set() else run

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
                process_queue.counts.log_cuts,
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
