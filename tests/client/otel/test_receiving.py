"""The spans of receives, handlers and what follows them: retries, dead letters, replies."""

from datetime import timedelta

import pytest
import trio
import trio.testing
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode
from tests.client.otel.conftest import (
    TOPIC,
    Instrument,
    context_ids,
    linked,
    parent_of,
    traceparent,
)
from tests.support.clients import client_with_topic

from rocketrio import (
    GIVE_UP,
    ConsumeLater,
    Message,
    MessageExt,
    open_admin,
    open_consumer,
    open_producer,
)
from rocketrio.otel import context_of
from rocketrio.otel.propagation import LINK_LIMIT
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.remoting.tasks import every


async def test_receive_span_begins_with_the_call_and_links_to_the_message(
    cluster: EmbeddedCluster, instrument: Instrument
) -> None:
    spans = instrument()
    async with (
        client_with_topic(cluster) as client,
        open_producer(client=client) as producer,
        open_consumer(TOPIC, group="billing", client=client) as consumer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(consumer.receive)
        await trio.testing.wait_all_tasks_blocked()
        assert not spans.named(f"receive {TOPIC}")
        with spans.current("sender"):
            sent = await producer.send(Message(TOPIC, b"", tags="paid"))
    span, send = spans.one(f"receive {TOPIC}"), spans.one(f"send {TOPIC}")
    host, port = cluster.master.broker.address.split(":")
    assert span.kind is SpanKind.CLIENT
    assert linked(span) == [context_ids(send)]
    assert span.start_time is not None
    assert send.start_time is not None
    assert span.start_time < send.start_time
    assert dict(span.attributes or {}) == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "receive",
        "messaging.operation.type": "receive",
        "messaging.rocketmq.namespace": "",
        "messaging.client.id": client.client_id,
        "messaging.destination.name": TOPIC,
        "messaging.destination.partition.id": "broker-a:0",
        "messaging.consumer.group.name": "billing",
        "messaging.message.id": sent.message_id,
        "messaging.rocketmq.message.tag": "paid",
        "messaging.rocketmq.consumption_model": "clustering",
        "rocketrio.queue_offset": 0,
        "rocketrio.read_from_broker_id": 0,
        "server.address": host,
        "server.port": int(port),
        "network.peer.address": host,
        "network.peer.port": int(port),
    }


async def test_every_way_to_receive_has_spans_and_a_cancelled_one_has_none(
    cluster: EmbeddedCluster, instrument: Instrument
) -> None:
    spans = instrument()
    async with client_with_topic(cluster) as client, open_producer(client=client) as producer:
        for number in range(6):
            await producer.send(Message(TOPIC, b"%d" % number))
        async with open_consumer(
            TOPIC, group="g", start_from="earliest", client=client
        ) as consumer:
            bodies = [(await consumer.receive()).body]
            async for message in consumer:
                bodies.append(message.body)
                break
            bodies.append((await anext(consumer)).body)
            async for value in consumer.values(lambda message: message.body):
                bodies.append(value)
                break
            bodies += [message.body for message in await consumer.receive_batch(1)]
            async for messages in consumer.batches(1):
                bodies += [message.body for message in messages]
                break
            with trio.move_on_after(5):
                await consumer.receive()
    assert bodies == [b"%d" % number for number in range(6)]
    assert [linked(span) for span in spans.named(f"receive {TOPIC}")] == [
        [context_ids(span)] for span in spans.named(f"send {TOPIC}")
    ]


async def test_links_beyond_the_limit_are_counted(
    cluster: EmbeddedCluster, instrument: Instrument
) -> None:
    spans = instrument()
    async with client_with_topic(cluster) as client, open_producer(client=client) as producer:
        await producer.send_batch([Message(TOPIC, b"")] * (LINK_LIMIT + 3))
        async with open_consumer(
            TOPIC, group="g", start_from="earliest", client=client
        ) as consumer:
            messages = await consumer.receive_batch(1000, max_wait=5)
    span = spans.one(f"receive {TOPIC}")
    assert span.attributes is not None
    assert len(messages) == LINK_LIMIT + 3
    assert span.attributes["messaging.batch.message_count"] == LINK_LIMIT + 3
    assert len(span.links) == LINK_LIMIT
    assert span.attributes["rocketrio.links_omitted"] == 3


