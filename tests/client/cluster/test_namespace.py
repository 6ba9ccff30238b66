"""Namespaces: what names become, and a client whose names are all short."""

import pickle
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from tests.support.clients import client_of
from tests.support.orders import make_topic

from rocketrio import (
    ClientInstance,
    Message,
    MessageExt,
    MessageQueue,
    TransactionState,
    open_admin,
    open_consumer,
    open_producer,
)
from rocketrio.cluster.namespace import _BODIES, Namespace, NamespacedConnections
from rocketrio.consuming.redelivered import redelivered
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.record.properties import PROPERTY_INSTANCE_ID

WRAPPED = [
    ("orders", "ns%orders"),
    ("%RETRY%billing", "%RETRY%ns%billing"),
    ("%DLQ%billing", "%DLQ%ns%billing"),
    ("nsorders", "ns%nsorders"),
    ("other%orders", "ns%other%orders"),
]
OF_ALL = [
    "TBW102", "SELF_TEST_TOPIC", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_REVIVE_LOG_lab", "CID_RMQ_SYS_TRANS",
    "lab_REPLY_TOPIC", "TOOLS_CONSUMER", "",
]  # fmt: skip


@pytest.mark.parametrize(("short", "long"), WRAPPED)
def test_name_is_wrapped_once_behind_the_prefix_of_its_kind(short: str, long: str) -> None:
    namespace = Namespace("ns")
    assert namespace.wrapped(short) == long
    assert namespace.wrapped(long) == long
    assert namespace.unwrapped(long) == short
    assert namespace.unwrapped(short) == short


@pytest.mark.parametrize("name", OF_ALL)
def test_name_of_the_system_stays(name: str) -> None:
    assert Namespace("ns").wrapped(name) == name
    assert Namespace("ns").unwrapped(name) == name


def test_without_a_namespace_nothing_changes() -> None:
    assert not Namespace()
    assert Namespace().wrapped("orders") == "orders"
    assert Namespace().unwrapped("ns%orders") == "ns%orders"


@pytest.mark.parametrize("name", ["a%b", "a b", "ü", " "])
def test_name_that_no_namespace_can_have_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="namespace="):
        Namespace(name)


@pytest.fixture
async def tenant(cluster: EmbeddedCluster) -> AsyncIterator[ClientInstance]:
    async with client_of(cluster, namespace="ns") as opened:
        yield opened


async def test_client_without_namespace_pays_nothing_for_them(client: ClientInstance) -> None:
    assert not isinstance(client.connections, NamespacedConnections)


