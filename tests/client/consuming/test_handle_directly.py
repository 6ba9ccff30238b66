"""A message that an operator has a handler run on (309): what it answers, and that nothing else is moved by it."""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from datetime import timedelta
from functools import partial

import pytest
import trio
from tests.support.clients import client_of
from tests.support.orders import TOPIC, committed, send

from rocketrio import (
    ClientInstance,
    ConsumeLater,
    Message,
    MessageExt,
    MessageQueue,
    open_consumer,
    open_producer,
)
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.running_info import ConsumeMessageDirectlyResult
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.consumer import ConsumeMessageDirectlyRequestHeader

QUEUE = MessageQueue(TOPIC, "broker-a", 0)

Ask = Callable[[], Awaitable[RemotingCommand]]


@pytest.fixture
async def offset_id(client: ClientInstance) -> str:
    """Of the one message of the topic, whose body is b"one"."""
    await send(client, 0, queues=1)
    async with open_producer(client=client) as producer:
        result = await producer.send(Message(TOPIC, b"one"))
    return result.offset_message_id


async def asked(
    client: ClientInstance, cluster: EmbeddedCluster, offset_id: str, group: str = "g"
) -> RemotingCommand:
    """What the master answers a tool."""
    header = ConsumeMessageDirectlyRequestHeader(group, client.client_id, offset_id)
    async with client_of(cluster, host="10.0.0.200") as tool:
        return await tool.pool.call(cluster.master.broker.address, header, timeout=30)


@pytest.fixture
def ask(client: ClientInstance, cluster: EmbeddedCluster, offset_id: str) -> Ask:
    return partial(asked, client, cluster, offset_id)


async def result_of(ask: Ask) -> ConsumeMessageDirectlyResult:
    answer = await ask()
    assert answer.code == 0, answer.remark
    return fastjson.loads(answer.body, ConsumeMessageDirectlyResult)


