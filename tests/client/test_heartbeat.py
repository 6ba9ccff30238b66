"""What heartbeats say, and to whom."""

from rocketrio import ClientInstance, Message, open_consumer, open_producer
from rocketrio.heartbeat import ConsumerMembership
from rocketrio.subscription import parse_subscription
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol import fastjson


async def test_client_without_groups_says_nothing(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await client.topic_route("TBW102")
    assert client.heartbeat.targets() == []
    await client.heartbeat.send_all()
    assert client.heartbeat.heard_by == set()


async def test_producers_address_masters_and_consumers_everybody(
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


async def test_broker_that_does_not_answer_delays_no_other(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async with open_producer(client=client) as producer:
        await producer.send(Message("orders", b""))
    cluster.memory_network.partition(cluster.slaves[0].host, "10.0.0.100")
    async with open_consumer("orders", group="g", client=client) as consumer:
        assert client.heartbeat.heard_by == {cluster.master.broker.address}
        assert len(consumer.assignment) == 4
