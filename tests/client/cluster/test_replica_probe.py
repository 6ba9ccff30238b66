"""Consumers that choose their replica themselves, against a cluster: distance, staleness, and what each look costs."""

from typing import Any

import pytest
import trio
from tests.support.clients import client_of
from tests.support.orders import TOPIC, make_topic, send

from rocketrio import (
    ClientInstance,
    ConfigError,
    Message,
    MessageQueue,
    NotReachableError,
    open_consumer,
    open_producer,
)
from rocketrio.consuming.pull import PullAPIWrapper
from rocketrio.consuming.pull_result import PullResult, PullStatus
from rocketrio.routing import PullReason, ReadPolicy
from rocketrio_broker.embedded import CLIENT_HOST, EmbeddedCluster

pytestmark = pytest.mark.usefixtures("slave")

QUEUE = MessageQueue(TOPIC, "broker-a", 0)


def wrapper_of(client: ClientInstance, **policy: Any) -> PullAPIWrapper:
    return PullAPIWrapper(client, "g", ReadPolicy(**policy))


async def pull(wrapper: PullAPIWrapper, offset: int = 0) -> tuple[int, PullReason]:
    result: PullResult = await wrapper.pull_kernel(QUEUE, offset, suspend_timeout=0)
    return result.broker_id, wrapper.nodes.counts[QUEUE].last.reason


async def send_more(client: ClientInstance, count: int) -> None:
    async with open_producer(client=client) as producer:
        for _ in range(count):
            await producer.send(Message(TOPIC, b"more"), queue=QUEUE)


async def replica_reader(client: ClientInstance, **bounds: Any) -> PullAPIWrapper:
    """It has found its replica with ten messages, which both have."""
    await send(client, 10, queues=1)
    await trio.sleep(3)
    wrapper = wrapper_of(client, read_from="replica", **bounds)
    assert await pull(wrapper) == (1, PullReason.REPLICA)
    return wrapper


def away(cluster: EmbeddedCluster) -> None:
    """The slave gets no more from its master; clients reach both."""
    cluster.memory_network.partition(cluster.master.host, cluster.slaves[0].host)


async def test_nearest_replica_is_the_one_that_answers_first(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 4, queues=1)
    await trio.sleep(3)
    cluster.memory_network.delay(cluster.master.host, CLIENT_HOST, 0.050)
    cluster.memory_network.delay(cluster.slaves[0].host, CLIENT_HOST, 0.010)
    wrapper = wrapper_of(client, read_from="nearest")
    assert await pull(wrapper) == (1, PullReason.NEAREST)
    addrs = cluster.master.broker.address, cluster.slaves[0].broker.address
    assert [client.round_trips.seconds(addr) for addr in addrs] == pytest.approx([0.1, 0.02])
    # No look for ten seconds: a pull costs its own round trip and nothing else.
    before = trio.current_time()
    assert await pull(wrapper) == (1, PullReason.NEAREST)
    assert trio.current_time() - before == pytest.approx(0.02)
    # The slave moves away. Each look counts a quarter.
    cluster.memory_network.delay(cluster.slaves[0].host, CLIENT_HOST, 0.500)
    await trio.sleep(11)
    assert await pull(wrapper) == (0, PullReason.NEAREST)


async def test_nearest_that_dies_is_replaced(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 4, queues=1)
    await trio.sleep(3)
    cluster.memory_network.delay(cluster.master.host, CLIENT_HOST, 0.050)
    wrapper = wrapper_of(client, read_from="nearest")
    assert await pull(wrapper) == (1, PullReason.NEAREST)
    await cluster.slaves[0].kill()
    assert await pull(wrapper) == (0, PullReason.NEAREST)


