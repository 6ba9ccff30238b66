"""Calls a handler for each message or list of messages, several concurrently: `Consumer.run` and `run_batches`.

    worker: take a message -> handler -> done         a failure hands the message back to its group
    in order: take a queue -> handler, one by one     a failure tries the same message again

A queue's progress is its lowest unfinished message, in whatever order handlers finish.

Invariant: between the handler's return and "done" nothing can be cancelled.
Invariant: only a handler is cancelled when its time is over (`watchdog`), never what is done with its message before or
after.
Invariant: messages that are not done at the end are neither committed nor lost: they are handed out again first.
Answers to: ConsumeMessageConcurrentlyService, ConsumeMessageOrderlyService, cleanExpiredMsg of ProcessQueue
(consumeTimeout); RocketMQ reference, section 9.6.
Unlike Java: a handler is awaited; workers take messages when they are free, without a queue in between. A handler that
takes too long is cancelled; Java's handler keeps running beside the one that gets the message again.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextvars import Context, copy_context
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeAlias

import attrs
import trio

from rocketrio.arguments import seconds, whole_number
from rocketrio.callables import NotAwaitableError, async_function
from rocketrio.consuming.hand_out import CHECKPOINT_EVERY, HandOut, inflated_size
from rocketrio.consuming.process_queue import BatchInWork, InWork, ProcessQueue, PulledChunk, Unit
from rocketrio.consuming.send_back import Delivery, RetryDelay, check_delay, retry_level
from rocketrio.hooks import Hooks, Reader
from rocketrio.tracing.trace import Traces
from rocketrio_protocol.commands.consumer import BROKER_DECIDES_LEVEL, DEAD_LETTER_LEVEL
from rocketrio_protocol.errors import AccessRefusedError, ClosedError, Error, LocalProtocolError
from rocketrio_protocol.message import MessageExt, MessageQueue
from rocketrio_protocol.record.compression import INFLATE_LIMIT
from rocketrio_protocol.remoting.tasks import background_nursery

CONCURRENCY: Final = 20  # consumeThreadMin and consumeThreadMax
DRAIN_TIMEOUT: Final = 10.0
"""Seconds that handlers may take to finish at the end: a third of the half minute that containers usually get."""
DRAIN_GRACE: Final = 1.0
"""Seconds beyond the drain timeout to wait for a cancelled handler."""
HAND_BACK_PAUSE: Final = 5.0
"""Seconds until a message that could not be handed back is handled again here (submitConsumeRequestLater)."""
SUSPEND_PAUSE: Final = 1.0
"""Seconds until an orderly consumer tries a failed message again (suspendCurrentQueueTimeMillis)."""
HANDLER_TIMEOUT: Final = 900.0  # consumeTimeout
SCANS_PER_TIMEOUT: Final = 10
"""Scans of all workers within a handler's time, so that a handler may take a tenth longer."""
BATCH_SIZE: Final = 32
"""Messages per list: the number with which Apache's brokers answer a pull. (Java's consumeMessageBatchMaxSize is 1,
which makes no batches.)"""

_NO_HANDLER: Final = "group {}: the handlers of its consumer here have ended"

Handler: TypeAlias = Callable[[MessageExt], Awaitable[object]]
BatchHandler: TypeAlias = Callable[[list[MessageExt]], Awaitable[object]]

logger = logging.getLogger("rocketrio.consumer")


class ConsumeLater(Exception):  # noqa: N818 - a request to the consumer, not an error.
    """Raised by a handler to have its message redelivered later.

    `delay` is the time until then: brokers have a list of delays (1 s to 2 h), and the shortest one that is at least as
    long is used. None waits longer each time, `GIVE_UP` sends the message to the dead-letter topic. An orderly consumer
    tries the same message again after a second, whatever the delay, except for GIVE_UP. A handler of `run_batches` may
    report that the first `done` messages of its list are done: only the others are redelivered.
    """

    def __init__(self, delay: RetryDelay = None, *, done: int = 0) -> None:
        check_delay(delay)
        whole_number("done", done, least=0)
        super().__init__(delay)
        self.delay = delay
        self.done = done


