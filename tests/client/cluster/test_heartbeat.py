"""What heartbeats say, and to whom."""

from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
import trio
from tests.support.clients import client_of, open_consumer
from tests.support.orders import make_topic

from rocketrio import ClientInstance, ConfigError, Consumer, Message, open_admin, open_producer
from rocketrio.cluster.api import ClientAPI
from rocketrio.cluster.heartbeat import ConsumerMembership
from rocketrio.consuming.subscription import parse_subscription
from rocketrio_broker.embedded import CLIENT_HOST, MASTER_HOST, EmbeddedCluster
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.errors import NotReachableError


async def test_client_without_groups_sends_no_heartbeat(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await client.topic_route("TBW102")
    assert client.heartbeat.targets() == []
    await client.heartbeat.send_all()
    assert client.heartbeat.acknowledged_by == set()


@pytest.mark.usefixtures("slave")
async def test_producers_send_heartbeats_to_masters_and_consumers_to_all_brokers(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await client.topic_route("TBW102")
    master, slave = [member.broker.address for member in cluster.members]
    client.heartbeat.producers["p"] = 1
    assert client.heartbeat.targets() == [master]
    client.heartbeat.consumers["g"] = ConsumerMembership("g", "CONSUME_FROM_LAST_OFFSET", {})
    assert client.heartbeat.targets() == [master, slave]


async def test_body_is_what_java_brokers_read(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    subscription = parse_subscription("a").data("t", sub_version=7)
    client.heartbeat.consumers["g"] = ConsumerMembership(
        "g", "CONSUME_FROM_FIRST_OFFSET", {"t": subscription}
    )
    text = fastjson.dumps(client.heartbeat.data()).decode()
    assert f'"clientID":"{client.client_id}"' in text
    assert '"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET"' in text
    assert '"subscriptionDataSet":[{"classFilterMode":false,"codeSet":[97]' in text
    assert '"producerDataSet":[]' in text


@pytest.mark.usefixtures("slave")
async def test_broker_that_does_not_answer_delays_no_other(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async with open_producer(client=client) as producer:
        await producer.send(Message("orders", b""))
    cluster.memory_network.partition(cluster.slaves[0].host, "10.0.0.100")
    async with open_consumer("orders", group="g", client=client) as consumer:
        assert client.heartbeat.acknowledged_by == {cluster.master.broker.address}
        assert len(consumer.assignment) == 4


def open_static(cluster: EmbeddedCluster, **options: Any) -> AbstractAsyncContextManager[Consumer]:
    return open_consumer(
        "orders",
        group="billing",
        name_servers=cluster.name_servers,
        dial=cluster.dial,
        wall_clock=cluster.wall_clock,
        **options,
    )


@pytest.mark.slow
async def test_static_member_restarts_without_moving_a_queue(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await make_topic(client, "orders", queues=4)
    async with open_static(cluster, client_id="other") as other:
        async with open_static(cluster, client_id="one", static_grace=60):
            await trio.sleep(30)
            shared = other.assignment
            assert len(shared) == 2
        await trio.sleep(30)
        assert other.assignment == shared
        async with open_static(cluster, client_id="one", static_grace=60) as again:
            assert len(again.assignment) == 2
            await trio.sleep(30)
            assert other.assignment == shared
        await trio.sleep(100)
        assert len(other.assignment) == 4


@pytest.mark.usefixtures("slave")
async def test_static_member_keeps_its_place_at_a_broker_whose_answer_was_lost(
    client: ClientInstance, cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_topic(client, "orders", queues=4)
    silent, other = (member.broker for member in cluster.members)
    heartbeat = ClientAPI.heartbeat

    async def answer_is_lost(api: ClientAPI, addr: str, *args: Any, **named: Any) -> int:
        granted = await heartbeat(api, addr, *args, **named)
        if addr == silent.address:
            raise NotReachableError("lost", broker_addr=addr)
        return granted

    monkeypatch.setattr(ClientAPI, "heartbeat", answer_is_lost)
    async with open_static(cluster, client_id="one", static_grace=60):
        await trio.sleep(5)
    await trio.sleep(5)
    for broker in (silent, other):
        assert broker.state.consumers.client_ids("billing") == ["one"]


@pytest.mark.slow
@pytest.mark.usefixtures("slave")
async def test_static_member_logs_that_brokers_grant_nothing(
    client: ClientInstance, cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_admin(client=client) as admin:
        await admin.create_topic("orders", queues=4)
        for member in cluster.members:
            await admin.change_settings(member.broker.address, {"staticMemberGraceLimit": "0"})
    async with open_static(cluster, client_id="one", static_grace=60):
        await trio.sleep(100)
    assert caplog.text.count("less static membership granted") == 2  # Once a broker.
    assert "requested=60 granted=0" in caplog.text
    async with open_static(cluster, client_id="other") as other:
        assert len(other.assignment) == 4


@pytest.mark.parametrize("options", [{"static_grace": 60}, {"client_id": "one", "static_grace": 0}])
async def test_static_member_needs_a_name_and_a_time(
    cluster: EmbeddedCluster, options: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match="static_grace"):
        async with open_static(cluster, **options):
            pass


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.0, 0.2])
async def test_producer_that_closes_right_after_its_first_send_is_forgotten(
    cluster: EmbeddedCluster, delay: float
) -> None:
    producers = cluster.master.broker.state.producers
    cluster.memory_network.delay(CLIENT_HOST, MASTER_HOST, delay)
    for _ in range(
        20
    ):  # Whether the heartbeat or the goodbye is faster changes from one to the next.
        async with client_of(cluster) as client:
            async with open_producer(client=client, group="short") as producer:
                await producer.send(Message("orders", b""))
            await trio.sleep(5)
            assert producers.clients("short") == []


@pytest.mark.slow
async def test_closed_producer_does_not_end_the_connection_of_others(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async with open_producer(client=client, group="short") as producer:
        await producer.send(Message("orders", b""))
    async with open_consumer("orders", group="g", client=client) as consumer:
        [channel] = cluster.master.broker.state.consumers.channels("g")
        await trio.sleep(300)
        assert cluster.master.broker.state.consumers.channels("g") == [channel]
        assert len(consumer.assignment) == 4


async def test_producer_opened_again_at_once_stays_known(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    cluster.memory_network.delay(CLIENT_HOST, MASTER_HOST, 0.2)
    for _ in range(3):
        async with open_producer(client=client, group="short") as producer:
            await producer.send(Message("orders", b""))
    async with open_producer(client=client, group="short") as producer:
        await producer.send(Message("orders", b""))
        await trio.sleep(1)
        assert len(cluster.master.broker.state.producers.clients("short")) == 1
