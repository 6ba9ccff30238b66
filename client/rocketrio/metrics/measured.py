"""Times sends and handlers of one client in plain numbers, as hooks around other hooks.

Labels and bounds are those of RocketMQ's 5.x clients (RIP-46), so that boards made for these fit.
"""

import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final, TypeVar

from rocketrio.hooks import Client, Given, Hooks, Reader, Received, SendCall, Sending
from rocketrio.producing.observed import Unobserved
from rocketrio_protocol.histogram import Histogram
from rocketrio_protocol.message import Message, MessageExt, MessageQueue

Key = TypeVar("Key")

SEND_BOUNDS: Final = (1.0, 5.0, 10.0, 20.0, 50.0, 200.0, 500.0)
PROCESS_BOUNDS: Final = (1.0, 5.0, 10.0, 100.0, 1000.0, 10_000.0, 60_000.0)
"""Milliseconds."""
SERIES_LIMIT: Final = 1000
"""Topics that are timed; further ones are not."""


class Measured:
    """The hooks of a client with `metrics=True`."""

    def __init__(
        self, inner: Hooks | None, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """Create them around the client's other hooks; `clock` returns seconds."""
        self.sends: dict[tuple[str, bool], Histogram] = {}
        """Milliseconds from the call of a send to its answer, by topic and whether it was stored."""
        self.handlers: dict[tuple[str, str, bool], Histogram] = {}
        """Milliseconds of handlers, by group, topic and whether they returned."""
        self.busy: dict[str, int] = {}
        """Handlers that run now, by group."""
        self._inner = inner
        self._clock = clock

    @contextmanager
    def sending(self, call: SendCall) -> Iterator[Sending]:
        begin, topic, is_stored = self._clock(), call.messages[0].topic, False
        inner = self._inner
        entered = nullcontext(Unobserved(call.messages)) if inner is None else inner.sending(call)
        try:
            with entered as sending:
                yield sending
            is_stored = True
        finally:
            self._add(self.sends, (topic, is_stored), SEND_BOUNDS, begin)

    def pipelined(self, client: Client, message: Message) -> Message:
        return message if self._inner is None else self._inner.pipelined(client, message)

    def receiving(self, reader: Reader) -> Received:
        return _nothing if self._inner is None else self._inner.receiving(reader)

    def handler(
        self, reader: Reader, handler: Callable[[Given], Awaitable[object]]
    ) -> Callable[[Given], Awaitable[object]]:
        inner = handler if self._inner is None else self._inner.handler(reader, handler)
        group = reader.group

        async def timed(given: Given) -> object:
            first = given if isinstance(given, MessageExt) else given[0]
            begin, is_done = self._clock(), False
            self.busy[group] = self.busy.get(group, 0) + 1
            try:
                outcome = await inner(given)
                is_done = True
                return outcome
            finally:
                self.busy[group] -= 1
                self._add(self.handlers, (group, first.topic, is_done), PROCESS_BOUNDS, begin)

        return timed

    def checking(self, reader: Reader, message: MessageExt) -> AbstractContextManager[None]:
        return nullcontext() if self._inner is None else self._inner.checking(reader, message)

    def settling(
        self, reader: Reader, message: MessageExt, *, is_dead: bool
    ) -> AbstractContextManager[None]:
        if self._inner is None:
            return nullcontext()
        return self._inner.settling(reader, message, is_dead=is_dead)

    def committing(
        self, reader: Reader, queues: Sequence[MessageQueue]
    ) -> AbstractContextManager[None]:
        return nullcontext() if self._inner is None else self._inner.committing(reader, queues)

    def ending(
        self, client: Client, message: Message, message_id: str, state: str
    ) -> AbstractContextManager[None]:
        if self._inner is None:
            return nullcontext()
        return self._inner.ending(client, message, message_id, state)

    def _add(
        self,
        histograms: dict[Key, Histogram],
        key: Key,
        bounds: tuple[float, ...],
        begin: float,
    ) -> None:
        histogram = histograms.get(key)
        if histogram is None:
            if len(histograms) >= SERIES_LIMIT:
                return
            histogram = histograms[key] = Histogram(bounds)
        histogram.add((self._clock() - begin) * 1000)


def _nothing(messages: Sequence[MessageExt]) -> None:
    """Ignore received messages."""