async def test_messages_stay_in_their_namespace(
    tenant: ClientInstance, client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async with open_admin(client=tenant) as admin, open_admin(client=client) as outside:
        await admin.create_topic("orders", queues=2)
        await outside.create_topic("orders", queues=1)
    async with open_producer(client=tenant) as producer, open_producer(client=client) as other:
        sent = await producer.send(Message("orders", b"inside", tags="t"))
        await producer.send_oneway(Message("orders", b"oneway"), queue=sent.queue)
        await producer.send_batch([Message("orders", b"batch")], queue=sent.queue)
        async with producer.pipeline() as pipeline:
            await pipeline.send(Message("orders", b"pipeline"), queue=sent.queue)
        await other.send(Message("orders", b"outside"))
    assert sent.queue.topic == "orders"
    assert "ns%orders" in cluster.master.broker.state.topics.topic_config_table
    messages: list[MessageExt] = []
    async with open_consumer("orders", group="g", start_from="earliest", client=tenant) as consumer:
        assert {queue.topic for queue in consumer.assignment} == {"orders"}
        for _ in range(4):
            messages.append((await consumer.receive()).copy())
        await consumer.commit()
        assert await consumer.committed_offset(sent.queue) == 4
    assert [message.body for message in messages] == [b"inside", b"oneway", b"batch", b"pipeline"]
    assert {message.topic for message in messages} == {"orders"}
    assert {message.properties.get(PROPERTY_INSTANCE_ID) for message in messages} == {"ns"}
    assert b"ns%orders" in messages[0].record
    again = pickle.loads(pickle.dumps(messages[0]))
    assert (again.topic, again.body) == ("orders", b"inside")


async def test_members_of_a_group_find_each_other(
    tenant: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await make_topic(tenant, "orders", queues=4)
    async with (
        client_of(cluster, namespace="ns") as second,
        open_consumer("orders", group="g", client=tenant) as first,
    ):
        assert len(first.assignment) == 4
        async with open_consumer("orders", group="g", client=second):
            await trio.sleep(1)  # By a notice of the broker, long before the next round.
            assert len(first.assignment) == 2


async def test_transaction_of_a_namespace_is_checked(tenant: ClientInstance) -> None:
    asked: list[MessageExt] = []

    async def check(message: MessageExt) -> TransactionState:
        await trio.lowlevel.checkpoint()
        asked.append(message.copy())
        return TransactionState.COMMIT

    await make_topic(tenant, "orders", queues=1)
    async with open_producer(client=tenant, group="shop", check_transaction=check) as producer:
        async with producer.transaction(Message("orders", b"at once")) as transaction:
            pass
        assert transaction.is_acknowledged
        async with producer.transaction(Message("orders", b"later")) as transaction:
            transaction.leave_open()
        await trio.sleep(120)
    assert [(message.topic, message.body) for message in asked] == [("orders", b"later")]
    queue = MessageQueue("orders", "broker-a", 0)
    async with open_consumer(
        "orders", group="g", queues=[queue], start_from="earliest", client=tenant
    ) as consumer:
        assert [(await consumer.receive()).body for _ in range(2)] == [b"at once", b"later"]


async def test_request_of_a_namespace_is_answered(tenant: ClientInstance) -> None:
    await make_topic(tenant, "questions", queues=1)
    async with (
        open_producer(client=tenant) as producer,
        open_consumer("questions", group="g", start_from="earliest", client=tenant) as consumer,
        trio.open_nursery() as nursery,
    ):

        async def answer() -> None:
            await producer.reply(await consumer.receive(), b"yes")

        nursery.start_soon(answer)
        assert (await producer.request(Message("questions", b"?"))).body == b"yes"


async def test_message_that_comes_again_keeps_its_short_name(tenant: ClientInstance) -> None:
    await make_topic(tenant, "orders", queues=1)
    async with open_producer(client=tenant) as producer:
        await producer.send(Message("orders", b"x", properties={"RETRY_TOPIC": "ns%first-topic"}))
    async with open_consumer("orders", group="g", start_from="earliest", client=tenant) as consumer:
        message = redelivered(await consumer.receive())
    for each in (
        message,
        message.copy(),
        redelivered(message, 2),
        pickle.loads(pickle.dumps(message)),
    ):
        assert each.topic == "first-topic"


@pytest.mark.parametrize("orderly", [False, True])
async def test_failed_message_of_a_namespace_comes_again(
    tenant: ClientInstance, cluster: EmbeddedCluster, orderly: bool
) -> None:
    seen: list[tuple[str, int]] = []

    async def handle(message: MessageExt) -> None:
        await trio.lowlevel.checkpoint()
        seen.append((message.topic, message.reconsume_times))
        if message.reconsume_times == 0:
            raise OSError("not yet")

    await make_topic(tenant, "orders", queues=1)
    async with open_producer(client=tenant) as producer:
        await producer.send(Message("orders", b"x"))
    async with open_consumer(
        "orders", group="g", start_from="earliest", orderly=orderly, client=tenant
    ) as consumer:
        with trio.move_on_after(30):
            await consumer.run(handle)
    assert seen == [("orders", 0), ("orders", 1)]
    if not orderly:
        assert "%RETRY%ns%g" in cluster.master.broker.state.topics.topic_config_table


async def test_tables_hold_short_names(tenant: ClientInstance) -> None:
    pytest.importorskip("pyarrow")
    await make_topic(tenant, "orders", queues=1)
    async with open_producer(client=tenant) as producer:
        await producer.send_batch([Message("orders", b"%d" % number) for number in range(10)])
    async with open_consumer("orders", group="g", start_from="earliest", client=tenant) as consumer:
        table = await consumer.read_arrow(max_messages=10, max_wait=1)
    assert table["topic"].to_pylist() == ["orders"] * 10


async def test_groups_are_read_changed_and_deleted_by_their_short_names(
    tenant: ClientInstance, client: ClientInstance
) -> None:
    async with open_admin(client=tenant) as admin, open_admin(client=client) as outside:
        await admin.create_group("billing", retry_max_times=2)
        await admin.create_group("billing", retry_queue_nums=3)  # And leaves the rest alone.
        [settings] = (await admin.group("billing")).values()
        assert (settings.retry_max_times, settings.retry_queue_nums) == (2, 3)
        assert await outside.groups() == ["ns%billing"]
        await admin.delete_group("billing")
        assert await outside.groups() == []


def test_settings_of_a_group_that_only_its_broker_knows_survive() -> None:
    body = fastjson.dumps({"groupName": "billing", "retryMaxTimes": 2, "groupSysFlag": 7})
    rewritten = fastjson.loads(
        _BODIES[RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP](Namespace("ns"), body),
        dict[str, Any],
    )
    assert rewritten == {"groupName": "ns%billing", "retryMaxTimes": 2, "groupSysFlag": 7}


async def test_topics_and_messages_of_an_admin_have_their_short_names(
    tenant: ClientInstance,
) -> None:
    async with open_producer(client=tenant) as producer, open_admin(client=tenant) as admin:
        await admin.create_topic("orders", queues=2)
        made = await admin.create_topic("orders")
        assert (made["broker-a"].topic_name, made["broker-a"].read_queue_nums) == ("orders", 2)
        sent = await producer.send(Message("orders", b"", keys="k"))
        [by_key] = await admin.query_message("orders", "k")
        [by_id] = await admin.query_message("orders", sent.message_id, is_unique_id=True)
        viewed = await admin.view_message(sent.offset_message_id)
    assert {by_key.topic, by_id.topic, viewed.topic} == {"orders"}