@attrs.define(eq=False)
class Worker:
    """One worker of a run, and what its handler works on now."""

    unit: Unit | None = None
    """The messages that the handler has now."""
    inflated: int = 0
    """The bytes that its decompressed bodies take."""
    is_late: bool = False
    """Whether the handler was cancelled; it may have finished nevertheless."""
    scope: trio.CancelScope = attrs.Factory(trio.CancelScope)
    _seen: Unit | None = None
    _seen_at: float = 0.0

    def new_scope(self) -> trio.CancelScope:
        """Return a new cancel scope for the next handler calls."""
        self.is_late = False
        self.scope = trio.CancelScope()
        return self.scope

    def check(self, now: float, timeout: float) -> None:
        """Cancel a handler that has had the same unit for too long."""
        if self.unit is not self._seen:
            self._seen, self._seen_at = self.unit, now
        elif self.unit is not None and now - self._seen_at >= timeout:
            self.is_late = True
            self.scope.cancel()


async def watchdog(workers: list[Worker], timeout: float, over: trio.Event) -> None:
    """Cancel handlers that exceed `timeout` until `over` is set: scan the workers periodically.

    A deadline per message would cost as much as everything else that is done for the message.
    """
    while not over.is_set():
        with trio.move_on_after(timeout / SCANS_PER_TIMEOUT):
            await over.wait()
        now = trio.current_time()
        for worker in workers:
            worker.check(now, timeout)


@attrs.define(eq=False)
class DirectedMessage:
    """A message that an operator asked to be handled now; it gets a private queue that is never committed."""

    message: MessageExt
    is_batch: bool
    """Whether the handler takes lists."""
    failure: Exception | None = None
    is_handled: bool = False
    """Whether the handler returned or raised; False if it was cancelled because the run ended."""
    ended: trio.Event = attrs.Factory(trio.Event)
    unit: Unit = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        message = self.message
        queue = ProcessQueue(MessageQueue(message.topic, message.broker_name, message.queue_id))
        queue.start(message.queue_offset)
        queue.chunks.append(PulledChunk([message], message.queue_offset + 1, 0, is_held=False))
        queue.message_count = 1
        works = queue.begin_batch(1)
        self.unit = BatchInWork(works) if self.is_batch else works[0]


