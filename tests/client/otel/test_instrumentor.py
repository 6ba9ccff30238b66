"""Installing the spans: their options, what importing costs without them, the bridge to asyncio, a real exporter."""

import asyncio
import gzip
import importlib
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextvars import ContextVar
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from tests.client.otel.conftest import (
    TOPIC,
    Instrument,
    context_ids,
    linked,
    parent_of,
)
from tests.support.clients import client_with_topic

from rocketrio import ConfigError, Message, MessageExt, open_consumer, open_producer
from rocketrio.aio import open_trio
from rocketrio.hooks import installed
from rocketrio.otel import RocketrioInstrumentor
from rocketrio_broker.embedded import EmbeddedCluster

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_package_imports_nothing_of_opentelemetry() -> None:
    program = (
        "import sys, rocketrio, rocketrio.aio, rocketrio.admin;"
        "print([name for name in sys.modules if name.startswith(('opentelemetry', 'rocketrio.otel'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_entry_point_names_the_instrumentor() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module, _, name = project["entry-points"]["opentelemetry_instrumentor"]["rocketrio"].partition(
        ":"
    )
    assert getattr(importlib.import_module(module), name) is RocketrioInstrumentor


@pytest.mark.parametrize("option", ["inject", "parent"])
def test_unknown_choice_is_refused_and_installs_nothing(option: str) -> None:
    with pytest.raises(ConfigError, match=option):
        RocketrioInstrumentor().instrument(**{option: "often"})
    assert installed() is None
    assert not RocketrioInstrumentor().is_instrumented_by_opentelemetry


async def test_clients_opened_before_or_without_instrument_have_no_spans(
    cluster: EmbeddedCluster, instrument: Instrument
) -> None:
    async with client_with_topic(cluster) as before, open_producer(client=before) as early:
        spans = instrument()
        RocketrioInstrumentor().uninstrument()
        async with client_with_topic(cluster) as after, open_producer(client=after) as late:
            await early.send(Message(TOPIC, b""))
            await late.send(Message(TOPIC, b""))
    assert not spans.all()


async def test_traces_for_apaches_consoles_are_no_spans(
    cluster: EmbeddedCluster, instrument: Instrument
) -> None:
    spans = instrument()
    async with (
        client_with_topic(cluster, trace=True) as client,
        open_producer(client=client) as producer,
    ):
        await producer.send(Message(TOPIC, b""))
        assert client.traces is not None
        await client.traces.flush()
        assert client.traces.statistics().sent == 1
    assert [span.name for span in spans.all()] == [f"send {TOPIC}"]


def test_context_crosses_between_asyncio_and_trio_both_ways(instrument: Instrument) -> None:
    spans = instrument()
    request: ContextVar[str] = ContextVar("request")
    seen: list[str] = []

    async def note() -> None:  # asyncio
        seen.append(request.get())

    async def main() -> None:
        async with (
            asyncio.timeout(20),
            open_trio() as side,
            side.open(EmbeddedCluster(slaves=0)) as cluster,
            side.open(client_with_topic(cluster)) as client,
        ):

            async def serve(name: str) -> None:
                request.set(name)
                with spans.current(name):
                    await side.run(send, name)

            async def send(name: str) -> None:  # trio
                seen.append(request.get())
                async with open_producer(client=client) as producer:
                    await producer.send(Message(TOPIC, name.encode()))
                await side.on_asyncio(note)

            await asyncio.gather(serve("one"), serve("two"))

    asyncio.run(main())
    assert sorted(seen) == ["one", "one", "two", "two"]
    assert {parent_of(span) for span in spans.named(f"send {TOPIC}")} == {
        context_ids(spans.one("one")),
        context_ids(spans.one("two")),
    }


class _Collector(BaseHTTPRequestHandler):
    """Takes spans as an OpenTelemetry collector does."""

    taken: list[ExportTraceServiceRequest]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.taken.append(ExportTraceServiceRequest.FromString(body))
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.end_headers()
        self.wfile.write(ExportTraceServiceResponse().SerializeToString())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing."""


@pytest.fixture
def collector() -> Iterator[tuple[str, list[ExportTraceServiceRequest]]]:
    """The address of an OTLP receiver, and what it has taken."""
    taken: list[ExportTraceServiceRequest] = []
    server = HTTPServer(("127.0.0.1", 0), type("Collector", (_Collector,), {"taken": taken}))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1/traces", taken
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.slow
async def test_otlp_exporter_takes_the_spans_of_a_send_and_a_receive(
    cluster: EmbeddedCluster,
    instrument: Instrument,
    collector: tuple[str, list[ExportTraceServiceRequest]],
) -> None:
    url, taken = collector
    spans = instrument()
    spans.provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(url)))
    async with client_with_topic(cluster) as client, open_producer(client=client) as producer:
        await producer.send(Message(TOPIC, b""))
        async with open_consumer(
            TOPIC, group="g", start_from="earliest", client=client
        ) as consumer:
            assert isinstance(await consumer.receive(), MessageExt)
    exported = {
        span.name: span
        for request in taken
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    }
    sent = exported[f"send {TOPIC}"]
    assert [link.span_id for link in exported[f"receive {TOPIC}"].links] == [sent.span_id]
    assert linked(spans.one(f"receive {TOPIC}")) == [
        (int.from_bytes(sent.trace_id), int.from_bytes(sent.span_id))
    ]


PROGRAM = """
import sys, trio
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from rocketrio import Message, open_client, open_producer
from rocketrio_broker.embedded import EmbeddedCluster

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(sys.argv[1])))
trace.set_tracer_provider(provider)

async def main():
    async with (
        EmbeddedCluster(slaves=0, network="loopback") as cluster,
        open_client(name_servers=cluster.name_servers) as client,
        open_producer(client=client) as producer,
    ):
        await producer.send(Message("orders", b""))

trio.run(main)
"""


@pytest.mark.slow
def test_command_of_opentelemetry_finds_the_instrumentor(
    collector: tuple[str, list[ExportTraceServiceRequest]], tmp_path: Path
) -> None:
    url, taken = collector
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    command = Path(sys.executable).with_name("opentelemetry-instrument")
    done = subprocess.run([command, sys.executable, file, url], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    names = [
        span.name
        for request in taken
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    assert names == ["send orders"]