async def test_replica_is_read_until_it_is_too_many_messages_behind(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    wrapper = await replica_reader(client, max_staleness_messages=5)
    away(cluster)
    await send_more(client, 5)
    await trio.sleep(1.1)
    assert await pull(wrapper) == (1, PullReason.REPLICA)
    await send_more(client, 1)
    await trio.sleep(1.1)
    assert await pull(wrapper) == (0, PullReason.TOO_STALE)
    cluster.memory_network.heal()
    await trio.sleep(10)
    assert await pull(wrapper) == (1, PullReason.REPLICA)


async def test_replica_is_read_until_it_was_level_too_long_ago(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 10, queues=1)
    await trio.sleep(12)
    wrapper = wrapper_of(client, read_from="replica", max_staleness=8.0)
    assert await pull(wrapper) == (1, PullReason.REPLICA)
    away(cluster)
    lost_at = trio.current_time()
    for _ in range(100):
        if (await pull(wrapper))[0] == 0:
            break
        await trio.sleep(0.2)
    # The last heartbeat had come up to five seconds before.
    assert 3.0 <= trio.current_time() - lost_at <= 8.3
    assert await pull(wrapper) == (0, PullReason.TOO_STALE)
    cluster.memory_network.heal()
    await trio.sleep(10)
    assert await pull(wrapper) == (1, PullReason.REPLICA)


async def test_stale_replica_is_not_read_though_the_master_is_away(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    wrapper = await replica_reader(client, max_staleness_messages=2)
    away(cluster)
    await send_more(client, 3)
    await trio.sleep(1.1)
    assert await pull(wrapper) == (0, PullReason.TOO_STALE)
    await cluster.kill_master()
    with pytest.raises(NotReachableError):
        await pull(wrapper)


@pytest.mark.slow
async def test_fresh_replica_is_read_while_the_master_is_away(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    wrapper = await replica_reader(client, max_staleness_messages=2)
    await cluster.kill_master()
    await trio.sleep(300)
    # It has all that the master last said it had; no replica can have more since.
    assert await pull(wrapper) == (1, PullReason.REPLICA)


async def test_policy_master_asks_only_the_master(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 10, queues=1)
    await trio.sleep(3)
    wrapper = wrapper_of(client, read_from="master")
    client.routing.update_pull_from_which_node(QUEUE, 1, "g")
    assert await pull(wrapper) == (0, PullReason.MASTER)
    await cluster.kill_master()
    with pytest.raises(NotReachableError):
        await pull(wrapper)
    await cluster.restart_master()
    await trio.sleep(2)
    assert await pull(wrapper) == (0, PullReason.MASTER)


async def test_replica_under_a_bound_holds_pulls_for_a_second_at_most(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 10, queues=1)
    await trio.sleep(3)
    wrapper = wrapper_of(client, read_from="replica", max_staleness_messages=5)
    before = trio.current_time()
    result = await wrapper.pull_kernel(QUEUE, 10)
    assert (result.broker_id, result.status) == (1, PullStatus.NO_NEW_MSG)
    assert trio.current_time() - before == pytest.approx(1.0, abs=0.05)


async def test_silent_replica_costs_one_probe(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    wrapper = await replica_reader(client, max_staleness_messages=5)
    await trio.sleep(2)
    cluster.memory_network.partition(cluster.slaves[0].host, CLIENT_HOST)
    before = trio.current_time()
    assert await pull(wrapper) == (0, PullReason.SKIPPED)
    assert trio.current_time() - before == pytest.approx(1.0, abs=0.05)
    for _ in range(20):
        assert (await pull(wrapper))[0] == 0
        await trio.sleep(0.5)
    assert trio.current_time() - before == pytest.approx(11.0, abs=0.1)
    cluster.memory_network.heal()
    await trio.sleep(3)
    assert await pull(wrapper) == (1, PullReason.REPLICA)


async def test_consumer_reads_everything_from_its_replica(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 200)
    await trio.sleep(6)  # One transfer had all of it: only a heartbeat tells that nothing was left.
    numbers: set[int] = set()
    async with open_consumer(
        TOPIC, group="g", client=client, read_from="replica", max_staleness=30.0
    ) as consumer:
        while len(numbers) < 200:
            numbers.add(int((await consumer.receive()).body))
        statistics = consumer.statistics().queues
        assert {each.pulled_from for each in statistics.values()} == {
            cluster.slaves[0].broker.address
        }
        assert {each.pull_reason for each in statistics.values()} == {PullReason.REPLICA}
        assert set(consumer.pull_from_which_node_table.values()) == {1}
    assert numbers == set(range(200))


@pytest.mark.slow
async def test_groups_of_one_client_are_suggested_to_apart(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 10, queues=1)
    await trio.sleep(3)
    client.routing.update_pull_from_which_node(QUEUE, 1, "lagging")
    for group, node in (("lagging", 1), ("caught-up", 0)):
        result = await PullAPIWrapper(client, group).pull_kernel(QUEUE, 0, suspend_timeout=0)
        assert result.broker_id == node


async def test_wrong_policy_is_refused_before_anything_is_asked(cluster: EmbeddedCluster) -> None:
    async with client_of(cluster) as client:
        with pytest.raises(ConfigError, match="needs a bound"):
            async with open_consumer(TOPIC, group="g", client=client, read_from="replica"):
                pass
        with pytest.raises(ConfigError, match="must be one of"):
            async with open_consumer(TOPIC, group="g", read_from="slave"):  # type: ignore[arg-type]
                pass
        await make_topic(client, TOPIC)
