"""Administration of a cluster in memory."""

from datetime import datetime

import pytest
import trio

from rocketrio import (
    ClientInstance,
    Message,
    RouteNotFoundError,
    open_admin,
    open_consumer,
    open_producer,
)
from rocketrio.admin.cluster_status import BrokerDescription
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.bodies.topics import READ_WRITE, Permission, TopicConfig
from rocketrio_protocol.errors import (
    BrokerError,
    ConfigError,
    ConsumerNotOnlineError,
    LocalProtocolError,
)


async def test_topic_is_created_listed_shown_and_deleted(client: ClientInstance) -> None:
    async with open_admin(client=client) as admin:
        made = await admin.create_topic("orders", queues=3)
        assert made == {"broker-a": TopicConfig("orders", 3, 3)}
        assert await admin.topics() == ["orders"]
        assert "TBW102" in await admin.topics(include_system=True)
        described = await admin.topic("orders")
        assert [offsets.max_offset for offsets in described.queues] == [0, 0, 0]
        assert await admin.delete_topic("orders") == ["broker-a"]
        assert await admin.topics() == []
        with pytest.raises(RouteNotFoundError):
            await admin.topic("orders")


async def test_what_is_not_given_of_a_topic_stays(client: ClientInstance) -> None:
    async with open_admin(client=client) as admin:
        write_only = int(Permission.WRITE)
        await admin.create_topic("orders", queues=8, perm=write_only, order=True)
        unchanged = await admin.create_topic("orders")
        assert unchanged == {"broker-a": TopicConfig("orders", 8, 8, write_only, order=True)}
        await admin.create_topic("orders", perm=int(READ_WRITE))
        assert len((await admin.topic("orders")).queues) == 8
        changed = await admin.create_topic("orders", queues=9)
        assert changed == {"broker-a": TopicConfig("orders", 9, 9, order=True)}


async def test_attributes_of_a_topic_are_given_shown_kept_and_taken_away(
    client: ClientInstance,
) -> None:
    kept = {"message.type": "FIFO", "reserve.time": "-1"}
    async with open_admin(client=client) as admin:
        made = await admin.create_topic("orders", attributes=kept)
        assert made["broker-a"].attributes == kept
        unchanged = await admin.create_topic("orders", queues=8)
        assert unchanged == {"broker-a": TopicConfig("orders", 8, 8, attributes=kept)}
        assert (await admin.topic("orders")).attributes == {"broker-a": kept}
        await admin.create_topic(
            "orders", attributes={"message.type": "DELAY", "reserve.time": None}
        )
        assert (await admin.topic("orders")).attributes == {"broker-a": {"message.type": "DELAY"}}


@pytest.mark.parametrize(
    ("attributes", "error"),
    [
        ({"+message.type": "FIFO"}, ConfigError),
        ({"": "FIFO"}, ConfigError),
        ({"message.type": "FIFO,+reserve.time=1"}, ConfigError),
        ({"message.type": "ODD"}, BrokerError),
        ({"odd": "1"}, BrokerError),
    ],
)
async def test_attributes_that_cannot_be_are_refused(
    client: ClientInstance, attributes: dict[str, str], error: type[Exception]
) -> None:
    async with open_admin(client=client) as admin:
        with pytest.raises(error):
            await admin.create_topic("orders", attributes=attributes)
        with pytest.raises(RouteNotFoundError):
            await admin.topic("orders")


@pytest.mark.parametrize(
    ("name", "queues", "cluster_name", "error"),
    [
        ("bad topic", 4, None, ConfigError),
        ("t", 0, None, ConfigError),
        ("t", 4, "nowhere", RouteNotFoundError),
        ("TBW102", 4, None, BrokerError),
    ],
)
async def test_topic_that_cannot_be_is_refused(
    client: ClientInstance,
    name: str,
    queues: int,
    cluster_name: str | None,
    error: type[Exception],
) -> None:
    async with open_admin(client=client) as admin:
        with pytest.raises(error):
            await admin.create_topic(name, queues=queues, cluster=cluster_name)


