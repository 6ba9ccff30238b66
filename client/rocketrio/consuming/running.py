"""A handler for each message, several at a time: what `Consumer.run` does.

    worker: take a message -> handler -> done         a failure hands the message back to its group
    in order: take a queue -> handler, one by one     a failure tries the same message again

A queue's progress is its lowest unfinished message, in whatever order handlers finish.

Invariant: between the handler's return and "done" nothing can be cancelled.
Invariant: what is not done when all is over is neither committed nor lost: it is handed out again first.
Answers to: ConsumeMessageConcurrentlyService, ConsumeMessageOrderlyService; RocketMQ reference, section 9.6.
Unlike Java: a handler is awaited; workers take messages when they are free, so nothing is queued for them.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeAlias

import attrs
import trio

from rocketrio.consuming.hand_out import CHECKPOINT_EVERY, HandOut
from rocketrio.consuming.in_work import InWork
from rocketrio.consuming.process_queue import ProcessQueue
from rocketrio.consuming.redelivered import redelivered
from rocketrio.consuming.send_back import DEAD_LETTER_LEVEL, check_level
from rocketrio_protocol.errors import Error
from rocketrio_protocol.message import MessageExt
from rocketrio_protocol.remoting.tasks import background_nursery

CONCURRENCY: Final = 20  # consumeThreadMin and consumeThreadMax
DRAIN_TIMEOUT: Final = 10.0
"""Seconds that handlers may take to finish at the end: a third of the half minute that containers are given."""
HAND_BACK_PAUSE: Final = 5.0
"""Seconds until a message that could not be handed back is handled once more (submitConsumeRequestLater)."""
SUSPEND_PAUSE: Final = 1.0
"""Seconds until a failed message is tried again where order counts (suspendCurrentQueueTimeMillis)."""

Handler: TypeAlias = Callable[[MessageExt], Awaitable[object]]
HandBack: TypeAlias = Callable[[MessageExt, int], Awaitable[None]]

logger = logging.getLogger("rocketrio.consumer")


class ConsumeLater(Exception):
    """Raised by a handler: this message again later.

    `delay_level` is 1 to 18 of the broker's list of delays, 0 to wait longer each time, -1 for the dead-letter topic.
    Where order counts the same message is tried again after a second, whatever the level but -1.
    """

    def __init__(self, delay_level: int = 0) -> None:
        check_level(delay_level)
        super().__init__(delay_level)
        self.delay_level = delay_level


@attrs.define(eq=False)
class HandlerRun:
    """One `run`, from its beginning to the last handler."""

    hand_out: HandOut
    handler: Handler
    hand_back: HandBack | None
    """None where there is no group to take a message back: then a failure ends the run."""
    max_reconsume_times: int | None = None
    """Where order counts: how often a message is tried again before it is a dead letter; None for no end."""
    is_orderly: bool = False
    concurrency: int = CONCURRENCY
    drain_timeout: float = DRAIN_TIMEOUT
    is_stopping: bool = False
    ended: trio.Event = attrs.Factory(trio.Event)
    _busy: int = 0
    _idle: trio.Event = attrs.Factory(trio.Event)
    _scope: trio.CancelScope = attrs.Factory(lambda: trio.CancelScope(shield=True))

    async def run(self, owned: Callable[[], Iterable[ProcessQueue]]) -> None:
        """Until cancelled, or the consumer is closed. `owned` names the queues when it is over."""
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
                        # A second Ctrl-C comes here, and waits for nobody.
                        with trio.CancelScope(shield=True):
                            await self._idle.wait()
                    finally:
                        self._scope.cancel()
        finally:
            self.hand_out.end_run(owned())
            self.ended.set()

    def _stop(self) -> None:
        """Take no more messages; handlers have `drain_timeout` seconds from now."""
        if not self.is_stopping:
            self.is_stopping = True
            self._scope.deadline = trio.current_time() + self.drain_timeout
            self.hand_out.workers.unpark_all()

    async def _work_shielded(self) -> None:
        with self._scope:
            async with trio.open_nursery() as nursery:
                for _ in range(self.concurrency):
                    nursery.start_soon(self._worker)
        if self._scope.cancelled_caught:
            logger.warning(
                "handlers cancelled, their messages come again group=%s drain_timeout=%g",
                self.hand_out.group, self.drain_timeout,
            )  # fmt: skip

    async def _worker(self) -> None:
        work = self._work_in_order if self.is_orderly else self._work
        try:
            await work()
        except trio.Cancelled:
            self._leave()
            raise
        except BaseException:
            # The others may finish what they have.
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

    # ------------------------------------------------------------------------------------- side by side

    async def _work(self) -> None:
        hand_out, handler = self.hand_out, self.handler
        without_pause = 0
        while not self.is_stopping:
            work = hand_out.begin()
            if work is None:
                without_pause = 0
                await hand_out.workers.park()
                continue
            try:
                await handler(work.message)
            except Exception as failure:
                if not await self._failed(work, failure):
                    return
            work.process_queue.done(work)
            without_pause += 1
            if without_pause >= CHECKPOINT_EVERY:
                without_pause = 0
                await trio.lowlevel.checkpoint()

    async def _failed(self, work: InWork, failure: Exception) -> bool:
        """Hand the message back, or handle it here once more; False when it is left undone at the end."""
        while True:
            level = self._level(work.message, failure)
            if self.hand_back is None:
                raise failure
            try:
                await self.hand_back(work.message, level)
                return True
            except Error as error:
                logger.warning(
                    "not handed back, handled here again message_id=%s pause=%g error=%s",
                    work.message.message_id, HAND_BACK_PAUSE, error,
                )  # fmt: skip
            await trio.sleep(HAND_BACK_PAUSE)
            if self.is_stopping or work.process_queue.is_dropped:
                return not self.is_stopping
            try:
                await self.handler(work.message)
                return True
            except Exception as again:
                failure = again

    def _level(self, message: MessageExt, failure: Exception) -> int:
        if isinstance(failure, ConsumeLater):
            logger.info(
                "consume later message_id=%s delay_level=%d",
                message.message_id,
                failure.delay_level,
            )
            return failure.delay_level
        logger.warning(
            "handler failed topic=%s message_id=%s reconsume_times=%d",
            message.topic, message.message_id, message.reconsume_times, exc_info=failure,
        )  # fmt: skip
        return 0

    # ----------------------------------------------------------------------------------------- in order

    async def _work_in_order(self) -> None:
        hand_out = self.hand_out
        while not self.is_stopping:
            process_queue = hand_out.take_queue()
            if process_queue is None:
                await hand_out.workers.park()
                continue
            try:
                await self._work_through(process_queue)
            finally:
                hand_out.return_queue(process_queue)
            await trio.lowlevel.checkpoint()

    async def _work_through(self, process_queue: ProcessQueue) -> None:
        """Handle one chunk of a queue, or what is left of it."""
        without_pause = 0
        while not self.is_stopping:
            work = self.hand_out.begin_of(process_queue)
            if work is None:
                return
            if not await self._handle_in_place(work):
                if work.is_stale:
                    process_queue.done(work)
                elif process_queue.is_dropped:
                    process_queue.abandon(work)
                return
            process_queue.done(work)
            if process_queue.current is None:
                return
            without_pause += 1
            if without_pause >= CHECKPOINT_EVERY:
                without_pause = 0
                await trio.lowlevel.checkpoint()

    async def _handle_in_place(self, work: InWork) -> bool:
        """Handle one message until it succeeds or is a dead letter; False when it is left undone."""
        message, attempts = work.message, 0
        while True:
            try:
                await self.handler(message)
                return True
            except Exception as failure:
                level = self._level(message, failure)
                if self.hand_back is None:
                    raise
            attempts += 1
            limit = self.max_reconsume_times
            if level <= DEAD_LETTER_LEVEL or (
                limit is not None and message.reconsume_times >= limit
            ):
                try:
                    await self.hand_back(message, DEAD_LETTER_LEVEL)
                    return True
                except Error as error:
                    logger.warning(
                        "no dead letter yet message_id=%s error=%s", message.message_id, error
                    )
            if not await self._may_try_again(work):
                return False
            message = redelivered(work.message, attempts)

    async def _may_try_again(self, work: InWork) -> bool:
        """Wait a moment, and for the queue's lock if that ran out; False when the message is left undone."""
        process_queue = work.process_queue
        while True:
            await trio.sleep(SUSPEND_PAUSE)
            if self.is_stopping or work.is_stale or process_queue.is_dropped:
                return False
            if process_queue.is_locked and not process_queue.may_be_behind:
                return True