@pytest.mark.parametrize("parent", ["current", "message"])
async def test_span_is_current_in_a_handler_and_belongs_to_its_message(
    cluster: EmbeddedCluster, instrument: Instrument, parent: str
) -> None:
    spans = instrument(parent=parent)
    inside: list[int] = []

    async with client_with_topic(cluster) as client, open_producer(client=client) as producer:
        await producer.send(Message(TOPIC, b""))
        async with open_consumer(
            TOPIC, group="g", start_from="earliest", client=client
        ) as consumer:
            handled = trio.Event()

            async def handling(message: MessageExt) -> None:
                await trio.sleep(1)
                inside.append(trace.get_current_span().get_span_context().span_id)
                handled.set()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(consumer.run, handling)
                await handled.wait()
                nursery.cancel_scope.cancel()
    span, sent = spans.one(f"process {TOPIC}"), spans.one(f"send {TOPIC}")
    assert span.kind is SpanKind.CONSUMER
    assert inside == [context_ids(span)[1]]
    assert span.status.status_code is StatusCode.UNSET
    if parent == "message":
        assert parent_of(span) == context_ids(sent)
        assert not span.links
    else:
        assert parent_of(span) is None
        assert linked(span) == [context_ids(sent)]


async def test_handler_of_lists_links_to_each_message_whatever_the_parent(
    cluster: EmbeddedCluster, instrument: Instrument
) -> None:
    spans = instrument(parent="message")
    async with client_with_topic(cluster) as client, open_producer(client=client) as producer:
        await producer.send_batch([Message(TOPIC, b""), Message(TOPIC, b"")])
        async with (
            open_consumer(TOPIC, group="g", start_from="earliest", client=client) as consumer,
            trio.open_nursery() as nursery,
        ):

            async def store(messages: list[MessageExt]) -> None:
                nursery.cancel_scope.cancel()

            nursery.start_soon(consumer.run_batches, store)
    span = spans.one(f"process {TOPIC}")
    assert span.attributes is not None
    assert linked(span) == [context_ids(span) for span in spans.named(f"create {TOPIC}")]
    assert span.attributes["messaging.batch.message_count"] == 2
    assert "messaging.message.id" not in span.attributes


async def test_one_trace_from_send_over_retry_and_dead_letter_to_the_second_send(
    cluster: EmbeddedCluster, instrument: Instrument
) -> None:
    spans = instrument(parent="message")
    attempts = 0
    is_repaired = False

    async with client_with_topic(cluster) as client, open_producer(client=client) as producer:
        with spans.current() as caller:
            await producer.send(Message(TOPIC, b"bill"))
        first = spans.one(f"send {TOPIC}")
        async with (
            open_consumer(
                TOPIC, group="g", start_from="earliest", max_reconsume_times=1, client=client
            ) as consumer,
            open_admin(client=client) as admin,
            trio.open_nursery() as nursery,
        ):
            dead = trio.Event()
            done = trio.Event()

            async def handle(message: MessageExt) -> None:
                nonlocal attempts
                attempts += 1
                if is_repaired:
                    done.set()
                elif attempts == 1:
                    raise ConsumeLater(timedelta(seconds=1))
                else:
                    dead.set()
                    raise ValueError("cannot bill")

            nursery.start_soon(consumer.run, handle)
            await dead.wait()
            letters = admin.dead_letters("g")
            found: list[MessageExt] = []
            async for _ in every(1):
                found = await letters.messages()
                if found:
                    break
            is_repaired = True
            await letters.resend(found, to="topic")
            await done.wait()
            nursery.cancel_scope.cancel()

    processed = spans.named(f"process {TOPIC}")
    second = spans.named(f"send {TOPIC}")[1]
    assert [parent_of(span) for span in processed] == [
        context_ids(first), context_ids(first), context_ids(second)
    ]  # fmt: skip
    assert {context_ids(span)[0] for span in (first, *processed[:2])} == {context_ids(caller)[0]}
    assert [span.status.status_code for span in processed] == [
        StatusCode.UNSET, StatusCode.ERROR, StatusCode.UNSET
    ]  # fmt: skip
    assert processed[1].attributes is not None
    assert processed[1].attributes["error.type"] == "ValueError"
    assert processed[1].attributes["rocketrio.reconsume_times"] == 1
    assert linked(spans.one(f"nack {TOPIC}")) == [context_ids(first)]
    assert linked(spans.one(f"reject {TOPIC}")) == [context_ids(first)]
    assert linked(second) == [context_ids(first)]


