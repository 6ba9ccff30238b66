"""Sends against a cluster in memory: what is stored where, what is tried again, what is refused."""

from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio
from tests.client.routes import routed
from tests.support.clients import client_of
from tests.support.orders import messages_of
from trio.testing import MockClock

from rocketrio import (
    ClientInstance,
    Message,
    MessageExt,
    MessageQueue,
    MessagesNotStoredError,
    NotReachableError,
    Producer,
    RouteNotFoundError,
    SendStatus,
    open_admin,
    open_producer,
)
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.errors import ClosedError, ConfigError, LocalProtocolError


async def stored(client: ClientInstance, queue: MessageQueue) -> list[MessageExt]:
    """Return the messages of a queue whose topic a send may have made."""
    await routed(client, queue.topic)
    return await messages_of(client, queue)


async def test_sent_message_is_stored_as_it_was_given(client: ClientInstance) -> None:
    message = Message(
        "orders", b"body", keys=["k1", "k2"], tags="paid", properties={"who": "me"}, flag=7
    )
    async with open_producer(client=client, group="shop") as producer:
        result = await producer.send(message)
    assert result.status is SendStatus.SEND_OK
    [found] = await stored(client, result.queue)
    assert (found.body, found.keys, found.tags, found.flag) == (b"body", "k1 k2", "paid", 7)
    assert found.properties["who"] == "me"
    assert found.queue_offset == result.queue_offset == 0
    assert found.message_id == result.message_id
    assert found.offset_message_id == result.offset_message_id


async def test_large_body_travels_compressed_and_arrives_whole(client: ClientInstance) -> None:
    body = b"compressible " * 1000
    async with open_producer(client=client) as producer:
        result = await producer.send(Message("orders", body))
    [found] = await stored(client, result.queue)
    assert found.body == body
    assert len(found.stored_body) < len(body) / 10


async def test_sends_go_round_all_queues(client: ClientInstance) -> None:
    async with open_admin(client=client) as admin, open_producer(client=client) as producer:
        await admin.create_topic("orders", queues=3)
        queue_ids = [(await producer.send(Message("orders", b""))).queue.queue_id for _ in range(6)]
    assert sorted(queue_ids[:3]) == sorted(queue_ids[3:]) == [0, 1, 2]


async def test_messages_with_one_key_share_a_queue(client: ClientInstance) -> None:
    async with open_producer(client=client) as producer:
        queues = {
            (await producer.send(Message("orders", b""), sharding_key="N123")).queue
            for _ in range(5)
        }
        assert len(queues) == 1
        aimed = MessageQueue("orders", "broker-a", 2)
        assert (await producer.send(Message("orders", b""), queue=aimed)).queue == aimed


async def test_batch_is_stored_in_one_row(client: ClientInstance) -> None:
    messages = [Message("orders", b"%d" % number, tags=f"t{number}") for number in range(5)]
    async with open_producer(client=client) as producer:
        result = await producer.send_batch(messages)
    found = await stored(client, result.queue)
    assert [message.body for message in found] == [b"0", b"1", b"2", b"3", b"4"]
    assert [message.tags for message in found] == ["t0", "t1", "t2", "t3", "t4"]
    assert tuple(message.message_id for message in found) == result.message_ids
    assert tuple(message.offset_message_id for message in found) == result.offset_message_ids


@pytest.mark.parametrize(
    ("messages", "what"),
    [
        ([], "at least one"),
        ([Message("a", b""), Message("b", b"")], "one topic"),
        ([Message("a", b""), Message("a", b"", wait_store_ok=False)], "one topic"),
        ([Message("a", b"", delay_level=3)], "delayed"),
        ([Message("%RETRY%g", b"")], "retry topic"),
        ([Message("a", b"x" * 3_000_000)] * 2, "limit"),
    ],
)
async def test_messages_that_are_no_batch_are_refused(
    client: ClientInstance, messages: list[Message], what: str
) -> None:
    async with open_producer(client=client) as producer:
        with pytest.raises(LocalProtocolError, match=what):
            await producer.send_batch(messages)


@pytest.mark.parametrize(
    "message",
    [
        Message("bad topic", b""),
        Message("SCHEDULE_TOPIC_XXXX", b""),
        Message("t", b"x" * (4 * 1024 * 1024 + 1)),
        Message("t", b"", keys="\x01"),
        Message("t", b"", properties={"a": "\x02"}),
        Message("t", b"", properties={"a": "x" * 40_000}),
        Message("t", b"", properties={"TAGS": "x"}),
    ],
)
async def test_message_that_brokers_would_refuse_is_not_sent(
    client: ClientInstance, message: Message
) -> None:
    async with open_producer(client=client) as producer:
        with pytest.raises(LocalProtocolError):
            await producer.send(message)
        assert client.routing.topic_route_table == {}


