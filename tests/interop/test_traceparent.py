"""Traces that go on between Java programs and ours: Java's instrumentation reads and writes the same property."""

from collections.abc import Iterator
from typing import Any

import pytest
import trio
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from rocketrio import Message, MessageExt, open_client, open_consumer, open_producer
from rocketrio.otel import RocketrioInstrumentor
from tests.interop.one_master import OneMaster, one_master_fixture

pytestmark = pytest.mark.interop

PATIENCE = 60.0
TRACE_ID, SPAN_ID = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
TRACEPARENT = f"00-{TRACE_ID:032x}-{SPAN_ID:016x}-01"


cluster = one_master_fixture()


@pytest.fixture
def exporter(request: pytest.FixtureRequest) -> Iterator[InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    RocketrioInstrumentor().instrument(tracer_provider=provider, **request.param)
    yield exporter
    RocketrioInstrumentor().uninstrument()


def named(exporter: InMemorySpanExporter, name: str) -> ReadableSpan:
    (found,) = [span for span in exporter.get_finished_spans() if span.name == name]
    return found


@pytest.mark.parametrize("exporter", [{}, {"parent": "message"}], indirect=True)
async def test_context_of_a_java_producer_is_link_or_parent_of_our_handler(
    cluster: OneMaster, exporter: InMemorySpanExporter
) -> None:
    topic = await trio.to_thread.run_sync(cluster.new_topic)
    properties = {"traceparent": TRACEPARENT, "tracestate": "vendor=1"}
    await cluster.java.acall("send", topic=topic, body="java", properties=properties)
    async with (
        open_client(name_servers=[cluster.name_server]) as client,
        open_consumer(topic, group=f"{topic}-g", start_from="earliest", client=client) as consumer,
        trio.open_nursery() as nursery,
    ):

        async def handle(message: MessageExt) -> None:
            assert message.property_value("traceparent") == TRACEPARENT
            nursery.cancel_scope.cancel()

        with trio.fail_after(PATIENCE):
            await consumer.run(handle)
    span = named(exporter, f"process {topic}")
    found: Any = span.parent or span.links[0].context
    assert (found.trace_id, found.span_id) == (TRACE_ID, SPAN_ID)
    assert found.trace_state.get("vendor") == "1"
    assert (span.parent is None) == bool(span.links)


@pytest.mark.parametrize("exporter", [{}], indirect=True)
async def test_java_consumer_gets_the_context_of_our_send(
    cluster: OneMaster, exporter: InMemorySpanExporter
) -> None:
    topic = await trio.to_thread.run_sync(cluster.new_topic)
    async with open_producer(name_servers=[cluster.name_server]) as producer:
        await producer.send(Message(topic, b"ours"))
    span = named(exporter, f"send {topic}")
    context = span.get_span_context()
    assert context is not None
    expected = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    java = cluster.java
    await java.acall("push_start", group=f"{topic}-g", topic=topic)
    (taken,) = await java.acall("push_take", group=f"{topic}-g", count=1, timeout=PATIENCE)
    await java.acall("push_stop", group=f"{topic}-g")
    assert taken["properties"]["traceparent"] == expected
