"""A consumer while the master dies and comes back: everything is read, no offset goes back."""

from collections import Counter

import pytest
import trio
from tests.support.clients import client_of
from tests.support.orders import TOPIC, send

from rocketrio import NOT_FOUND, ClientInstance, Consumer, Error, open_consumer
from rocketrio_broker.embedded import CLIENT_HOST, EmbeddedCluster

pytestmark = pytest.mark.usefixtures("slave")

COUNT = 2000


async def watch_offsets(consumer: Consumer, seen: dict[int, list[int]]) -> None:
    """What brokers say is committed, again and again."""
    while True:
        await trio.sleep(0.5)
        for queue in consumer.assignment:
            try:
                offset = await consumer.committed_offset(queue)
            except Error:
                continue
            if offset is not NOT_FOUND:
                seen.setdefault(queue.queue_id, []).append(offset)


@pytest.mark.slow
async def test_reading_continues_and_no_offset_goes_back(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, COUNT)
    await trio.sleep(3)
    received: Counter[int] = Counter()
    seen: dict[int, list[int]] = {}
    nodes: list[int] = []
    async with (
        open_consumer(TOPIC, group="g", client=client, auto_commit_interval=1) as consumer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(watch_offsets, consumer, seen)
        async for message in consumer:
            received[int(message.body)] += 1
            nodes += consumer.pull_from_which_node_table.values()
            await trio.sleep(0.01)
            if received.total() == COUNT // 4:
                await trio.sleep(11)  # The slave has copied offsets.
                await cluster.kill_master()
            if received.total() == COUNT // 2:
                await cluster.restart_master()
            if len(received) == COUNT:
                break
        await trio.sleep(3)
        nursery.cancel_scope.cancel()
    assert set(received.values()) == {1}
    assert all(offsets == sorted(offsets) for offsets in seen.values())
    assert {offsets[-1] for offsets in seen.values()} == {COUNT // 4, COUNT // 4 - 1}


@pytest.mark.parametrize(("is_known", "seconds"), [(True, 4.0), (False, 5.0)])
async def test_consumer_that_starts_while_the_master_is_silent_reads_at_the_slave(
    client: ClientInstance, cluster: EmbeddedCluster, is_known: bool, seconds: float
) -> None:
    await send(client, 20)
    if is_known:
        async with open_consumer(
            TOPIC, group="g", client=client, start_from="earliest"
        ) as consumer:
            for _ in range(10):
                await consumer.receive()
    await trio.sleep(12)  # The slave has copied the tables.
    cluster.memory_network.silence(cluster.master.host)
    started = trio.current_time()
    async with (
        client_of(cluster) as late,
        open_consumer(TOPIC, group="g", client=late, start_from="earliest") as consumer,
    ):
        for _ in range(10 if is_known else 20):
            await consumer.receive()
        # Its heartbeat is waited for, then a second for the group's offset, and one for the queue's beginning.
        assert trio.current_time() - started == pytest.approx(seconds, abs=0.01)
        assert await consumer.lag() == dict.fromkeys(consumer.assignment, 0)


@pytest.mark.slow
async def test_silent_master_holds_reading_up_for_two_seconds(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 4)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        for _ in range(4):
            await consumer.receive()
        await send(client, 4, start=4)
        await trio.sleep(1)
        for _ in range(4):
            await consumer.receive()
        master = cluster.master.broker.address
        cluster.memory_network.partition(cluster.master.host, CLIENT_HOST)
        before = trio.current_time()
        with trio.move_on_after(2.1):
            await consumer.receive()
        assert {queue.pulled_from for queue in consumer.statistics().queues.values()} == {
            cluster.slaves[0].broker.address
        }
        with trio.move_on_after(57.9):
            await consumer.receive()
        # Nothing new came; and no pull waits for the master any more.
        assert trio.current_time() - before == 60
        assert master not in client.pool.open_addrs


def committed_at_the_slave(cluster: EmbeddedCluster) -> int:
    offsets = cluster.slaves[0].broker.state.consumer_offsets
    return sum(offsets.query_offsets("g", TOPIC).values())


async def test_commit_under_way_moves_with_the_pulls_of_a_silent_master(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 20)
    await trio.sleep(12)
    async with open_consumer(
        TOPIC, group="g", client=client, start_from="earliest", auto_commit=False
    ) as consumer:
        for _ in range(20):
            await consumer.receive()
        await trio.sleep(3)
        cluster.memory_network.silence(cluster.master.host)
        started = trio.current_time()
        await consumer.commit()
        assert trio.current_time() - started <= 2.0
        assert committed_at_the_slave(cluster) == 20


async def test_consumer_that_is_cancelled_as_its_master_falls_silent_commits_to_the_slave(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 20)
    await trio.sleep(12)
    with trio.CancelScope() as scope:
        async with open_consumer(
            TOPIC, group="g", client=client, start_from="earliest"
        ) as consumer:
            for _ in range(20):
                await consumer.receive()
            await trio.sleep(1)
            cluster.memory_network.silence(cluster.master.host)
            scope.cancel()
            await consumer.receive()
    assert committed_at_the_slave(cluster) == 20
