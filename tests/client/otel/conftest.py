"""Spans of a client of a cluster in memory."""

from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
import trio
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler

from rocketrio import ClientInstance, MessageExt, open_consumer
from rocketrio.otel import RocketrioInstrumentor

TOPIC = "orders"


@attrs.define
class Spans:
    """The finished spans, and a tracer of the test's own."""

    exporter: InMemorySpanExporter
    provider: TracerProvider
    metrics: InMemoryMetricReader

    def all(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        found = self.named(name)
        assert len(found) == 1, [span.name for span in self.all()]
        return found[0]

    def points(self, name: str) -> list[Any]:
        """The points of a metric; those of histograms have `count`, those of counters `value`."""
        data = self.metrics.get_metrics_data()
        resources = [] if data is None else data.resource_metrics
        scopes = [scope for resource in resources for scope in resource.scope_metrics]
        found = [one for scope in scopes for one in scope.metrics if one.name == name]
        return [point for one in found for point in one.data.data_points]

    def current(self, name: str = "caller") -> Any:
        """A span of the application that is current in the block."""
        return self.provider.get_tracer("test").start_as_current_span(name)


Instrument = Callable[..., Spans]


@pytest.fixture
def instrument() -> Iterator[Instrument]:
    """Return a function that installs the spans, with options of `instrument`."""

    def installed(*, sampler: Sampler = ALWAYS_ON, **options: Any) -> Spans:
        exporter, provider = InMemorySpanExporter(), TracerProvider(sampler=sampler)
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        reader = InMemoryMetricReader()
        meters = MeterProvider([reader])
        RocketrioInstrumentor().instrument(
            tracer_provider=provider, meter_provider=meters, **options
        )
        return Spans(exporter, provider, reader)

    yield installed
    if RocketrioInstrumentor().is_instrumented_by_opentelemetry:
        RocketrioInstrumentor().uninstrument()


async def received(client: ClientInstance, count: int, topic: str = TOPIC) -> list[MessageExt]:
    """The first messages of the topic."""
    found: list[MessageExt] = []
    async with open_consumer(topic, group="all", start_from="earliest", client=client) as consumer:
        with trio.fail_after(60):
            while len(found) < count:
                found += [message.copy() for message in await consumer.receive_batch()]
    return found


def context_ids(span: ReadableSpan) -> tuple[int, int]:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


def linked(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def parent_of(span: ReadableSpan) -> tuple[int, int] | None:
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)


def traceparent(span: ReadableSpan) -> str:
    context = span.get_span_context()
    assert context is not None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