async def test_directed_message_is_handled_and_no_offset_moves(
    client: ClientInstance, ask: Ask
) -> None:
    seen: list[tuple[str, bytes, str]] = []
    name: ContextVar[str] = ContextVar("name", default="without a name")

    async def handle(message: MessageExt) -> None:
        seen.append((message.topic, message.body, name.get()))
        await trio.sleep(2)

    async with (
        open_consumer(TOPIC, group="g", start_from="earliest", client=client) as consumer,
        trio.open_nursery() as nursery,
    ):
        name.set("of the caller")
        nursery.start_soon(partial(consumer.run, handle, concurrency=1))
        await trio.sleep(3)
        result = await result_of(ask)
        assert seen == [(TOPIC, b"one", "of the caller")] * 2
        assert (result.order, result.auto_commit, result.remark) == (False, True, None)
        assert (result.consume_result, result.spent_time_mills) == ("CR_SUCCESS", 2000)
        await consumer.commit()
        assert await committed(consumer) == {0: 1}
        assert consumer._handlers.current is not None
        assert len(consumer._handlers.current._workers) == 1, "what ran apart has left nothing"
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("failure", "result", "remark"),
    [
        (ConsumeLater(timedelta(seconds=10)), "CR_LATER", None),
        (KeyError("absent"), "CR_THROW_EXCEPTION", "KeyError: 'absent'"),
    ],
)
@pytest.mark.parametrize("orderly", [False, True])
async def test_directed_message_failure_is_reported_and_hands_nothing_back(
    client: ClientInstance,
    ask: Ask,
    failure: Exception,
    result: str,
    remark: str | None,
    orderly: bool,
) -> None:
    times = 0

    async def handle(message: MessageExt) -> None:
        nonlocal times
        times += 1
        if times > 1:
            raise failure

    async with (
        open_consumer(
            TOPIC, group="g", start_from="earliest", orderly=orderly, client=client
        ) as consumer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(consumer.run, handle)
        await trio.sleep(3)
        told = await result_of(ask)
        assert (told.order, told.consume_result, told.remark) == (orderly, result, remark)
        await trio.sleep(30)
        assert times == 2
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("failure", "result"), [(None, "CR_SUCCESS"), (ConsumeLater(done=1), "CR_SUCCESS")]
)
async def test_directed_message_reaches_a_batch_handler_as_a_list_of_one(
    client: ClientInstance, ask: Ask, failure: Exception | None, result: str
) -> None:
    seen: list[list[bytes]] = []

    async def handle(messages: list[MessageExt]) -> None:
        seen.append([message.body for message in messages])
        if failure is not None:
            raise failure

    async with (
        open_consumer(TOPIC, group="g", start_from="earliest", client=client) as consumer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(consumer.run_batches, handle)
        await trio.sleep(3)
        assert (await result_of(ask)).consume_result == result
        assert seen == [[b"one"]] * 2
        nursery.cancel_scope.cancel()


async def test_directed_message_of_the_retry_topic_has_its_original_topic(
    client: ClientInstance, cluster: EmbeddedCluster, offset_id: str
) -> None:
    seen: list[MessageExt] = []

    async def handle(message: MessageExt) -> None:
        seen.append(message)
        if len(seen) == 1:
            raise ConsumeLater(timedelta(seconds=1))

    async with (
        open_consumer(TOPIC, group="g", start_from="earliest", client=client) as consumer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(consumer.run, handle)
        await trio.sleep(30)
        assert seen[1].offset_message_id != offset_id
        await result_of(partial(asked, client, cluster, seen[1].offset_message_id))
        assert [(message.topic, message.reconsume_times) for message in seen] == [
            (TOPIC, 0),
            (TOPIC, 1),
            (TOPIC, 1),
        ]
        nursery.cancel_scope.cancel()


async def test_directed_message_in_a_namespace_has_short_names(cluster: EmbeddedCluster) -> None:
    seen: list[str] = []

    async def handle(message: MessageExt) -> None:
        seen.append(message.topic)

    async with client_of(cluster, namespace="ns") as client:
        async with open_producer(client=client) as producer:
            sent = await producer.send(Message(TOPIC, b"one"))
        async with (
            open_consumer(TOPIC, group="g", start_from="earliest", client=client) as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(consumer.run, handle)
            await trio.sleep(3)
            await result_of(partial(asked, client, cluster, sent.offset_message_id, "ns%g"))
            assert seen == [TOPIC, TOPIC]
            nursery.cancel_scope.cancel()


async def test_directed_message_handler_over_its_timeout_is_cancelled(
    client: ClientInstance, ask: Ask
) -> None:
    async with (
        open_consumer(TOPIC, group="g", client=client) as consumer,
        trio.open_nursery() as nursery,
    ):
        consumer.seek(QUEUE, 1)
        nursery.start_soon(partial(consumer.run, _never_ends, handler_timeout=5))
        await trio.sleep(1)
        told = await result_of(ask)
        assert told.consume_result == "CR_THROW_EXCEPTION"
        assert "it took over 5 s" in (told.remark or "")
        nursery.cancel_scope.cancel()


async def test_directed_message_cancelled_request_leaves_the_handler_running(
    client: ClientInstance, offset_id: str
) -> None:
    handled: list[bytes] = []

    async def slow(message: MessageExt) -> None:
        await trio.sleep(2)
        handled.append(message.body)

    async with open_consumer(TOPIC, group="other", client=client) as other:
        message = await other.receive()
    async with (
        open_consumer(TOPIC, group="g", client=client) as consumer,
        trio.open_nursery() as nursery,
    ):
        consumer.seek(QUEUE, 1)
        nursery.start_soon(consumer.run, slow)
        await trio.sleep(1)
        assert consumer._handlers.current is not None
        with trio.move_on_after(1) as asking:
            await consumer._handlers.current.handle_directly(message)
        assert asking.cancelled_caught
        assert not handled
        await trio.sleep(2)
        assert handled == [b"one"]
        nursery.cancel_scope.cancel()


async def test_directed_message_without_a_handler_is_refused_with_a_reason(
    client: ClientInstance, ask: Ask
) -> None:
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        answer = await ask()
        assert answer.code == 1
        assert "has no handler" in (answer.remark or "")
        with trio.move_on_after(1):
            await consumer.run(_never_ends, drain_timeout=0)
        assert "has no handler" in ((await ask()).remark or "")


async def test_directed_message_ends_after_the_drain_timeout_of_its_run(
    client: ClientInstance, ask: Ask
) -> None:
    answers: list[RemotingCommand] = []

    async def note() -> None:
        answers.append(await ask())

    async with (
        trio.open_nursery() as nursery,
        open_consumer(TOPIC, group="g", client=client) as consumer,
    ):
        consumer.seek(QUEUE, 1)
        with trio.move_on_after(2) as running:
            nursery.start_soon(note)
            await consumer.run(_never_ends, drain_timeout=3)
        assert trio.current_time() - running.deadline == pytest.approx(3, abs=0.01)
        await trio.sleep(1)
        (answer,) = answers
        assert answer.code == 1
        assert "have ended" in (answer.remark or "")


async def _never_ends(message: MessageExt) -> None:
    await trio.sleep_forever()
