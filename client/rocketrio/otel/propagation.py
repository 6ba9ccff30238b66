"""The contexts of traces in messages: plain properties `traceparent`, `tracestate` and `baggage`.

OpenTelemetry's Java instrumentation reads and writes the same properties, so traces continue from and to Java programs.
The names are those of the global propagator; by default they are those of W3C.

Invariant: a message that has a context keeps it: its sender has put it there, or the send before this one.
Invariant: a context never makes a message too long to be sent: then it is left out.
"""

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import attrs
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanContext

from rocketrio_protocol.message import Message, MessageExt
from rocketrio_protocol.record.properties import MAX_PROPERTIES_SIZE

Inject: TypeAlias = Literal["sampled", "always", "never"]
"""Which contexts go into messages: a context has about 68 bytes."""

LINK_LIMIT: Final = 128
"""Links of one span (OTEL_SPAN_LINK_COUNT_LIMIT); the others are only counted."""
_OWN_ROOM: Final = 1024
"""Bytes of the properties that rocketrio and brokers add."""
_BAGGAGE: Final = "baggage"


def context_of(message: Message | MessageExt) -> Context:
    """Return the context that a message carries; an empty one if it carries none."""
    return propagate.extract(message.properties, context=Context())


def creation_context(message: Message | MessageExt) -> SpanContext | None:
    """Return the context of the span that created a message; None if the message carries none."""
    found = trace.get_current_span(context_of(message)).get_span_context()
    return found if found.is_valid else None


def carries_context(message: Message) -> bool:
    """Return whether a message has properties of a trace already; baggage alone is none."""
    return any(
        name in message.properties
        for name in propagate.get_global_textmap().fields
        if name != _BAGGAGE
    )


def with_context(message: Message, context: Context, inject: Inject) -> Message:
    """Return a copy of the message that carries the context, or the message itself if it shall not."""
    span = trace.get_current_span(context).get_span_context()
    if (
        inject == "never"
        or not span.is_valid
        or (inject == "sampled" and not span.trace_flags.sampled)
        or carries_context(message)
    ):
        return message
    carrier: dict[str, str] = {}
    propagate.inject(carrier, context=context)
    # The message's own come last, so that a `baggage` which the program has set stays.
    properties = {**carrier, **message.properties}
    if _size(message, properties) > MAX_PROPERTIES_SIZE - _OWN_ROOM:
        return message
    return attrs.evolve(message, properties=properties)


def with_new_context(message: Message, context: Context, inject: Inject) -> Message:
    """Return a copy of the message that carries this context instead of the one that it has."""
    names = propagate.get_global_textmap().fields
    others = {name: value for name, value in message.properties.items() if name not in names}
    bare = attrs.evolve(message, properties=others)
    carrying = with_context(bare, context, inject)
    return message if carrying is bare else carrying


def _size(message: Message, properties: dict[str, str]) -> int:
    texts = (*properties, *properties.values(), str(message.keys), str(message.tags))
    return sum(len(str(text).encode("utf-8", "replace")) + 1 for text in texts)


def links_to(contexts: Sequence[SpanContext | None]) -> tuple[list[Link], int]:
    """Return links to the different contexts, and how many there are beyond LINK_LIMIT."""
    by_id = {(each.trace_id, each.span_id): each for each in contexts if each is not None}
    different = list(by_id.values())
    return [Link(context) for context in different[:LINK_LIMIT]], len(different[LINK_LIMIT:])
