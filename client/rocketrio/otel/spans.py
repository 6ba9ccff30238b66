"""The spans: `Spans` is what `rocketrio.hooks` calls.

    create T    one message of a batch             PRODUCER   its context goes into the message
    send T      a send, a batch, a request of a pipeline   PRODUCER if its context goes into the message, else CLIENT
    receive T   a receive that gave messages       CLIENT     begins with the call; links to each message
    process T   a handler, a check_transaction     CONSUMER   links to each message, or is a child of its one message
    nack T, reject T, commit T                     CLIENT     a message handed back, a dead letter, committed offsets
    end_transaction T                              CLIENT     links to the half message

Invariant: no span stays current across the yield of an async generator, which may end in another context.
Invariant: a mistake in a user's hook is logged, and neither loses nor delays a message.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias

import attrs
from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace import Span, SpanContext, SpanKind, Status, StatusCode, Tracer

from rocketrio.consuming.running import ConsumeLater
from rocketrio.hooks import Client, Given, Reader, Received, SendCall, Sending
from rocketrio.otel import attributes as names
from rocketrio.otel.attributes import Attributes
from rocketrio.otel.meters import Meters
from rocketrio.otel.propagation import (
    Inject,
    carries_context,
    context_of,
    creation_context,
    links_to,
    with_context,
    with_new_context,
)
from rocketrio.producing.send_result import SendResult, SendStatus
from rocketrio_protocol.message import Message, MessageExt, MessageQueue

Parent: TypeAlias = Literal["current", "message"]
"""What the span of a handler is a child of: the current span, or the context of its one message."""
SpanHook: TypeAlias = Callable[[Span, Any], object]
"""Called with a span and its message, or the list of its messages, before the span ends."""

logger = logging.getLogger("rocketrio.otel")


@attrs.frozen(kw_only=True)
class Spans:
    """Makes the spans of all clients of the process, as it was configured."""

    tracer: Tracer
    meters: Meters
    inject: Inject = "sampled"
    parent: Parent = "current"
    create_spans: bool = False
    """Whether each message of a pipeline gets a span of its own, as those of batches do."""
    commit_spans: bool = False
    """Whether `consumer.commit()` makes a span."""
    body_sizes: bool = False
    """Whether spans of one message have the size of its body."""
    send_hook: SpanHook | None = None
    receive_hook: SpanHook | None = None
    process_hook: SpanHook | None = None

    # -------------------------------------------------------------------------------------- sending

    @contextmanager
    def sending(self, call: SendCall) -> Iterator[Sending]:
        """Make a `send` span."""
        if not call.messages or not all(isinstance(each, Message) for each in call.messages):
            yield _Unseen(call.messages)  # The encoder raises what is wrong with them.
            return
        client, topic = call.client, call.messages[0].topic
        messages = call.messages
        if call.kind == "batch":
            messages = [self._created(client, message) for message in messages]
        is_creator = call.kind == "single" and self._is_creator(call)
        carried = [] if is_creator and not call.is_copy else list(map(creation_context, messages))
        with self._span(
            f"send {topic}",
            SpanKind.PRODUCER if is_creator else SpanKind.CLIENT,
            names.of_client(client, "send", "send", topic)
            | names.of_send(call)
            | self._sizes(call.messages),
            carried,
        ) as span:
            if is_creator:
                injected = with_new_context if call.is_copy else with_context
                messages = [injected(messages[0], contexts.get_current(), self.inject)]
            sending = _Sending(span, client, messages, is_single=call.kind == "single")
            try:
                yield sending
            finally:
                given = messages[0] if call.kind == "single" else messages
                _call(self.send_hook, span, given)

    def _is_creator(self, call: SendCall) -> bool:
        """Return whether the context of the span of this send goes into its message."""
        if self.inject == "never":
            return False
        return call.is_copy or not carries_context(call.messages[0])

    def pipelined(self, client: Client, message: Message) -> Message:
        """Put the current context into a message of a pipeline, or that of a span of its own."""
        if not isinstance(message, Message):
            return message
        if self.create_spans:
            return self._created(client, message)
        return with_context(message, contexts.get_current(), self.inject)

    def _created(self, client: Client, message: Message) -> Message:
        """Make a `create` span for a message that has no context yet, and return the message that carries it."""
        if self.inject == "never" or carries_context(message):
            return message
        found = names.of_client(client, "create", "create", message.topic)
        span = self.tracer.start_span(
            f"create {message.topic}",
            kind=SpanKind.PRODUCER,
            attributes=found | names.of_outgoing(message),
        )
        carrying = with_context(message, trace.set_span_in_context(span), self.inject)
        span.end()
        return carrying

    @contextmanager
    def ending(
        self, client: Client, message: Message, message_id: str, state: str
    ) -> Iterator[None]:
        """Make an `end_transaction` span."""
        found = names.of_client(client, "end_transaction", "settle", message.topic)
        found |= {names.MESSAGE_ID: message_id, names.TRANSACTION_STATE: state}
        with self._span(
            f"end_transaction {message.topic}", SpanKind.CLIENT, found, [creation_context(message)]
        ):
            yield

    # ------------------------------------------------------------------------------------ receiving

    def receiving(self, reader: Reader) -> Received:
        """Make a `receive` span if messages are given: from now until then."""
        began = time.time_ns()

        def received(messages: Sequence[MessageExt]) -> None:
            topic = _common_topic(messages)
            found = names.of_client(reader.client, "receive", "receive", topic)
            found |= names.of_received(reader, messages) | self._sizes(messages)
            links, omitted = links_to(list(map(creation_context, messages)))
            span = self.tracer.start_span(
                _named("receive", topic),
                kind=SpanKind.CLIENT,
                attributes=found | _omitted(omitted),
                links=links,
                start_time=began,
            )
            _call(self.receive_hook, span, messages[0] if len(messages) == 1 else messages)
            span.end()
            counted = {**found, names.MESSAGE_COUNT: len(messages)}
            self.meters.ended(counted, (time.time_ns() - began) / 1e9)

        return received

    def handler(
        self, reader: Reader, handler: Callable[[Given], Awaitable[object]]
    ) -> Callable[[Given], Awaitable[object]]:
        """Wrap a handler in `process` spans."""

        async def processing(given: Given) -> object:
            with self._processing(reader, given) as span:
                try:
                    return await handler(given)
                finally:
                    _call(self.process_hook, span, given)

        return processing

    @contextmanager
    def checking(self, reader: Reader, message: MessageExt) -> Iterator[None]:
        """Make a `process` span for a check of a transaction."""
        with self._processing(reader, message):
            yield

    @contextmanager
    def _processing(self, reader: Reader, given: MessageExt | list[MessageExt]) -> Iterator[Span]:
        messages = given if isinstance(given, list) else [given]
        topic = _common_topic(messages)
        found = names.of_client(reader.client, "process", "process", topic)
        found |= names.of_reader(reader)
        if isinstance(given, list):
            found[names.MESSAGE_COUNT] = len(given)
        else:
            found |= names.of_message(given) | self._sizes(messages)
        created = list(map(creation_context, messages))
        parent = None
        if self.parent == "message" and not isinstance(given, list) and created[0] is not None:
            parent, created = context_of(given), []
        with self._span(
            _named("process", topic), SpanKind.CONSUMER, found, created, parent
        ) as span:
            yield span

    # -------------------------------------------------------------------------------------- settling

    @contextmanager
    def settling(self, reader: Reader, message: MessageExt, *, is_dead: bool) -> Iterator[None]:
        """Make a `nack` or a `reject` span."""
        operation = "reject" if is_dead else "nack"
        found = names.of_client(reader.client, operation, "settle", message.topic)
        found |= names.of_reader(reader) | names.of_message(message)
        with self._span(
            f"{operation} {message.topic}", SpanKind.CLIENT, found, [creation_context(message)]
        ):
            yield

    @contextmanager
    def committing(self, reader: Reader, queues: Sequence[MessageQueue]) -> Iterator[None]:
        """Make a `commit` span if that is wanted."""
        if not self.commit_spans:
            yield
            return
        topics = {queue.topic for queue in queues}
        topic = topics.pop() if len(topics) == 1 else None
        found = names.of_client(reader.client, "commit", "settle", topic) | names.of_reader(reader)
        if len(queues) == 1:
            found[names.PARTITION] = names.partition(queues[0])
        with self._span(_named("commit", topic), SpanKind.CLIENT, found, []):
            yield

    # ------------------------------------------------------------------------------------- internals

    def _sizes(self, messages: Sequence[Message] | Sequence[MessageExt]) -> Attributes:
        if not self.body_sizes or len(messages) != 1:
            return {}
        [message] = messages
        if isinstance(message, MessageExt) and message.body_error is not None:
            return {}  # The program's own reading of it raises that error.
        return {names.BODY_SIZE: len(message.body)}

    @contextmanager
    def _span(
        self,
        name: str,
        kind: SpanKind,
        attributes: Attributes,
        created: Sequence[SpanContext | None],
        parent: contexts.Context | None = None,
    ) -> Iterator[Span]:
        """Make a span that is current in the block, and note how the block fails."""
        links, omitted = links_to(created)
        span = self.tracer.start_span(
            name, parent, kind=kind, attributes=attributes | _omitted(omitted), links=links
        )
        token = contexts.attach(trace.set_span_in_context(span, parent))
        began, failed = time.perf_counter(), None
        try:
            yield span
        except ConsumeLater:
            raise  # The handler has decided it, and the span of handing back shows it.
        except BaseException as error:
            failed = names.error_type(error)
            span.set_attribute(names.ERROR_TYPE, failed)
            span.set_status(Status(StatusCode.ERROR, str(error) or type(error).__name__))
            raise
        finally:
            contexts.detach(token)
            span.end()
            self.meters.ended(attributes, time.perf_counter() - began, failed)


@attrs.frozen
class _Unseen:
    """What an invalid call gets: it has no span."""

    messages: Sequence[Message]

    def encoded(self, message_ids: Sequence[str]) -> None:
        """Do nothing."""

    def stored(self, result: SendResult) -> None:
        """Do nothing."""


@attrs.frozen
class _Sending:
    """A send under way, and its span."""

    span: Span
    client: Client
    messages: Sequence[Message]
    is_single: bool

    def encoded(self, message_ids: Sequence[str]) -> None:
        if self.is_single:
            self.span.set_attribute(names.MESSAGE_ID, message_ids[0])

    def stored(self, result: SendResult) -> None:
        self.span.set_attributes(names.of_result(self.client, result))
        if result.status is not SendStatus.SEND_OK:
            # The message is stored, so this is no error.
            self.span.add_event(result.status.name)


def _common_topic(messages: Sequence[MessageExt]) -> str | None:
    topics = {message.topic for message in messages}
    return topics.pop() if len(topics) == 1 else None


def _named(operation: str, topic: str | None) -> str:
    return operation if topic is None else f"{operation} {topic}"


def _omitted(count: int) -> Attributes:
    return {names.LINKS_OMITTED: count} if count else {}


def _call(hook: SpanHook | None, span: Span, given: object) -> None:
    if hook is not None and span.is_recording():
        try:
            hook(span, given)
        except Exception:
            logger.warning("span hook failed hook=%r", hook, exc_info=True)