@attrs.define(eq=False)
class HandlerRun:
    """One `run`, from its beginning to the end of the last handler."""

    hand_out: HandOut
    handler: Callable[[Any], Awaitable[object]]
    """Takes messages, or lists if there is a `batch_size`."""
    delivery: Delivery
    is_orderly: bool = False
    concurrency: int = CONCURRENCY
    drain_timeout: float = DRAIN_TIMEOUT
    handler_timeout: float = HANDLER_TIMEOUT
    batch_size: int | None = None
    """The maximum length of a handler's lists; None if it gets single messages."""
    is_stopping: bool = False
    ended: trio.Event = attrs.Factory(trio.Event)
    _busy: int = 0
    _workers: list[Worker] = attrs.Factory(list)
    _idle: trio.Event = attrs.Factory(trio.Event)
    _nursery: trio.Nursery | None = None
    _context: Context = attrs.Factory(copy_context)
    """The context of the task that runs the handlers."""
    _scope: trio.CancelScope = attrs.Factory(lambda: trio.CancelScope(shield=True))

    @trio.lowlevel.enable_ki_protection
    async def run(self, owned: Callable[[], Iterable[ProcessQueue]]) -> None:
        """Run until cancelled, or until the consumer is closed. `owned` returns the queues at that time."""
        self.hand_out.begin_run()
        try:
            async with background_nursery() as nursery:
                self._busy = self.concurrency
                nursery.start_soon(self._work_shielded)
                try:
                    await self.hand_out.closing.wait()
                finally:
                    self._stop()
                    try:
                        # A second Ctrl-C is raised here, and ends the wait.
                        with trio.CancelScope(shield=True):
                            await self._idle.wait()
                    finally:
                        self._scope.cancel()
        finally:
            # However it ends: messages that are not done go back, and are handed out first by what receives next.
            self.hand_out.end_run(owned())
            self.ended.set()

    def _stop(self) -> None:
        """Take no more messages; handlers have `drain_timeout` seconds from now."""
        if not self.is_stopping:
            self.is_stopping = True
            self._scope.deadline = trio.current_time() + self.drain_timeout
            self.hand_out.workers.unpark_all()

    @trio.lowlevel.enable_ki_protection
    async def _work_shielded(self) -> None:
        work = self._work_in_order if self.is_orderly else self._work
        with self._scope:
            async with trio.open_nursery() as self._nursery:
                for _ in range(self.concurrency):
                    self._workers.append(worker := Worker())
                    self._nursery.start_soon(self._run_worker, work, worker)
                self._nursery.start_soon(watchdog, self._workers, self.handler_timeout, self._idle)
        if self._scope.cancelled_caught:
            logger.warning(
                "handlers cancelled, their messages come again group=%s drain_timeout=%g",
                self.hand_out.group, self.drain_timeout,
            )  # fmt: skip

    @trio.lowlevel.enable_ki_protection
    async def _run_worker(self, work: Callable[[Worker], Awaitable[None]], worker: Worker) -> None:
        try:
            await work(worker)
        except trio.Cancelled:
            self._leave()
            raise
        except BaseException:
            # The other workers may finish their messages.
            self._stop()
            self._leave()
            with trio.CancelScope(shield=True, deadline=self._scope.deadline):
                await self._idle.wait()
            raise
        self._leave()

    def _leave(self) -> None:
        self._busy -= 1
        if not self._busy:
            self._idle.set()

    async def _handle(
        self, worker: Worker, units: Iterable[Unit | None]
    ) -> tuple[Unit, Exception] | None:
        """Handle one unit after the other; return the first failed one and its exception, or None at the end."""
        failure: Exception | None = None
        # Only the handler runs in it: what follows is not cancelled because the handler's time is over.
        with worker.new_scope() as scope:
            failure = await self._handle_until_failure(worker, units)
        unit = worker.unit
        self._finish_unit(worker)
        if scope.cancelled_caught:
            failure = TimeoutError(f"cancelled, it took over {self.handler_timeout:g} s")
        if unit is None:
            return None
        assert failure is not None
        if isinstance(failure, NotAwaitableError):
            raise failure  # Every message would fail like this.
        return unit, failure

    @trio.lowlevel.disable_ki_protection  # Ctrl-C may interrupt the user's code anywhere.
    async def _handle_until_failure(
        self, worker: Worker, units: Iterable[Unit | None]
    ) -> Exception | None:
        handler = self.handler
        without_pause = 0
        for unit in units:
            if unit is None:
                without_pause = 0
                await self.hand_out.workers.park()
                continue
            worker.unit = unit
            if self.hand_out.may_inflate:
                worker.inflated = inflated_size(work.given for work in unit.works)
            try:
                await handler(unit.given)
            except Exception as failure:
                return failure
            # No await since the handler has returned: a cancel in between would
            # deliver again what the handler has finished.
            unit.done()
            had_inflated = bool(worker.inflated)
            self._finish_unit(worker)
            if worker.is_late:
                break
            without_pause += 1
            # Trio's loop keeps the exception that ended the handler's last wait until this task pauses, and from Python
            # 3.13 on its traceback keeps the handler's frame, with every body that the handler has named.
            if without_pause >= CHECKPOINT_EVERY or had_inflated:
                without_pause = 0
                await trio.lowlevel.checkpoint()
        return None

    def _finish_unit(self, worker: Worker) -> None:
        worker.unit = None
        if worker.inflated:
            was_full = self._is_full
            worker.inflated = 0
            if was_full:
                self.hand_out.workers.unpark_all()

    @property
    def _is_full(self) -> bool:
        """Whether decompressed bodies with handlers leave no room for more."""
        return sum(worker.inflated for worker in self._workers) >= INFLATE_LIMIT

    def _failed(self, unit: Unit, failure: Exception) -> tuple[int, list[InWork]]:
        """Return the delay level after a failure and the messages to hand back; raise it without a group to do so."""
        if self.delivery.hand_back is None:
            raise failure
        works = list(unit.works)
        first, counts = works[0].given, works[0].process_queue.counts
        if isinstance(failure, ConsumeLater):
            try:
                level = retry_level(failure.delay, self.delivery.delay_levels)
            except LocalProtocolError as error:
                failure = error
            else:
                logger.info(
                    "consume later message_id=%s delay=%s",
                    first.message_id,
                    _text_of(failure.delay),
                )
                for work in works[: failure.done]:
                    work.done()
                counts.failed += len(works[failure.done :])
                return level, works[failure.done :]
        counts.failed += len(works)
        logger.warning(
            "handler failed topic=%s message_id=%s reconsume_times=%d messages=%d hint=%s",
            first.topic, first.message_id, first.reconsume_times, len(works), _hint(failure),
            exc_info=failure,
        )  # fmt: skip
        return BROKER_DECIDES_LEVEL, works

    async def _is_handed_back(self, work: InWork, level: int) -> bool:
        assert self.delivery.hand_back is not None
        try:
            await self.delivery.hand_back(work.given, level)
        except AccessRefusedError:
            raise
        except Error as error:
            logger.warning(
                "not handed back, handled here again message_id=%s error=%s",
                work.given.message_id,
                error,
            )
            return False
        work.process_queue.counts.handed_back += 1
        work.done()
        return True

    # ------------------------------------------------------------------------------- concurrent workers

    async def _work(self, worker: Worker) -> None:
        while not self.is_stopping:
            failed = await self._handle(worker, self._units())
            if failed is not None:
                await self._hand_back(worker, *failed)

    def _units(self) -> Iterator[Unit | None]:
        hand_out, batch_size = self.hand_out, self.batch_size
        while not self.is_stopping:
            if hand_out.may_inflate and self._is_full:
                yield None
            else:
                yield hand_out.begin() if batch_size is None else hand_out.begin_batch(batch_size)

    async def _hand_back(self, worker: Worker, unit: Unit, failure: Exception) -> None:
        """Hand a failed unit back, or handle it here again; at the end of the run it is left undone."""
        while True:
            level, works = self._failed(unit, failure)
            while works and await self._is_handed_back(works[0], level):
                del works[0]
            left = unit.part(works)
            if left is None:
                return
            await trio.sleep(HAND_BACK_PAUSE)
            if self.is_stopping:
                return
            if left.process_queue.is_dropped:
                left.done()
                return
            failed = await self._handle(worker, [left])
            if failed is None:
                return
            unit, failure = failed

    # ------------------------------------------------------------- one message at an operator's request

    async def handle_directly(self, message: MessageExt) -> Exception | None:
        """Call the handler with a message of a private queue, beside the workers; return its failure.

        Raises ClosedError if the run is over, or ends before the handler does. A cancel does not stop the handler.
        """
        if self._nursery is None or self.is_stopping:
            raise ClosedError(_NO_HANDLER.format(self.hand_out.group))
        directed = DirectedMessage(message, is_batch=self.batch_size is not None)
        self._busy += 1
        self._context.run(
            self._nursery.start_soon,
            self._run_worker,
            partial(self._work_directed, directed),
            Worker(),
        )
        await directed.ended.wait()
        if not directed.is_handled:
            raise ClosedError(_NO_HANDLER.format(self.hand_out.group))
        return directed.failure

    async def _work_directed(self, directed: DirectedMessage, worker: Worker) -> None:
        self._workers.append(worker)
        try:
            failed = await self._handle(worker, [directed.unit])
            directed.failure = None if failed is None else failed[1]
            directed.is_handled = True
        finally:
            self._workers.remove(worker)
            directed.ended.set()

    # ---------------------------------------------------------------------------------- orderly workers

    async def _work_in_order(self, worker: Worker) -> None:
        hand_out = self.hand_out
        while not self.is_stopping:
            is_full = hand_out.may_inflate and self._is_full
            process_queue = None if is_full else hand_out.take_queue()
            if process_queue is None:
                await hand_out.workers.park()
                continue
            try:
                failed = await self._handle(worker, self._units_of(process_queue))
                if failed is not None:
                    await self._try_again(worker, *failed)
            finally:
                hand_out.return_queue(process_queue)
            await trio.lowlevel.checkpoint()

    def _units_of(self, process_queue: ProcessQueue) -> Iterator[Unit]:
        """Yield the units of one chunk of a queue, or of its rest; fewer if decompressed bodies leave no room."""
        hand_out, batch_size = self.hand_out, self.batch_size
        while not (self.is_stopping or (hand_out.may_inflate and self._is_full)):
            if batch_size is None:
                unit: Unit | None = hand_out.begin_of(process_queue)
            else:
                unit = hand_out.begin_batch_of(process_queue, batch_size)
            if unit is None:
                return
            yield unit
            if process_queue.current is None:
                return

    async def _try_again(self, worker: Worker, unit: Unit, failure: Exception) -> None:
        """Handle the same messages until they are done or dead letters, or are left undone."""
        while True:
            level, works = self._failed(unit, failure)
            left = unit.part([work for work in works if not await self._is_dead(work, level)])
            if left is None:
                return
            if not await self._may_try_again(left):
                if left.is_stale:
                    left.done()
                elif left.process_queue.is_dropped:
                    for work in left.works:
                        work.process_queue.abandon(work)
                return
            left.again()
            failed = await self._handle(worker, [left])
            if failed is None:
                return
            unit, failure = failed

    async def _is_dead(self, work: InWork, level: int) -> bool:
        limit = self.delivery.max_reconsume_times
        is_over = limit is not None and work.given.reconsume_times >= limit
        if level > DEAD_LETTER_LEVEL and not is_over:
            return False
        return await self._is_handed_back(work, DEAD_LETTER_LEVEL)

    async def _may_try_again(self, unit: Unit) -> bool:
        """Wait a moment, and for the queue's lock if it has expired; return False if the messages are left undone."""
        process_queue = unit.process_queue
        while True:
            await trio.sleep(SUSPEND_PAUSE)
            if self.is_stopping or unit.is_stale or process_queue.is_dropped:
                return False
            if process_queue.is_locked and not process_queue.may_be_behind:
                return True


