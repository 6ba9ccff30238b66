"""The spans of sends, and the contexts that messages carry."""

import pytest
import trio
from opentelemetry import baggage, context
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode
from tests.client.otel.conftest import (
    TOPIC,
    Instrument,
    context_ids,
    linked,
    parent_of,
    received,
    traceparent,
)
from tests.support.clients import client_with_topic

from rocketrio import (
    ConfigError,
    Message,
    MessagesNotStoredError,
    NotReachableError,
    TransactionState,
    open_producer,
)
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.errors import LocalProtocolError
from rocketrio_protocol.record.properties import MAX_PROPERTIES_SIZE

THEIRS = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def test_send_span_has_the_attributes_of_the_conventions(
    cluster: EmbeddedCluster, instrument: Instrument
) -> None:
    spans = instrument()
    async with (
        client_with_topic(cluster, namespace="lab", client_id="shop-1") as client,
        open_producer(client=client) as producer,
    ):
        with spans.current() as caller:
            sent = await producer.send(
                Message(TOPIC, b"body", tags="paid", keys="k1 k2"), sharding_key="c7"
            )
    span = spans.one(f"send {TOPIC}")
    host, port = cluster.master.broker.address.split(":")
    assert span.kind is SpanKind.PRODUCER
    assert parent_of(span) == context_ids(caller)
    assert span.status.status_code is StatusCode.UNSET
    assert dict(span.attributes or {}) == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.rocketmq.namespace": "lab",
        "messaging.client.id": "shop-1",
        "messaging.destination.name": TOPIC,
        "messaging.destination.partition.id": f"{sent.queue.broker_name}:{sent.queue.queue_id}",
        "messaging.message.id": sent.message_id,
        "messaging.rocketmq.message.type": "fifo",
        "messaging.rocketmq.message.group": "c7",
        "messaging.rocketmq.message.tag": "paid",
        "messaging.rocketmq.message.keys": ("k1", "k2"),
        "rocketrio.queue_offset": sent.queue_offset,
        "rocketrio.send.status": "SEND_OK",
        "server.address": host,
        "server.port": int(port),
        "network.peer.address": host,
        "network.peer.port": int(port),
    }


async def test_message_carries_the_context_and_the_users_object_is_not_changed(
    cluster: EmbeddedCluster, instrument: Instrument
) -> None:
    spans = instrument()
    message = Message(TOPIC, b"", properties={"region": "EU"})
    async with (
        client_with_topic(cluster) as client,
        open_producer(client=client) as producer,
    ):
        token = context.attach(baggage.set_baggage("tenant", "a b"))
        await producer.send(message)
        context.detach(token)
        await producer.send(message)
        first, second = await received(client, 2)
    assert message.properties == {"region": "EU"}
    one, two = spans.named(f"send {TOPIC}")
    assert first.property_value("traceparent") == traceparent(one)
    assert first.property_value("baggage") == "tenant=a+b"
    assert second.property_value("traceparent") == traceparent(two)
    assert second.property_value("baggage") is None
    assert second.property_value("region") == "EU"


async def test_users_own_traceparent_is_kept_and_linked(
    cluster: EmbeddedCluster, instrument: Instrument
) -> None:
    spans = instrument()
    async with client_with_topic(cluster) as client, open_producer(client=client) as producer:
        await producer.send(Message(TOPIC, b"", properties={"traceparent": THEIRS}))
        (message,) = await received(client, 1)
    span = spans.one(f"send {TOPIC}")
    assert message.property_value("traceparent") == THEIRS
    assert span.kind is SpanKind.CLIENT
    assert linked(span) == [(int(THEIRS[3:35], 16), int(THEIRS[36:52], 16))]


@pytest.mark.parametrize(
    ("inject", "is_sampled", "is_carried"),
    [
        ("sampled", True, True),
        ("sampled", False, False),
        ("always", False, True),
        ("never", True, False),
    ],
)
async def test_inject_decides_which_messages_carry_a_context(
    cluster: EmbeddedCluster,
    instrument: Instrument,
    inject: str,
    is_sampled: bool,
    is_carried: bool,
) -> None:
    spans = (
        instrument(inject=inject) if is_sampled else instrument(inject=inject, sampler=ALWAYS_OFF)
    )
    async with client_with_topic(cluster) as client, open_producer(client=client) as producer:
        await producer.send(Message(TOPIC, b""))
        await producer.send_batch([Message(TOPIC, b""), Message(TOPIC, b"")])
        async with producer.pipeline() as pipeline:
            with spans.current():
                await pipeline.send(Message(TOPIC, b""))
        found = await received(client, 4)
    assert {"traceparent" in message.properties for message in found} == {is_carried}
    if inject == "never":
        assert spans.named(f"send {TOPIC}")[0].kind is SpanKind.CLIENT
        assert not spans.named(f"create {TOPIC}")


