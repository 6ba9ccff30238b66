"""Reading what is there, and ending."""

from functools import partial

import pytest
import trio
from tests.support.clients import client_of
from tests.support.orders import TOPIC, send, total_committed

from rocketrio import ClientInstance, MessageQueue, NotReachableError, open_consumer
from rocketrio.consuming.consumer import SHARE_LIMIT
from rocketrio_broker.embedded import EmbeddedCluster


async def test_until_caught_up_ends_with_the_messages_that_existed(client: ClientInstance) -> None:
    await send(client, 10)
    async with open_consumer(TOPIC, group="g", start_from="earliest", client=client) as consumer:
        bodies = []
        with trio.fail_after(5):
            async for message in consumer.until_caught_up(consumer.receive):
                bodies.append(int(message.body))
                if len(bodies) == 1:
                    await send(client, 10, start=10)  # Too late to count.
    assert set(range(10)) <= set(bodies)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        assert await total_committed(consumer) == len(bodies)
        rest = [
            int(message.body)
            async for messages in consumer.until_caught_up(consumer.receive_batch)
            for message in messages
        ]
        assert sorted(bodies + rest) == list(range(20))
        assert [1 async for _ in consumer.until_caught_up(consumer.receive)] == []


async def test_until_caught_up_does_not_wait_for_filtered_messages(client: ClientInstance) -> None:
    await send(client, 10)
    async with open_consumer(
        TOPIC, group="g", tags="neither", start_from="earliest", client=client
    ) as consumer:
        with trio.fail_after(5):
            assert [1 async for _ in consumer.until_caught_up(consumer.receive)] == []


async def test_until_caught_up_returns_a_table_that_cannot_fill_up(client: ClientInstance) -> None:
    await send(client, 10)
    async with open_consumer(TOPIC, group="g", start_from="earliest", client=client) as consumer:
        read = partial(consumer.read_arrow, max_wait=2.0)
        tables = [table async for table in consumer.until_caught_up(read)]
    assert [table.num_rows for table in tables] == [10]


async def test_until_caught_up_with_given_queues_begins_at_once(client: ClientInstance) -> None:
    await send(client, 10)
    queues = [MessageQueue(TOPIC, "broker-a", index) for index in range(2)]
    async with open_consumer(
        group="g", queues=queues, start_from="earliest", client=client
    ) as consumer:
        bodies = [int(m.body) async for m in consumer.until_caught_up(consumer.receive)]
    assert sorted(bodies) == [0, 1, 4, 5, 8, 9]


async def test_until_caught_up_members_share_the_messages(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 100)
    read: list[int] = []

    async def member() -> None:
        async with (
            client_of(cluster) as own,
            open_consumer(TOPIC, group="g", start_from="earliest", client=own) as consumer,
        ):
            async for message in consumer.until_caught_up(consumer.receive):
                read.append(int(message.body))
                await trio.sleep(0.1)

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(member)
    assert set(read) == set(range(100))


async def test_until_caught_up_without_a_share_raises_not_reachable(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 4)
    here = "10.0.0.101"
    async with client_of(cluster, host=here) as cut_off:
        await cut_off.topic_route(TOPIC)
        for host in ("10.0.0.10", "10.0.0.11"):
            cluster.memory_network.partition(here, host)
        async with open_consumer(TOPIC, group="g", client=cut_off) as consumer:
            with (
                trio.fail_after(3 * SHARE_LIMIT),
                pytest.raises(NotReachableError, match="no broker reported"),
            ):
                async for _ in consumer.until_caught_up(consumer.receive_batch):
                    pass
