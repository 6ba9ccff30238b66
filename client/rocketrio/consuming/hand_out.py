"""Pulled messages that wait to be received: they leave here one by one or in lists, queue by queue.

A message that was handed out counts as done when the next receive begins, or when `settle` is called.

Invariant: taking a message and moving the position is one synchronous step, the last one of a receive: a cancel comes
before it and loses nothing.
Invariant: messages of one queue are handed out in order, by chunks as they were pulled.
Invariant: the decompressed size of one list is bounded (`fitting`), and so is that of a table (frames.py). Bodies are
decompressed when messages leave; those beyond the limit stay for the next hand-out, at their stored size.
Invariant: either one task receives, or the handlers of one `run` do.
Unlike Java: Java decompresses all messages of a pull at once, whatever their size (docs/decisions/0046).
"""

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from itertools import chain, zip_longest
from typing import Final, Generic, Protocol, Self, TypeVar

import attrs
import trio

from rocketrio.arguments import seconds, whole_number
from rocketrio.consuming.process_queue import BatchInWork, InWork, ProcessQueue
from rocketrio.live import Live
from rocketrio_protocol.errors import ClosedError
from rocketrio_protocol.message import MessageExt
from rocketrio_protocol.record.compression import INFLATE_LIMIT

TABLE_WAIT: Final = 0.01
"""Seconds that a table waits for the next pulls of lagging queues: Apache's brokers answer with 32 messages at most."""
CHECKPOINT_EVERY: Final = 64
"""The number of messages handed out without waiting, after which other tasks get a turn."""


def inflated_size(messages: Iterable[MessageExt]) -> int:
    """Decompress the bodies and return the bytes that they take."""
    return sum(message.inflated_size for message in messages)


def fitting(messages: Sequence[MessageExt]) -> int:
    """Return how many messages, counted from the first, fit the limit together; at least one, whatever its size."""
    size = 0
    for count, message in enumerate(messages):
        size += message.inflated_size
        if size > INFLATE_LIMIT and count:
            message.forget_body()
            return count
    return len(messages)