async def test_context_that_would_make_a_message_too_long_is_left_out(
    cluster: EmbeddedCluster, instrument: Instrument
) -> None:
    instrument()
    long = {"note": "x" * (MAX_PROPERTIES_SIZE - 200)}
    async with client_with_topic(cluster) as client, open_producer(client=client) as producer:
        await producer.send(Message(TOPIC, b"", properties=long))
        (message,) = await received(client, 1)
    assert "traceparent" not in message.properties


async def test_batch_has_a_span_of_each_message_and_one_that_links_to_them(
    cluster: EmbeddedCluster, instrument: Instrument
) -> None:
    spans = instrument()
    async with client_with_topic(cluster) as client, open_producer(client=client) as producer:
        with spans.current() as caller:
            await producer.send_batch([Message(TOPIC, b"1", tags="a"), Message(TOPIC, b"2")])
        messages = await received(client, 2)
    created, sent = spans.named(f"create {TOPIC}"), spans.one(f"send {TOPIC}")
    assert [span.kind for span in created] == [SpanKind.PRODUCER, SpanKind.PRODUCER]
    assert [parent_of(span) for span in (*created, sent)] == [context_ids(caller)] * 3
    assert linked(sent) == [context_ids(span) for span in created]
    assert sent.kind is SpanKind.CLIENT
    assert sent.attributes is not None
    assert sent.attributes["messaging.batch.message_count"] == 2
    assert "messaging.message.id" not in sent.attributes
    assert [message.property_value("traceparent") for message in messages] == [
        traceparent(span) for span in created
    ]


@pytest.mark.parametrize("create_spans", [False, True])
async def test_pipeline_sends_in_the_context_in_which_it_was_opened(
    cluster: EmbeddedCluster, instrument: Instrument, create_spans: bool
) -> None:
    spans = instrument(create_spans=create_spans)
    async with client_with_topic(cluster) as client, open_producer(client=client) as producer:
        with spans.current("opener") as opener:
            async with producer.pipeline() as pipeline:
                for name in ("first", "second"):
                    with spans.current(name):
                        await pipeline.send(Message(TOPIC, name.encode()))
        messages = await received(client, 2)
    sent = spans.named(f"send {TOPIC}")
    created = spans.named(f"create {TOPIC}")
    assert len(created) == (2 if create_spans else 0)
    contexts = created or [spans.one("first"), spans.one("second")]
    assert {parent_of(span) for span in sent} == {context_ids(opener)}
    assert sorted(link for span in sent for link in linked(span)) == sorted(
        context_ids(span) for span in contexts
    )
    assert {message.property_value("traceparent") for message in messages} == {
        traceparent(span) for span in contexts
    }


async def test_failed_message_of_a_pipeline_is_the_users_object(
    cluster: EmbeddedCluster, instrument: Instrument
) -> None:
    spans = instrument()
    message = Message(TOPIC, b"")
    async with (
        client_with_topic(cluster) as client,
        open_producer(client=client, retries=0) as producer,
    ):
        await producer.send(message)
        await cluster.kill_master()
        with pytest.raises(MessagesNotStoredError) as caught:  # noqa: PT012 - the end of the block raises.
            async with producer.pipeline() as pipeline:
                with spans.current():
                    await pipeline.send(message)
    assert caught.value.failures[0].message is message
    assert spans.named(f"send {TOPIC}")[-1].status.status_code is StatusCode.ERROR


async def test_failed_send_has_the_type_of_its_error(
    cluster: EmbeddedCluster, instrument: Instrument
) -> None:
    spans = instrument()
    async with client_with_topic(cluster) as client, open_producer(client=client) as producer:
        await producer.send(Message(TOPIC, b""))
        spans.exporter.clear()
        await cluster.kill_master()
        with pytest.raises(NotReachableError):
            await producer.send(Message(TOPIC, b""))
        with pytest.raises(LocalProtocolError):
            await producer.send(Message(TOPIC, "text"))  # type: ignore[arg-type]
        with pytest.raises(ConfigError):
            await producer.send("text")  # type: ignore[arg-type]
        with pytest.raises(LocalProtocolError):
            await producer.send_batch([])
    failed, refused = spans.named(f"send {TOPIC}")
    assert failed.attributes is not None
    assert refused.attributes is not None
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.attributes["error.type"] in ("NotReachableError", "RequestTimeoutError")
    assert refused.attributes["error.type"] == "LocalProtocolError"


