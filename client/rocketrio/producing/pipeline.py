"""Sends many messages at full speed: messages given while one batch is under way become the next batch.

Each queue has one worker with one request under way, so that messages of a queue keep the order of `send`. Messages
without a key wait in a common line, from which any free worker takes a batch.

Invariant: at most one request per queue is under way.
Invariant: a line returns messages in the order in which it got them.
Invariant: each message ends as stored or among the failures; leaving the pipeline reports which.
Answers to: ProduceAccumulator (5.x) and DefaultMQProducer's asynchronous sends.
Unlike Java: batches are not cut by a timer; their size depends on how busy the broker is.
"""

import logging
from collections import Counter, deque
from collections.abc import Sequence
from contextvars import copy_context
from typing import Final, Self

import attrs
import msgspec
import trio

from rocketrio.counts import counted
from rocketrio.live import Live
from rocketrio.producing.delays import check_level
from rocketrio.producing.observed import observed_attempt
from rocketrio.producing.outgoing import (
    Entry,
    Outgoing,
    batch_outgoing,
    check_topic,
    encode_entry,
    encode_single,
)
from rocketrio.producing.publish_route import queue_for_key
from rocketrio.producing.send_result import SendStatus, is_worth_another_broker
from rocketrio.producing.sender import MessageSender
from rocketrio_protocol.errors import ClosedError, ConfigError, Error
from rocketrio_protocol.message import Message, MessageQueue
from rocketrio_protocol.names import RETRY_PREFIX
from rocketrio_protocol.record.batch import ENTRY_OVERHEAD

BATCH_MAX_BYTES: Final = 128 * 1024
"""Bytes of a full batch: larger ones do not make a broker faster, and other requests wait longer."""
BATCH_MAX_MESSAGES: Final = 1000
PENDING_LIMIT: Final = 10_000
"""The number of messages that may wait to be sent; equal to Java's send queue of a broker."""
CHECKPOINT_EVERY: Final = 128
"""The number of sends without waiting, after which other tasks get a turn: that is how batches form."""
AVOIDED_PAUSE: Final = 0.2
"""Seconds for which the worker of a failed broker leaves messages to the workers of other brokers."""
FAILURE_LIMIT: Final = 10_000
"""The number of failed messages that `take_failures` has not returned; one more ends the pipeline."""

logger = logging.getLogger("rocketrio.producer")


class MessagesNotStoredError(Error):
    """Messages of a pipeline were not stored, or possibly not; `failures` has them, each with its error."""

    def __init__(self, failures: "Sequence[SendFailure]") -> None:
        first = failures[0]
        super().__init__(
            f"{counted(len(failures), 'message')} not stored; the first one: {first.error}",
            topic=first.message.topic,
            remedy="`failures` holds them; send them again",
        )
        self.failures = list(failures)

    def __reduce__(self) -> tuple[type[Self], tuple[list["SendFailure"]]]:
        return type(self), (self.failures,)


@attrs.frozen
class SendFailure:
    """A message that was not stored, or possibly not."""

    message: Message
    error: Error


@attrs.frozen
class PipelineStatistics:
    """The counts of a pipeline."""

    stored: dict[SendStatus, int]
    """The number of stored messages by status."""
    failed: int
    requests: int
    pending: int


class WaitingMessage(msgspec.Struct, gc=False, eq=False):
    """A message that waits for its batch; `entry` is None for a message that is sent alone.

    A struct without garbage collection: thousands wait, and messages have no reference back to their struct.
    """

    message: Message
    unique_id: str
    entry: Entry | None
    size: int
    given: Message
    """The user's message; `message` may be a copy with properties that a hook has added."""
    attempts: int = 0

    @property
    def is_special(self) -> bool:
        """Whether it cannot simply share a batch with its neighbours."""
        return self.entry is None or not self.message.wait_store_ok


