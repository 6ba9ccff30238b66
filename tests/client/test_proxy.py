"""Through a proxy, at whose one address there are several brokers: all that a client does for one of them names it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
from tests.client.proxy import ADDRESS, Proxy, proxy
from tests.support.clients import client_with_topic, open_client
from tests.support.second_master import second_master

from rocketrio import (
    ClientInstance,
    Message,
    MessageExt,
    MessageQueue,
    TransactionState,
    open_consumer,
    open_producer,
)
from rocketrio_broker.embedded import EmbeddedCluster

QUEUES = [MessageQueue("orders", name, 0) for name in ("broker-a", "broker-b")]
PATIENCE = 1000.0


@asynccontextmanager
async def through_proxy(cluster: EmbeddedCluster) -> AsyncGenerator[tuple[Proxy, ClientInstance]]:
    """Two masters, a proxy before them, and a client that knows the proxy alone."""
    masters = (cluster.master, await second_master(cluster))
    brokers = {one.config.broker_name: one.broker.address for one in masters}
    async with (
        client_with_topic(cluster, queues=2),
        proxy(cluster, brokers) as stood_before,
        open_client(
            name_servers=[ADDRESS], dial=cluster.dial, wall_clock=cluster.wall_clock
        ) as client,
    ):
        yield stood_before, client


async def send_everywhere(client: ClientInstance, count: int) -> None:
    async with open_producer(client=client) as producer:
        for number in range(count):
            for queue in QUEUES:
                body = f"{queue.broker_name} {number}".encode()
                await producer.send(Message("orders", body), queue=queue)


def bodies_of(queue: MessageQueue, count: int) -> list[bytes]:
    return [f"{queue.broker_name} {number}".encode() for number in range(count)]


async def test_each_broker_gets_its_own_sends_of_every_kind(cluster: EmbeddedCluster) -> None:
    async with through_proxy(cluster) as (stood_before, client):
        await send_everywhere(client, 2)
        async with open_producer(client=client) as producer:
            for queue in QUEUES:
                sent = await producer.send_batch(
                    [Message("orders", b"b-0"), Message("orders", b"b-1")], queue=queue
                )
                assert sent.queue_offset == 2
                await producer.send_oneway(Message("orders", b"oneway"), queue=queue)
            async with producer.pipeline() as pipeline:
                for number in range(20):
                    await pipeline.send(Message("orders", b"p-%d" % number))
            await trio.sleep(1)
        for queue in QUEUES:
            assert await client.api.max_offset(ADDRESS, queue) >= 5
        assert None not in {name for _, name in stood_before.asked}


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_group_reads_and_commits_at_the_broker_it_means(
    cluster: EmbeddedCluster, orderly: bool
) -> None:
    handled: dict[str, list[bytes]] = {"broker-a": [], "broker-b": []}

    async def handle(message: MessageExt) -> None:
        handled[message.broker_name].append(message.body)
        if sum(map(len, handled.values())) == 10:
            consumer._hand_out.close()

    async with through_proxy(cluster) as (stood_before, client):
        await send_everywhere(client, 5)
        with trio.fail_after(PATIENCE):
            async with open_consumer(
                "orders", group="g", start_from="earliest", orderly=orderly, client=client
            ) as consumer:
                await consumer.run(handle, concurrency=1)
        for queue in QUEUES:
            assert handled[queue.broker_name] == bodies_of(queue, 5)
            assert await client.api.query_consumer_offset(ADDRESS, "g", queue) == 5
            assert await client.api.min_offset(ADDRESS, queue) == 0
            assert await client.api.search_offset(ADDRESS, queue, 0) == 0
            assert await client.api.earliest_store_time(ADDRESS, queue) > 0
        assert None not in {name for _, name in stood_before.asked}


async def test_a_transaction_is_decided_at_its_broker(cluster: EmbeddedCluster) -> None:
    async def check(message: MessageExt) -> TransactionState:
        raise AssertionError("every decision was sent")

    async with through_proxy(cluster) as (stood_before, client):
        await send_everywhere(client, 1)
        async with open_producer(group="p", check_transaction=check, client=client) as producer:
            for queue in QUEUES:
                async with producer.transaction(
                    Message("orders", b"done"), queue=queue
                ) as committed:
                    pass
                assert committed.is_acknowledged
                async with producer.transaction(
                    Message("orders", b"undone"), queue=queue
                ) as rolled_back:
                    rolled_back.rollback()
                assert rolled_back.is_acknowledged
        await trio.sleep(1)
        for queue in QUEUES:
            assert await client.api.max_offset(ADDRESS, queue) == 2
        assert None not in {name for _, name in stood_before.asked}