async def test_cancelled_send_ends_its_span_and_leaves_nothing_current(
    cluster: EmbeddedCluster, instrument: Instrument
) -> None:
    spans = instrument()
    async with client_with_topic(cluster) as client, open_producer(client=client) as producer:
        await producer.send(Message(TOPIC, b""))
        spans.exporter.clear()
        with spans.current() as caller:
            with trio.CancelScope() as scope:
                scope.cancel()
                await producer.send(Message(TOPIC, b""))
            await producer.send(Message(TOPIC, b""))
    cancelled, after = spans.named(f"send {TOPIC}")
    assert cancelled.attributes is not None
    assert cancelled.attributes["error.type"] == "Cancelled"
    assert parent_of(after) == context_ids(caller)


async def test_transaction_has_spans_of_half_message_decision_and_check(
    cluster: EmbeddedCluster, instrument: Instrument
) -> None:
    spans = instrument()
    checked = trio.Event()

    async def check(message: object) -> TransactionState:
        checked.set()
        return TransactionState.COMMIT

    async with (
        client_with_topic(cluster) as client,
        open_producer(client=client, group="shop", check_transaction=check) as producer,
    ):
        with spans.current() as caller:
            async with producer.transaction(Message(TOPIC, b"paid")) as transaction:
                with spans.current("work"):
                    pass
        (message,) = await received(client, 1)
        async with producer.transaction(Message(TOPIC, b"lost")) as undecided:
            undecided.leave_open()
        with trio.fail_after(300):
            await checked.wait()
        await received(client, 1)
    half, second = spans.named(f"send {TOPIC}")
    ended = spans.one(f"end_transaction {TOPIC}")
    assert half.attributes is not None
    assert ended.attributes is not None
    assert half.attributes["messaging.rocketmq.message.type"] == "transaction"
    assert half.attributes["messaging.message.id"] == transaction.message_id
    assert message.property_value("traceparent") == traceparent(half)
    assert linked(ended) == [context_ids(half)]
    assert ended.attributes["rocketrio.transaction.state"] == "commit"
    assert {parent_of(span) for span in (half, ended, spans.one("work"))} == {context_ids(caller)}
    check_span = spans.one(f"process {TOPIC}")
    assert check_span.kind is SpanKind.CONSUMER
    assert linked(check_span) == [context_ids(second)]


async def test_one_way_and_delayed_sends_have_spans(
    cluster: EmbeddedCluster, instrument: Instrument
) -> None:
    spans = instrument()
    async with client_with_topic(cluster) as client, open_producer(client=client) as producer:
        await producer.send_oneway(Message(TOPIC, b""))
        await producer.send(Message(TOPIC, b"", delay_level=1))
    oneway, delayed = spans.named(f"send {TOPIC}")
    assert oneway.attributes is not None
    assert delayed.attributes is not None
    assert oneway.attributes["messaging.message.id"]
    assert "rocketrio.send.status" not in oneway.attributes
    assert delayed.attributes["messaging.rocketmq.message.type"] == "delay"
    assert delayed.attributes["messaging.rocketmq.message.delay_time_level"] == 1


async def test_size_of_a_body_is_an_attribute_if_requested(
    cluster: EmbeddedCluster, instrument: Instrument
) -> None:
    spans = instrument(body_sizes=True)
    async with client_with_topic(cluster) as client, open_producer(client=client) as producer:
        await producer.send(Message(TOPIC, b"x" * 5_000))
        await received(client, 1)
    for name in ("send", "receive"):
        span = spans.one(f"{name} {TOPIC}")
        assert span.attributes is not None
        assert span.attributes["messaging.message.body.size"] == 5_000


async def test_send_hook_gets_the_span_and_its_failure_changes_nothing(
    cluster: EmbeddedCluster, instrument: Instrument, caplog: pytest.LogCaptureFixture
) -> None:
    def hook(span: object, message: Message) -> None:
        span.set_attribute("app.size", len(message.body))  # type: ignore[attr-defined]
        raise RuntimeError

    spans = instrument(send_hook=hook)
    async with client_with_topic(cluster) as client, open_producer(client=client) as producer:
        await producer.send(Message(TOPIC, b"four"))
    span = spans.one(f"send {TOPIC}")
    assert span.attributes is not None
    assert span.attributes["app.size"] == 4
    assert span.status.status_code is StatusCode.UNSET
    assert "span hook failed" in caplog.text
