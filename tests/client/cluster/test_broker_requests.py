"""What operators' tools ask of a member through a broker (223 and 221, 307): asked as they do, of our members."""

import trio
from tests.support.clients import client_of
from tests.support.orders import TOPIC, receive, send

from rocketrio import (
    ClientInstance,
    Message,
    MessageQueue,
    open_consumer,
    open_producer,
)
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.bodies.queues import ConsumerStatusBody
from rocketrio_protocol.bodies.running_info import ConsumerRunningInfo
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.consumer import (
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
)
from rocketrio_protocol.headers import RequestHeader
from rocketrio_protocol.names import retry_topic


async def told(cluster: EmbeddedCluster, header: RequestHeader) -> RemotingCommand:
    """What the master answers a tool, which is a client of its own."""
    async with client_of(cluster, host="10.0.0.200") as tool:
        return await tool.pool.call(cluster.master.broker.address, header, timeout=30)


async def info_of(
    cluster: EmbeddedCluster, client: ClientInstance, group: str = "g", *, stacks: bool = False
) -> ConsumerRunningInfo:
    header = GetConsumerRunningInfoRequestHeader(group, client.client_id, jstack_enable=stacks)
    answer = await told(cluster, header)
    assert answer.code == 0, answer.remark
    return ConsumerRunningInfo.from_json(answer.body)


async def offsets_of(
    cluster: EmbeddedCluster, client: ClientInstance, topic: str = TOPIC, group: str = "g"
) -> dict[MessageQueue, int]:
    answer = await told(cluster, GetConsumerStatusRequestHeader(topic, group))
    table = ConsumerStatusBody.from_json(answer.body).consumer_table
    assert table is not None
    return table[client.client_id]


async def test_offsets_are_where_the_member_is_before_it_commits(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 8, queues=2)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        received = await receive(consumer, 6)
        consumer._settle()
        expected = {
            MessageQueue(TOPIC, "broker-a", queue_id): sum(
                number % 2 == queue_id for number in received
            )
            for queue_id in range(2)
        }
        assert await offsets_of(cluster, client) == expected
        assert await offsets_of(cluster, client, topic="others") == {}


async def test_consumer_with_manual_commits_reports_what_it_committed(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 4, queues=1)
    queue = MessageQueue(TOPIC, "broker-a", 0)
    async with open_consumer(TOPIC, group="g", auto_commit=False, client=client) as consumer:
        await receive(consumer, 3)
        await consumer.commit({queue: 2})
        await receive(consumer, 1)
        assert await offsets_of(cluster, client) == {queue: 2}
        assert (await info_of(cluster, client)).mq_table[queue].commit_offset == 2


async def test_member_reports_its_settings_subscriptions_and_queues(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 4, queues=2)
    begun_ms = client.wall_clock.now_ms()
    async with open_consumer(TOPIC, group="g", tags="even || odd", client=client) as consumer:
        await receive(consumer, 4)
        info = await info_of(cluster, client)
    assert (
        info.properties.items()
        >= {
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
            "PROP_CLIENT_VERSION": "V4_9_7",
            "PROP_CONSUMEORDERLY": "false",
            "PROP_NAMESERVER_ADDR": f"{cluster.name_servers[0]};",
            "PROP_THREADPOOL_CORE_SIZE": "1",
            "consumerGroup": "g",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "pullThresholdForQueue": "1000",
            "pullThresholdSizeForQueue": "100",
            "persistConsumerOffsetInterval": "5000",
            "allocateMessageQueueStrategy": "allocate_averagely",
        }.items()
    )
    started_ms = int(info.properties["PROP_CONSUMER_START_TIMESTAMP"])
    assert begun_ms <= started_ms <= client.wall_clock.now_ms()
    subscriptions = {data.topic: data.sub_string for data in info.subscription_set}
    assert subscriptions == {retry_topic("g"): "*", TOPIC: "even || odd"}
    assert {TOPIC, retry_topic("g")} == info.status_table.keys()
    assert set(consumer.assignment) <= info.mq_table.keys()
    assert (info.mq_pop_table, info.user_consumer_info, info.jstack) == ({}, {}, None)


async def test_requested_stacks_show_where_tasks_are(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 1)

    async def waits_in_vain() -> None:
        await trio.sleep_forever()

    async with open_consumer(TOPIC, group="g", client=client), trio.open_nursery() as nursery:
        nursery.start_soon(waits_in_vain)
        info = await info_of(cluster, client, stacks=True)
        nursery.cancel_scope.cancel()
    assert info.jstack is not None
    (block,) = [
        block for block in info.jstack.split("\n\n") if block.startswith(f"task {__name__}")
    ]
    assert "waits_in_vain at " in block
    assert block.index("sleep_forever") < block.index(f"waits_in_vain at {__file__}:")


async def test_group_that_is_not_here_is_named(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    """A broker that has not heard yet that its member left."""
    await send(client, 1)
    async with open_consumer(TOPIC, group="g", client=client):
        member = client.heartbeat.consumers.pop("g")
        answer = await told(cluster, GetConsumerRunningInfoRequestHeader("g", client.client_id))
        assert (answer.code, answer.remark) == (
            1,
            "The Consumer Group <g> not exist in this consumer",
        )
        assert await offsets_of(cluster, client) == {}
        client.heartbeat.consumers["g"] = member


async def test_names_of_a_namespace_are_reported_as_brokers_know_them(
    cluster: EmbeddedCluster,
) -> None:
    async with client_of(cluster, namespace="ns") as client:
        async with open_producer(client=client) as producer:
            sent = await producer.send(Message(TOPIC, b"0"))
        async with open_consumer(
            TOPIC, group="g", start_from="earliest", client=client
        ) as consumer:
            await receive(consumer, 1)
            consumer._settle()
            info = await info_of(cluster, client, "ns%g")
            offsets = await offsets_of(cluster, client, "ns%orders", "ns%g")
    queue = MessageQueue("ns%orders", "broker-a", sent.queue.queue_id)
    assert offsets[queue] == 1
    assert info.mq_table[queue].commit_offset == 1
    topics = {"ns%orders", "%RETRY%ns%g"}
    assert {data.topic for data in info.subscription_set} == info.status_table.keys() == topics
    assert info.properties["consumerGroup"] == "ns%g"