@pytest.mark.usefixtures("slave")
async def test_topic_is_not_half_deleted_without_its_master(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async with open_admin(client=client) as admin:
        await admin.create_topic("orders")
        await trio.sleep(1)
        await cluster.kill_master()
        with pytest.raises(RouteNotFoundError, match="no master"):
            await admin.delete_topic("orders")


async def test_topic_without_a_route_is_not_deleted_at_its_former_broker(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    """Another operator deleted it; the route that is kept may name brokers in other roles by now."""
    async with open_admin(client=client) as admin:
        await admin.create_topic("orders")
        await admin.topic("orders")
        cluster.master.broker.state.topics.delete("orders")
        cluster.master.broker.registration.register_now()
        await trio.sleep(2)
        await client.name_servers.delete_topic("orders")
        assert "orders" in client.routing.topic_route_table
        with pytest.raises(RouteNotFoundError):
            await admin.delete_topic("orders")


@pytest.mark.usefixtures("slave")
async def test_brokers_describe_themselves(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async with open_producer(client=client) as producer:
        await producer.send(Message("orders", b"x"))
    await trio.sleep(1)
    async with open_admin(client=client) as admin:
        master, slave = await admin.brokers()
    assert (master.broker_id, master.role, master.broker_role) == (0, "master", "ASYNC_MASTER")
    assert (slave.broker_id, slave.role, slave.broker_role) == (1, "slave", "SLAVE")
    assert master.address == cluster.master.broker.address
    assert master.ha_address == cluster.master.broker.ha_address
    assert master.max_physical_offset == slave.max_physical_offset
    assert master.max_physical_offset


def test_broker_that_reports_nothing_is_described_by_unknowns() -> None:
    broker = BrokerDescription.of("c", "a", 0, "h:1", {"commitLogMaxOffset": "null"}, {})
    assert (broker.ha_address, broker.max_physical_offset, broker.version) == (None, None, None)


async def test_offsets_distinguish_unknown_from_zero(client: ClientInstance) -> None:
    async with open_admin(client=client) as admin, open_producer(client=client) as producer:
        await admin.create_topic("orders", queues=1)
        for _ in range(5):
            await producer.send(Message("orders", b""))
        [before] = await admin.offsets("orders", "g")
        assert (before.max_offset, before.committed_offset, before.lag) == (5, None, None)
        async with open_consumer("orders", group="g", client=client) as consumer:
            await consumer.receive_batch(2)
        [after] = await admin.offsets("orders", "g")
        assert (after.min_offset, after.committed_offset, after.lag) == (0, 2, 3)


@pytest.mark.usefixtures("slave")
async def test_offsets_are_unknown_while_no_broker_answers(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async with open_admin(client=client) as admin:
        await admin.create_topic("orders", queues=1)
        await client.topic_route("orders")
        await cluster.slaves[0].kill()
        await cluster.kill_master()
        client.routing.is_avoided = lambda addr: False
        queue = (await client.topic_route("orders")).queue_datas[0]
        assert queue.read_queue_nums == 1
        from rocketrio_protocol.message import MessageQueue

        found = await admin._queue_offsets(MessageQueue("orders", "broker-a", 0), "g")
    assert (found.min_offset, found.max_offset, found.committed_offset, found.lag) == (None,) * 4


async def test_offsets_of_a_topic_that_may_not_be_read_are_not_an_empty_list(
    client: ClientInstance,
) -> None:
    async with open_admin(client=client) as admin:
        await admin.create_topic("orders", perm=int(Permission.WRITE))
        with pytest.raises(ConfigError, match="orders may not be read"):
            await admin.offsets("orders", "billing")


async def test_message_is_found_by_key_by_id_and_by_place(client: ClientInstance) -> None:
    async with open_admin(client=client) as admin, open_producer(client=client) as producer:
        result = await producer.send(Message("orders", b"wanted", keys="k1 k2"))
        await producer.send(Message("orders", b"other", keys="k3"))
        [by_key] = await admin.query_message("orders", "k2")
        [by_id] = await admin.query_message("orders", result.message_id, is_unique_id=True)
        by_place = await admin.view_message(result.offset_message_id)
        assert by_key.body == by_id.body == by_place.body == b"wanted"
        assert await admin.query_message("orders", "k9") == []


async def test_message_is_found_by_key_and_time(client: ClientInstance) -> None:
    async with open_admin(client=client) as admin, open_producer(client=client) as producer:
        for body in (b"early", b"late"):
            await producer.send(Message("orders", body, keys="k"))
            await trio.sleep(10)
        early, late = await admin.query_message("orders", "k")
        since = await admin.query_message("orders", "k", begin_time=late.store_time)
        until = await admin.query_message("orders", "k", end_time=early.store_time)
        assert ([one.body for one in since], [one.body for one in until]) == ([b"late"], [b"early"])
        with pytest.raises(ConfigError, match=r"begin_time=.* with a time zone"):
            await admin.query_message("orders", "k", begin_time=datetime(2026, 1, 31))


async def test_group_is_described_by_its_members_and_progress(client: ClientInstance) -> None:
    async with open_admin(client=client) as admin, open_producer(client=client) as producer:
        await producer.send(Message("orders", b""))
        with pytest.raises(ConsumerNotOnlineError):
            await admin.consumer_connections("g")
        async with open_consumer("orders", group="g", client=client) as consumer:
            await consumer.receive()
            await consumer.commit()
            connections = await admin.consumer_connections("g")
            stats = await admin.consume_stats("g")
    assert {connection.client_id for connection in connections.connection_set} == {client.client_id}
    assert stats.total_diff == 0


async def test_client_and_its_options_exclude_each_other(client: ClientInstance) -> None:
    with pytest.raises(ConfigError, match="client_id"):
        async with open_admin(client=client, client_id="x"):
            pass


async def test_producers_id_is_no_place_of_a_message(client: ClientInstance) -> None:
    async with open_producer(client=client) as producer, open_admin(client=client) as admin:
        sent = await producer.send(Message("orders", b""))
        with pytest.raises(LocalProtocolError, match="query_message"):
            await admin.view_message(sent.message_id)