async def test_message_given_up_is_rejected_and_a_retried_one_is_not(
    cluster: EmbeddedCluster, instrument: Instrument
) -> None:
    spans = instrument()
    async with client_with_topic(cluster) as client, open_producer(client=client) as producer:
        await producer.send(Message(TOPIC, b""))
        async with open_consumer(
            TOPIC, group="g", start_from="earliest", client=client
        ) as consumer:
            message = await consumer.receive()
            await consumer.retry(message)
            await consumer.retry(message, GIVE_UP)
    sent = spans.one(f"send {TOPIC}")
    for name in ("nack", "reject"):
        span = spans.one(f"{name} {TOPIC}")
        assert span.attributes is not None
        assert span.kind is SpanKind.CLIENT
        assert linked(span) == [context_ids(sent)]
        assert span.attributes["messaging.operation.type"] == "settle"
        assert span.attributes["messaging.consumer.group.name"] == "g"


@pytest.mark.parametrize("commit_spans", [False, True])
async def test_commit_has_a_span_if_that_is_wanted(
    cluster: EmbeddedCluster, instrument: Instrument, commit_spans: bool
) -> None:
    spans = instrument(commit_spans=commit_spans)
    async with client_with_topic(cluster) as client, open_producer(client=client) as producer:
        await producer.send(Message(TOPIC, b""))
        async with open_consumer(
            TOPIC, group="g", start_from="earliest", client=client
        ) as consumer:
            await consumer.receive()
            await consumer.commit()
    found = [span for span in spans.all() if span.name.startswith("commit")]
    assert len(found) == commit_spans


async def test_request_and_reply_have_one_conversation(
    cluster: EmbeddedCluster, instrument: Instrument
) -> None:
    spans = instrument()
    async with (
        client_with_topic(cluster) as client,
        open_producer(client=client, group="asking") as producer,
        open_consumer(TOPIC, group="answering", client=client) as consumer,
        trio.open_nursery() as nursery,
    ):

        async def answer(message: MessageExt) -> None:
            await producer.reply(message, b"yes")

        nursery.start_soon(consumer.run, answer)
        with spans.current() as caller:
            await producer.request(Message(TOPIC, b"?"), timeout=30)
        nursery.cancel_scope.cancel()
    reply_topic = f"{cluster.master.broker.config.cluster_name}_REPLY_TOPIC"
    request, reply = spans.one(f"send {TOPIC}"), spans.one(f"send {reply_topic}")
    process, receive = spans.one(f"process {TOPIC}"), spans.one(f"receive {reply_topic}")
    assert request.attributes is not None
    assert reply.attributes is not None
    conversation = request.attributes["messaging.message.conversation_id"]
    assert conversation == reply.attributes["messaging.message.conversation_id"]
    assert reply.attributes["messaging.destination.template"] == "{cluster}_REPLY_TOPIC"
    assert linked(process) == [context_ids(request)]
    assert parent_of(reply) == context_ids(process)
    assert linked(receive) == [context_ids(reply)]
    assert parent_of(receive) == parent_of(request) == context_ids(caller)


async def test_context_of_a_message_is_a_parent_for_spans_of_the_application(
    cluster: EmbeddedCluster, instrument: Instrument
) -> None:
    spans = instrument()
    async with client_with_topic(cluster) as client, open_producer(client=client) as producer:
        await producer.send(Message(TOPIC, b""))
        async with open_consumer(
            TOPIC, group="g", start_from="earliest", client=client
        ) as consumer:
            message = await consumer.receive()
    sent = spans.one(f"send {TOPIC}")
    assert message.property_value("traceparent") == traceparent(sent)
    found = trace.get_current_span(context_of(message)).get_span_context()
    assert (found.trace_id, found.span_id) == context_ids(sent)


async def test_hooks_of_the_user_get_spans_and_messages(
    cluster: EmbeddedCluster, instrument: Instrument
) -> None:
    seen: list[tuple[str, bytes]] = []

    def hook(span: object, message: MessageExt) -> None:
        seen.append((span.name, message.body))  # type: ignore[attr-defined]

    instrument(receive_hook=hook, process_hook=hook)
    async with client_with_topic(cluster) as client, open_producer(client=client) as producer:
        await producer.send(Message(TOPIC, b"1"))
        await producer.send(Message(TOPIC, b"2"))
        async with (
            open_consumer(TOPIC, group="g", start_from="earliest", client=client) as consumer,
            trio.open_nursery() as nursery,
        ):
            await consumer.receive()

            async def handle(message: MessageExt) -> None:
                nursery.cancel_scope.cancel()

            nursery.start_soon(consumer.run, handle)
    assert seen == [(f"receive {TOPIC}", b"1"), (f"process {TOPIC}", b"2")]