@attrs.define(eq=False)
class Line:
    """Messages in order, for one queue or for any."""

    waiting: deque[WaitingMessage] = attrs.Factory(deque)
    size: int = 0
    special_count: int = 0
    lingering: trio.lowlevel.ParkingLot = attrs.Factory(trio.lowlevel.ParkingLot)
    """Workers that wait for a batch of this line to grow."""

    def is_full(self, batch_size: int) -> bool:
        """Return whether a batch of this line cannot grow any more."""
        return self.size >= batch_size or len(self.waiting) >= BATCH_MAX_MESSAGES

    def put_back(self, items: Sequence[WaitingMessage]) -> None:
        """Put messages that were not stored back at the front."""
        # In front and in their order: later messages of the line must not overtake them.
        self.waiting.extendleft(reversed(items))
        self.size += sum(item.size for item in items)
        self.special_count += sum(item.is_special for item in items)

    def take(self, batch_size: int) -> list[WaitingMessage]:
        """Take the messages that fit one request: at least one."""
        waiting = self.waiting
        if (
            not self.special_count
            and self.size <= batch_size
            and len(waiting) <= BATCH_MAX_MESSAGES
        ):
            taken = list(waiting)
            waiting.clear()
            self.size = 0
            return taken
        taken, size = [], 0
        while waiting and len(taken) < BATCH_MAX_MESSAGES:
            item = waiting[0]
            is_alone = item.entry is None
            differs = bool(taken) and item.message.wait_store_ok != taken[0].message.wait_store_ok
            if taken and (is_alone or differs or size + item.size > batch_size):
                break
            taken.append(waiting.popleft())
            size += item.size
            self.special_count -= item.is_special
            if is_alone:
                break
        self.size -= size
        return taken


@attrs.define(eq=False)
class QueueWorker:
    """The task that sends to one queue."""

    queue: MessageQueue
    takes_unkeyed: bool
    line: Line = attrs.Factory(Line)
    parked: trio.Event | None = None

    def wake(self) -> None:
        """Wake the worker: its line has a message."""
        if self.parked is not None:
            self.parked.set()


@attrs.define(eq=False)
class Topic:
    """The lines and workers of one topic."""

    unkeyed_line: Line = attrs.Factory(Line)
    idle: deque[QueueWorker] = attrs.Factory(deque)
    by_queue: dict[MessageQueue, QueueWorker] = attrs.Factory(dict)
    has_unkeyed_workers: bool = False
    takes_batches: bool = True

    def end_lingering(self) -> None:
        """Let waiting workers send their batches now."""
        for line in (self.unkeyed_line, *(worker.line for worker in self.by_queue.values())):
            line.lingering.unpark_all()