async def test_oneway_message_is_stored_in_order(client: ClientInstance) -> None:
    async with open_producer(client=client) as producer:
        first = await producer.send(Message("orders", b"first"), sharding_key="k")
        await producer.send_oneway(Message("orders", b"second"), sharding_key="k")
        third = await producer.send(Message("orders", b"third"), sharding_key="k")
    assert first.queue == third.queue
    bodies = [message.body for message in await stored(client, first.queue)]
    assert bodies == [b"first", b"second", b"third"]


async def test_unknown_topic_is_an_error_where_none_may_be_created(client: ClientInstance) -> None:
    async with open_producer(client=client, auto_create_topic=False) as producer:
        with pytest.raises(RouteNotFoundError, match="nowhere"):
            await producer.send(Message("nowhere", b""))


async def test_dead_master_is_an_error_after_three_attempts(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async with open_producer(client=client) as producer:
        await producer.send(Message("orders", b""))
        await cluster.kill_master()
        with pytest.raises((NotReachableError, RouteNotFoundError)):
            await producer.send(Message("orders", b""))


async def test_send_continues_when_the_master_is_back(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async with open_producer(client=client) as producer:
        before = await producer.send(Message("orders", b"before"), sharding_key="k")
        await cluster.kill_master()
        await cluster.restart_master()
        after = await producer.send(Message("orders", b"after"))
    assert after.status is SendStatus.SEND_OK
    assert before.queue.broker_name == after.queue.broker_name


async def test_client_and_its_options_exclude_each_other(client: ClientInstance) -> None:
    with pytest.raises(ConfigError, match="name_servers"):
        async with open_producer(client=client, name_servers="x:1"):
            pass


async def test_pipeline_stores_everything_in_few_requests(client: ClientInstance) -> None:
    async with open_producer(client=client) as producer:
        async with producer.pipeline() as pipeline:
            for number in range(1000):
                await pipeline.send(Message("orders", b"%d" % number))
        queues = await producer.queues("orders")
    statistics = pipeline.statistics()
    assert statistics.stored == {SendStatus.SEND_OK: 1000}
    assert statistics.requests < 100
    found = [int(m.body) for queue in queues for m in await stored(client, queue)]
    assert sorted(found) == list(range(1000))


async def test_pipeline_keeps_the_order_of_each_key(client: ClientInstance) -> None:
    async with open_producer(client=client) as producer:
        async with producer.pipeline() as pipeline:
            for number in range(500):
                message = Message("orders", b"%d" % number)
                await pipeline.send(message, sharding_key=f"k{number % 7}")
        queues = await producer.queues("orders")
    for queue in queues:
        numbers = [int(message.body) for message in await stored(client, queue)]
        for key in range(7):
            of_key = [number for number in numbers if number % 7 == key]
            assert of_key == sorted(of_key)


async def test_pipeline_reports_which_messages_were_not_stored(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async with open_producer(client=client) as producer:
        await producer.send(Message("orders", b""))
        await cluster.kill_master()
        async with producer.pipeline() as pipeline:
            for number in range(3):
                await pipeline.send(Message("orders", b"%d" % number), sharding_key="k")
            await pipeline.flush()
            with pytest.raises(MessagesNotStoredError) as caught:
                pipeline.raise_failures()
            pipeline.take_failures()
    assert [failure.message.body for failure in caught.value.failures] == [b"0", b"1", b"2"]
    assert pipeline.statistics().failed == 3


async def test_leaving_a_pipeline_raises_for_failures(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async with open_producer(client=client) as producer:
        await producer.send(Message("orders", b""))
        await cluster.kill_master()
        with pytest.raises(MessagesNotStoredError, match="1 message not stored"):
            await _send_through_pipeline(producer)


async def _send_through_pipeline(producer: Producer) -> None:
    async with producer.pipeline() as pipeline:
        await pipeline.send(Message("orders", b"lost"))


async def test_pipeline_is_quiet_about_failures_that_were_taken(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async with open_producer(client=client) as producer:
        await producer.send(Message("orders", b""))
        await cluster.kill_master()
        async with producer.pipeline() as pipeline:
            await pipeline.send(Message("orders", b"lost"))
            await pipeline.flush()
            [failure] = pipeline.take_failures()
    assert failure.message.body == b"lost"


async def test_pipeline_sends_delayed_and_unlike_messages_apart(client: ClientInstance) -> None:
    messages = [
        Message("orders", b"a"),
        Message("orders", b"b", wait_store_ok=False),
        Message("orders", b"c"),
    ]
    async with open_producer(client=client) as producer:
        async with producer.pipeline() as pipeline:
            for message in messages:
                await pipeline.send(message, sharding_key="k")
        queues = await producer.queues("orders")
    bodies = [message.body for queue in queues for message in await stored(client, queue)]
    assert bodies == [b"a", b"b", b"c"]


async def test_pipeline_refuses_what_cannot_be_sent_and_continues(client: ClientInstance) -> None:
    other = MessageQueue("other", "broker-a", 0)
    async with open_producer(client=client) as producer, producer.pipeline() as pipeline:
        with pytest.raises(ConfigError, match="not a queue of 'orders'"):
            await pipeline.send(Message("orders", b"x"), queue=other)
        with pytest.raises(LocalProtocolError, match="surrogate"):
            await pipeline.send(Message("orders", b"x", keys="\ud800"))
        await pipeline.send(Message("orders", b"x"))
        await pipeline.flush()
        assert pipeline.statistics().stored == {SendStatus.SEND_OK: 1}


async def test_producer_may_end_after_its_client(cluster: EmbeddedCluster) -> None:
    stack = AsyncExitStack()
    async with client_of(cluster) as client:
        await stack.enter_async_context(open_producer(client=client))
    await stack.aclose()


async def test_producer_exception_comes_out_as_it_was_raised(client: ClientInstance) -> None:
    with pytest.raises(KeyError, match="mine"):
        async with open_producer(client=client) as producer, producer.pipeline():
            raise KeyError("mine")


async def test_pipeline_takes_nothing_after_its_block(client: ClientInstance) -> None:
    async with open_producer(client=client) as producer:
        async with producer.pipeline() as pipeline:
            await pipeline.send(Message("orders", b"in time"))
        with pytest.raises(ClosedError, match="pipeline"):
            await pipeline.send(Message("orders", b"late"))
        with pytest.raises(ClosedError, match="pipeline"):
            await pipeline.send(Message("others", b"late"))
        with trio.CancelScope() as scope:
            async with producer.pipeline() as pipeline:
                await pipeline.send(Message("orders", b"in time"), sharding_key="a")
                scope.cancel()
        with pytest.raises(ClosedError, match="pipeline"):
            await pipeline.send(Message("orders", b"late"), sharding_key="a")


@pytest.mark.parametrize("topic", [None, 5, b"orders"])
async def test_topic_that_is_no_text_is_named(client: ClientInstance, topic: object) -> None:
    async with open_producer(client=client) as producer:
        with pytest.raises(LocalProtocolError, match="topic must be str"):
            await producer.send(Message(topic, b""))  # type: ignore[arg-type]


async def test_sharding_key_that_is_no_text_is_named(client: ClientInstance) -> None:
    async with open_producer(client=client) as producer:
        with pytest.raises(ConfigError, match="sharding_key=5"):
            await producer.send(Message("orders", b""), sharding_key=5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [
        Message("orders", "text", delay_level=1),  # type: ignore[arg-type]
        Message("orders", b"x", delay_level=1, flag=2**31),
        Message("orders", b"x", delay_level=1, properties={"a": ""}),
        Message("orders", bytes(4 * 1024 * 1024 + 1), delay_level=1),
    ],
)
async def test_pipeline_refuses_a_delayed_message_at_its_send(
    client: ClientInstance, wrong: Message
) -> None:
    async with open_producer(client=client) as producer, producer.pipeline() as pipeline:
        with pytest.raises(LocalProtocolError):
            await pipeline.send(wrong)
        await pipeline.send(Message("orders", b"fine"))


@pytest.mark.parametrize("numbers", [{"linger": -1.0}, {"batch_size": 0}, {"pending_limit": 0}])
async def test_pipeline_with_numbers_that_cannot_be_is_refused(
    client: ClientInstance, numbers: dict[str, Any]
) -> None:
    async with open_producer(client=client) as producer:
        with pytest.raises(ConfigError):
            async with producer.pipeline(**numbers):
                pass


@pytest.mark.parametrize("numbers", [{"timeout": 0.0}, {"retries": -1}, {"max_message_size": 0}])
async def test_producer_with_numbers_that_cannot_be_is_refused(
    client: ClientInstance, numbers: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError):
        async with open_producer(client=client, **numbers):
            pass


async def test_small_batch_lingers_until_its_result_is_awaited(
    client: ClientInstance, autojump_clock: MockClock
) -> None:
    async with (
        open_producer(client=client) as producer,
        producer.pipeline(linger=60.0, pending_limit=300) as pipeline,
    ):
        for _ in range(250):
            await pipeline.send(Message("orders", b"small"), sharding_key="a")
        await trio.sleep(1)
        assert pipeline.statistics().requests == 0
        with trio.fail_after(1):
            await pipeline.flush()
        assert pipeline.statistics().requests == 1
        with trio.fail_after(1):  # Room is wanted: that ends it too.
            for _ in range(350):
                await pipeline.send(Message("orders", b"small"), sharding_key="a")
        started = trio.current_time()
    assert trio.current_time() < started + 1


@pytest.mark.parametrize(("count", "size"), [(20, 10_000), (1_000, 5)])
async def test_batch_that_fills_up_while_it_lingers_leaves(
    client: ClientInstance, autojump_clock: MockClock, count: int, size: int
) -> None:
    async with (
        open_producer(client=client) as producer,
        producer.pipeline(linger=60.0) as pipeline,
    ):
        await pipeline.send(Message("orders", b"first"), sharding_key="a")
        await trio.sleep(1)
        for _ in range(count):
            await pipeline.send(Message("orders", bytes(size)), sharding_key="a")
        await trio.sleep(1)
        assert pipeline.statistics().requests == 1