@attrs.define(eq=False)
class Handlers:
    """The runs of one consumer, one at a time."""

    hand_out: HandOut
    delivery: Delivery
    owned: Callable[[], Iterable[ProcessQueue]]
    """Returns the consumer's queues at that time."""
    is_orderly: bool
    traces: Traces | None
    hooks: Hooks | None
    reader: Reader
    _last: HandlerRun | None = None

    @property
    def current(self) -> HandlerRun | None:
        """The run that is under way; None while messages are received in another way."""
        run = self._last
        return None if run is None or run.ended.is_set() else run

    async def run(
        self,
        handler: Callable[[Any], Awaitable[object]],
        *,
        batch_size: int | None,
        concurrency: int,
        drain_timeout: float,
        handler_timeout: float,
    ) -> None:
        """Run as described at `Consumer.run`; with a `batch_size` as at `Consumer.run_batches`."""
        whole_number("concurrency", concurrency, least=1)
        seconds("drain_timeout", drain_timeout, may_be_0=True)
        seconds("handler_timeout", handler_timeout)
        handler = async_function("handler", handler)
        if self.traces is not None:
            handler = self.traces.handler(self.hand_out.group, handler)
        if self.hooks is not None:
            handler = self.hooks.handler(self.reader, handler)
        self.hand_out.check_free()  # Before a run that may be under way is forgotten.
        run = HandlerRun(
            self.hand_out,
            handler,
            self.delivery,
            is_orderly=self.is_orderly,
            concurrency=concurrency,
            drain_timeout=drain_timeout,
            handler_timeout=handler_timeout,
            batch_size=batch_size,
        )
        try:
            self._last = run
            await run.run(self.owned)
        finally:
            run.ended.set()  # Ctrl-C may come before it has begun.

    async def drained(self) -> None:
        """Wait, after the consumer was closed, until a run in another task has ended."""
        if self._last is not None:
            with trio.move_on_after(self._last.drain_timeout + DRAIN_GRACE):
                await self._last.ended.wait()


def _text_of(delay: RetryDelay) -> str:
    """Return a delay as a line of the log shows it."""
    if delay is None:
        return "longer each time"
    return f"{delay.total_seconds():g} s" if isinstance(delay, timedelta) else delay.value


def _hint(failure: Exception) -> str:
    """Return what to do about a handler that calls asyncio; asyncio's own error does not explain it."""
    if not isinstance(failure, RuntimeError) or "no running event loop" not in str(failure):
        return "the traceback says what failed"
    return "handlers run under trio; what needs asyncio goes by rocketrio.aio, see docs/asyncio.md"