class SendPipeline(Live):
    """The pipeline that `Producer.pipeline` makes; one task gives it messages."""

    def __init__(
        self,
        sender: MessageSender,
        nursery: trio.Nursery,
        *,
        linger: float,
        batch_size: int,
        pending_limit: int,
    ) -> None:
        self._sender = sender
        self._next_id = sender.client.unique_ids.next
        self._max_message_size = sender.max_message_size
        self._nursery = nursery
        # Otherwise the workers would continue the context of the task that happens to send the first message.
        self._context = copy_context()
        self._linger = linger
        self._batch_size = batch_size
        self._pending_limit = pending_limit
        self._topics: dict[str, Topic] = {}
        self._pending = 0
        # With this many pending messages other tasks get a turn first; raised each time.
        self._pause_at = 0
        self._stored: Counter[SendStatus] = Counter()
        self._failures: list[SendFailure] = []
        self._failed = 0
        self._requests = 0
        self._progress = trio.lowlevel.ParkingLot()
        self._waiting_tasks = 0
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<SendPipeline pending={self._pending} failed={self._failed}>"

    def statistics(self) -> PipelineStatistics:
        """Return the counts so far."""
        return PipelineStatistics(dict(self._stored), self._failed, self._requests, self._pending)

    async def send(
        self,
        message: Message,
        *,
        sharding_key: str | None = None,
        queue: MessageQueue | None = None,
    ) -> None:
        """Take a message; wait only while the pipeline is full, and the first time for a topic's route.

        Raises LocalProtocolError for a message that cannot be sent, ClosedError after the block was left. `flush` waits
        until it is known whether the message was stored. If the call is cancelled, the message was not taken.
        """
        topic = self._topics.get(message.topic)
        if topic is None or self._pending >= self._pause_at:
            topic = await self._prepare(message.topic)
        if sharding_key is None and queue is None:
            if not topic.has_unkeyed_workers:
                await self._start_unkeyed_workers(message.topic, topic)
            self._append(topic, topic.unkeyed_line, message)
            if topic.idle:
                topic.idle.popleft().wake()
            return
        if queue is None:
            assert sharding_key is not None
            known = self._sender.routes.cached(message.topic)
            queues = known.by_key if known else await self._keyed_queues(message.topic)
            queue = queue_for_key(sharding_key, queues)
        elif queue.topic != message.topic or sharding_key is not None:
            raise ConfigError(
                f"{queue} is not a queue of {message.topic!r}, or sharding_key= is also given"
            )
        worker = topic.by_queue.get(queue) or self._start_worker(topic, queue, takes_unkeyed=False)
        self._append(topic, worker.line, message)
        worker.wake()

    def close(self) -> None:
        """Take no more messages, because the workers are about to end."""
        self._is_closed = True
        self._pause_at = 0  # The next send then checks in any case.

    async def flush(self) -> None:
        """Wait until every message given so far was answered or has failed."""
        await trio.lowlevel.checkpoint()
        await self._wait_below(1)

    def take_failures(self) -> list[SendFailure]:
        """Return the messages not stored so far; leaving the block does not raise for them any more."""
        failures, self._failures = self._failures, []
        return failures

    def raise_failures(self) -> None:
        """Raise MessagesNotStoredError if there are failures that `take_failures` has not returned."""
        if self._failures:
            raise MessagesNotStoredError(self._failures)

    # --------------------------------------------------------------------------- taking messages

    async def _prepare(self, name: str) -> Topic:
        await trio.lowlevel.checkpoint()
        if len(self._failures) >= FAILURE_LIMIT:
            raise MessagesNotStoredError(self._failures)
        await self._wait_below(self._pending_limit)
        if self._is_closed:
            raise ClosedError("the pipeline's block was left", remedy="Open another pipeline")
        self._pause_at = min(self._pending + CHECKPOINT_EVERY, self._pending_limit)
        topic = self._topics.get(name)
        if topic is None:
            check_topic(name)
            topic = self._topics[name] = Topic(takes_batches=not name.startswith(RETRY_PREFIX))
        elif self._sender.routes.cached(name) is None:
            topic.has_unkeyed_workers = False  # The route changed: there may be new queues.
        return topic

    async def _wait_below(self, pending: int) -> None:
        if self._pending < pending:
            return
        # A task that waits here adds no messages, so batches need not linger.
        self._waiting_tasks += 1
        try:
            for topic in self._topics.values():
                topic.end_lingering()
            while self._pending >= pending:
                await self._progress.park()
        finally:
            self._waiting_tasks -= 1

    async def _start_unkeyed_workers(self, name: str, topic: Topic) -> None:
        for queue in await self._sender.routes.queues(name):
            self._start_worker(topic, queue, takes_unkeyed=True)
        topic.has_unkeyed_workers = True

    async def _keyed_queues(self, name: str) -> list[MessageQueue]:
        return await self._sender.routes.keyed_queues(name)

    def _start_worker(
        self, topic: Topic, queue: MessageQueue, *, takes_unkeyed: bool
    ) -> QueueWorker:
        worker = topic.by_queue.get(queue)
        if worker is not None:
            worker.takes_unkeyed = worker.takes_unkeyed or takes_unkeyed
            if takes_unkeyed and worker.parked is not None:
                topic.idle.append(worker)
            return worker
        worker = topic.by_queue[queue] = QueueWorker(queue, takes_unkeyed)
        self._context.run(self._nursery.start_soon, self._work, topic, worker)
        return worker

    def _append(self, topic: Topic, line: Line, given: Message) -> None:
        message, sender = given, self._sender
        if sender.hooks is not None:
            message = sender.hooks.pipelined(sender.client, given)
        unique_id = self._next_id()
        entry = encode_entry(message, unique_id, self._max_message_size)
        size = ENTRY_OVERHEAD + len(entry[1]) + len(entry[2])
        if message.delay_level or not topic.takes_batches:
            check_level(message.delay_level, sender.delay_levels)
            line.waiting.append(WaitingMessage(message, unique_id, None, size, given))
            line.special_count += 1
        else:
            line.waiting.append(WaitingMessage(message, unique_id, entry, size, given))
            if not message.wait_store_ok:
                line.special_count += 1
        line.size += size
        self._pending += 1
        if self._linger and line.is_full(self._batch_size):
            line.lingering.unpark_all()

    # ----------------------------------------------------------------------------------- sending

    async def _work(self, topic: Topic, worker: QueueWorker) -> None:
        while True:
            line = worker.line
            if not line.waiting and worker.takes_unkeyed:
                if topic.unkeyed_line.waiting and not self._may_take_unkeyed(topic, worker):
                    await trio.sleep(AVOIDED_PAUSE)
                    continue
                line = topic.unkeyed_line
            if not line.waiting:
                worker.parked = trio.Event()
                if worker.takes_unkeyed:
                    topic.idle.append(worker)
                await worker.parked.wait()
                worker.parked = None
                if worker.takes_unkeyed and worker in topic.idle:
                    topic.idle.remove(worker)
                continue
            if self._linger and not self._waiting_tasks and not line.is_full(self._batch_size):
                with trio.move_on_after(self._linger):
                    await line.lingering.park()
            # The worker's next batch is taken when this one is answered: two requests
            # of one queue could be stored in reverse order.
            items = line.take(self._batch_size)
            if items:
                await self._send(topic, worker, items, is_unkeyed=line is topic.unkeyed_line)

    def _may_take_unkeyed(self, topic: Topic, worker: QueueWorker) -> bool:
        # The worker of a broker that just failed leaves the messages to other workers, if there are any.
        is_avoided = self._sender.routes.is_avoided
        return not is_avoided(worker.queue) or all(is_avoided(queue) for queue in topic.by_queue)

    def _outgoing(self, items: Sequence[WaitingMessage]) -> Outgoing:
        first = items[0]
        sender = self._sender
        if first.entry is None or len(items) == 1:
            return encode_single(
                first.message,
                unique_id=first.unique_id,
                max_message_size=sender.max_message_size,
                compress_over=sender.compress_over,
            )
        return batch_outgoing(
            first.message.topic,
            [item.entry for item in items if item.entry is not None],
            tuple([item.unique_id for item in items]),
            wait_store_ok=first.message.wait_store_ok,
        )

    async def _send(
        self,
        topic: Topic,
        worker: QueueWorker,
        items: Sequence[WaitingMessage],
        *,
        is_unkeyed: bool,
    ) -> None:
        sender = self._sender
        self._requests += 1
        try:
            outgoing = self._outgoing(items)
            if sender.hooks is None:
                result = await sender.send_to(worker.queue, outgoing, sender.timeout)
            else:
                messages = [item.message for item in items]
                result = await observed_attempt(sender, worker.queue, messages, outgoing)
        except Error as error:
            # Messages with a key have one queue: sent again after later ones,
            # or elsewhere, they would lose their order.
            if is_unkeyed and is_worth_another_broker(error) and items[0].attempts < sender.retries:
                logger.info("send tries again queue=%s error=%s", worker.queue, error)
                for item in items:
                    item.attempts += 1
                topic.unkeyed_line.put_back(items)
                if topic.idle:
                    topic.idle.popleft().wake()
                await trio.sleep(AVOIDED_PAUSE)
                return
            self._failed += len(items)
            self._failures += [SendFailure(item.given, error) for item in items]
        else:
            self._stored[result.status] += len(items)
        # After they are counted: when none is pending, `flush` returns and the failures are complete.
        self._pending -= len(items)
        self._progress.unpark_all()