class HandOut(Live):
    """The receiving half of one consumer; `async for` iterates over it."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.ready: deque[ProcessQueue] = deque()
        """Queues that have waiting messages, in the order of their turns."""
        self.taken: set[ProcessQueue] = set()
        """Queues whose next message is with a handler, for an orderly consumer."""
        self.workers = trio.lowlevel.ParkingLot()
        """Tasks of `run` that wait for a message."""
        self.closing = trio.Event()
        # The chunk being handed out: messages before _index are with the caller, those before _settled are done; at
        # _limit other tasks get a turn.
        self._current: ProcessQueue | None = None
        self._messages: Sequence[MessageExt] = []
        self._index = self._limit = self._settled = 0
        self._since_checkpoint = 0
        self._in_work: set[ProcessQueue] = set()
        self.may_inflate = False
        """Whether some message was compressed: then messages are counted by their decompressed size."""
        self._inflated: Sequence[MessageExt] = ()
        """Compressed messages that the caller has; their bodies are released when they are settled."""
        self._handed_out = 0
        self._is_receiving = False
        self._arrival = trio.Event()
        self.is_closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MessageExt:
        index = self._index
        if index < self._limit:
            self._index = index + 1
            return self._messages[index]
        return await self._next()

    async def receive_batch(self, max_messages: int, max_wait: float) -> list[MessageExt]:
        """Return available messages, waiting up to `max_wait` seconds for `max_messages`; never an empty list."""
        await self.wait_batch(max_messages, max_wait)
        return self.take(max_messages)

    async def wait_batch(self, max_messages: int, max_wait: float) -> None:
        """Wait until `receive_batch` would return something; nothing is taken."""
        check_batch(max_messages, max_wait)
        await self._wait_message()
        if max_wait > 0 and self._may_grow(max_messages):
            with trio.move_on_after(max_wait):
                while self._may_grow(max_messages):
                    await self._wait_arrival()
            if not self._at_hand():  # The messages were lost in a rebalance meanwhile.
                await self._wait_message()

    async def wait_table(self, max_messages: int, max_wait: float) -> None:
        """Wait as `wait_batch`, then briefly for pulls that are sure to bring messages.

        A small table costs as much as a large one.
        """
        await self.wait_batch(max_messages, max_wait)
        if max_wait >= TABLE_WAIT or not self._is_more_coming(max_messages):
            return
        with trio.move_on_after(TABLE_WAIT):
            while self._is_more_coming(max_messages):
                await self._wait_arrival()
        if not self._at_hand():
            await self._wait_message()

    def _is_more_coming(self, max_messages: int) -> bool:
        return self._may_grow(max_messages) and any(queue.is_lagging for queue in self.ready)

    def _may_grow(self, max_messages: int) -> bool:
        """Return whether a larger batch is possible, and waiting for it blocks no queue that may not pull further."""
        if self._at_hand() >= max_messages:
            return False
        return all(queue.has_room and not queue.budget.is_used_up for queue in self.ready)

    async def _next(self) -> MessageExt:
        is_at_hand = self._current is not None or self.ready
        if not is_at_hand or self._since_checkpoint >= CHECKPOINT_EVERY or self.is_closed:
            await self._wait_message()
        else:
            self.settle()
        if self._current is None:
            if not self.ready:  # The settled chunk was the last one.
                await self._wait_message()
            self._open_chunk()
        if type(self._messages) is not list:
            self._make_messages()
        # From here to the return no await: a message that is taken is returned.
        index = self._index
        self._index = index + 1
        room = max(1, CHECKPOINT_EVERY - self._since_checkpoint)
        if self.may_inflate:
            self._inflated, room = (self._messages[index],), 1
        self._limit = min(len(self._messages), index + room)
        self._since_checkpoint += self._limit - index
        return self._messages[index]

    async def _wait_message(self) -> None:
        """Settle what was handed out, let other tasks run, and wait until there is a message."""
        # To receive again marks as done what was received before; a cancel below
        # comes after that, and before the next message.
        self.check_free()
        self.settle()
        self._is_receiving = True
        try:
            await trio.lowlevel.checkpoint()
            self._since_checkpoint = 0
            while self._current is None and not self.ready:
                await self._wait_arrival()
        finally:
            self._is_receiving = False

    async def _wait_arrival(self) -> None:
        if self.is_closed:
            raise self._closed()
        await self._arrival.wait()
        self._arrival = trio.Event()

    def check_free(self) -> None:
        """Raise ClosedError if the consumer is closed, and BusyResourceError while another task receives."""
        if self.is_closed:
            raise self._closed()
        if self._is_receiving:
            raise trio.BusyResourceError("another task is receiving from this consumer")

    def _closed(self) -> ClosedError:
        return ClosedError(f"the consumer of group {self.group} is closed")

    def _at_hand(self) -> int:
        return len(self._messages) - self._index + sum(queue.message_count for queue in self.ready)

    # ------------------------------------------------------------------- handing out, synchronously

    def arrived(self, process_queue: ProcessQueue) -> None:
        """Make a queue's newly pulled messages available."""
        self.may_inflate = self.may_inflate or process_queue.may_inflate
        if process_queue not in self.ready and process_queue not in self.taken:
            self.ready.append(process_queue)
        self._arrival.set()
        if self.workers:
            self.workers.unpark(count=process_queue.message_count)

    def _open_chunk(self) -> None:
        process_queue = self.ready.popleft()
        self._current = process_queue
        self._messages = process_queue.take().messages
        self._index = self._limit = self._settled = 0
        if process_queue.chunks:
            self.ready.append(process_queue)

    def _make_messages(self) -> None:
        """Switch from columns to single messages, also for the next pulls."""
        self._messages = list(self._messages)
        for process_queue in (self._current, *self.ready):
            if process_queue is not None:
                process_queue.is_lazy = False

    def want_columns(self) -> None:
        """Let queues with messages keep their next pulls undecoded, until a single message is taken."""
        for process_queue in self.ready:
            process_queue.is_lazy = True

    def peek(self, max_messages: int) -> Iterator[Sequence[MessageExt]]:
        """Yield what `take` would return, chunk by chunk."""
        chunks = (queue.chunks for queue in self.ready)
        turns = (chunk for turn in zip_longest(*chunks) for chunk in turn if chunk is not None)
        lists = (self._messages[self._index :], *(chunk.messages for chunk in turns))
        for messages in lists:
            if len(messages) >= max_messages:
                yield messages[:max_messages]
                return
            if messages:
                yield messages
                max_messages -= len(messages)

    def take(self, max_messages: int) -> list[MessageExt]:
        """Take available messages synchronously, as far as their decompressed bodies fit the limit."""
        batch = list(chain.from_iterable(self.peek(max_messages)))
        if self.may_inflate:
            # The rest stays as it is stored: a few bytes may become gigabytes, and the caller holds them all at once.
            del batch[fitting(batch) :]
            self._inflated = batch.copy()
        self.pass_over(len(batch))
        return batch

    def pass_over(self, max_messages: int) -> None:
        """Take messages without returning them."""
        while max_messages and (self._current is not None or self.ready):
            if self._current is None:
                self._open_chunk()
            process_queue = self._current
            assert process_queue is not None
            start = self._index
            end = min(len(self._messages), start + max_messages)
            max_messages -= end - start
            self._handed_out += end - start
            self._index = self._limit = self._settled = end
            self._in_work.add(process_queue)
            if end == len(self._messages):
                self._close_chunk()
            else:
                process_queue.position = self._messages[end].queue_offset

    def _close_chunk(self) -> None:
        assert self._current is not None
        self._current.finish()
        self._forget_chunk()

    def _forget_chunk(self) -> None:
        self._current = None
        self._messages = []
        self._index = self._limit = self._settled = 0

    def settle(self) -> None:
        """Mark everything that was handed out as done."""
        for message in self._inflated:
            message.forget_body()
        self._inflated = ()
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
            if process_queue.is_dropped:
                process_queue.room.wake()
        self._in_work.clear()

    def lost(self, process_queue: ProcessQueue) -> None:
        """Drop a queue's pulled messages: the queue is lost, or continues at another offset."""
        if process_queue is self._current:
            process_queue.position = self.position(process_queue)  # Statistics need it.
            self._handed_out += self._index - self._settled
            self._forget_chunk()
        self._in_work.discard(process_queue)
        if process_queue in self.ready:
            self.ready.remove(process_queue)

    def put_back(self, process_queue: ProcessQueue) -> None:
        """Drop a queue's pulled messages, except messages in work, which stay so until they are settled."""
        if process_queue is self._current:
            position, done_offset = self.position(process_queue), self.done_offset(process_queue)
            self._handed_out += self._index - self._settled
            if self._index > self._settled:
                self._in_work.add(process_queue)
            process_queue.position, process_queue.done_offset = position, done_offset
            self._forget_chunk()
        if process_queue in self.ready:
            self.ready.remove(process_queue)

    def close(self) -> None:
        """Hand out nothing more; a waiting receive ends with ClosedError."""
        self.is_closed = True
        # `__anext__` compares with it alone: without this it would go on through the messages that it has.
        self._limit = self._index
        self._arrival.set()
        self.closing.set()

    # -------------------------------------------------------------------------------- for handlers

    def begin_run(self) -> None:
        """Let `run` take the messages from now on. Raises ClosedError, or BusyResourceError while a task receives."""
        self.check_free()
        self.settle()
        self._is_receiving = True
        current = self._current
        if current is not None:
            current.put_current_back(self._index)
            self._forget_chunk()
            if current in self.ready:
                self.ready.remove(current)
            self.ready.appendleft(current)

    def end_run(self, process_queues: Iterable[ProcessQueue]) -> None:
        """End the run after its last handler; unfinished messages are handed out first, by whatever receives next."""
        self._is_receiving = False
        self.taken.clear()
        for process_queue in process_queues:
            process_queue.reclaim()
            self.offer(process_queue)

    def offer(self, process_queue: ProcessQueue) -> None:
        """Make a queue's messages available, unless it is paused or waits for its lock."""
        if process_queue.chunks and not process_queue.is_paused and process_queue.is_locked:
            self.arrived(process_queue)

    def begin(self) -> InWork | None:
        """Take the next message for any handler; return None if there is none."""
        ready = self.ready
        while ready:
            process_queue = ready[0]
            work = process_queue.begin()
            if work is None:
                ready.popleft()
                continue
            if process_queue.current is None:  # The next chunk comes from another queue.
                ready.popleft()
                if process_queue.chunks:
                    ready.append(process_queue)
            self._handed_out += 1
            return work
        return None

    def begin_batch(self, max_messages: int) -> BatchInWork | None:
        """Take the next messages of one queue for any handler; return None if there are none."""
        ready = self.ready
        while ready:
            process_queue = ready.popleft()
            works = process_queue.begin_batch(max_messages)
            if process_queue.current is not None:
                ready.appendleft(process_queue)
            elif process_queue.chunks:
                ready.append(process_queue)
            if works:
                self._handed_out += len(works)
                return BatchInWork(works)
        return None

    def take_queue(self) -> ProcessQueue | None:
        """Take a queue for one handler exclusively, until `return_queue`."""
        if not self.ready:
            return None
        process_queue = self.ready.popleft()
        self.taken.add(process_queue)
        return process_queue

    def begin_of(self, process_queue: ProcessQueue) -> InWork | None:
        """Take the next message of a taken queue; return None if there is none, or if the queue's lock has ended."""
        if process_queue.is_lost:
            # After a long pause this code may run before the task that renews the lock.
            return None
        work = process_queue.begin()
        if work is not None:
            self._handed_out += 1
        return work

    def begin_batch_of(self, process_queue: ProcessQueue, max_messages: int) -> BatchInWork | None:
        """Take the next messages of a taken queue together; return None if there are none, or if its lock has ended."""
        if process_queue.is_lost:
            return None
        works = process_queue.begin_batch(max_messages)
        self._handed_out += len(works)
        return BatchInWork(works) if works else None

    def return_queue(self, process_queue: ProcessQueue) -> None:
        """Let another handler take the queue."""
        self.taken.discard(process_queue)
        if process_queue.chunks or process_queue.current is not None:
            self.ready.append(process_queue)

    # ------------------------------------------------------------------------------------------ positions

    @property
    def handed_out(self) -> int:
        """The number of messages received so far."""
        return self._handed_out + self._index - self._settled

    def done_offset(self, process_queue: ProcessQueue) -> int | None:
        """Return the offset that may be committed: all messages before it are done."""
        if process_queue is self._current and self._index > self._settled:
            return self._messages[self._index - 1].queue_offset
        return process_queue.done_offset

    def committable(self, process_queue: ProcessQueue) -> int | None:
        """Return the offset before which all messages were received and no handler is unfinished."""
        if process_queue.in_work:
            return process_queue.done_offset
        return self.position(process_queue)

    def position(self, process_queue: ProcessQueue) -> int | None:
        """Return the offset that is handed out next."""
        if process_queue is self._current and self._index > self._settled:
            if self._index == len(self._messages):
                assert process_queue.current is not None
                return process_queue.current.next_offset
            return self._messages[self._index].queue_offset
        return process_queue.position


def check_batch(max_messages: int, max_wait: float = 0.0) -> None:
    """Raise ConfigError for a list size or waiting time that is out of range."""
    whole_number("max_messages", max_messages, least=1)
    seconds("max_wait", max_wait, may_be_0=True)


class BatchReceiver(Protocol):
    """The source of the lists, implemented by `HandOut`."""

    async def receive_batch(self, max_messages: int, max_wait: float) -> list[MessageExt]: ...


@attrs.define
class Batches:
    """Iterator over lists of messages, one after the other, while the consumer is open."""

    consumer: BatchReceiver
    max_messages: int
    max_wait: float

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[MessageExt]:
        return await self.consumer.receive_batch(self.max_messages, self.max_wait)


T = TypeVar("T")


@attrs.define
class Values(Generic[T]):
    """Iterator over values, one after the other, while the consumer is open."""

    messages: AsyncIterator[MessageExt]
    deserializer: Callable[[MessageExt], T]
    message: MessageExt | None = None
    """The message of the last value or exception: to log it, or to hand it back with `retry`."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        message = self.message = await anext(self.messages)
        try:
            return self.deserializer(message)
        except Exception as error:
            error.add_note(f"while reading {message!r}")
            raise
