"""Pulls while brokers come and go: which address is asked, and what that costs in time."""

import pytest
import trio
from tests.support.clients import client_of
from tests.support.orders import make_topic

from rocketrio import (
    ClientInstance,
    Message,
    MessageQueue,
    NotReachableError,
    RouteNotFoundError,
    open_producer,
)
from rocketrio.consuming.pull import PullAPIWrapper
from rocketrio.consuming.pull_result import PullStatus
from rocketrio.consuming.subscription import parse_subscription
from rocketrio_broker.embedded import CLIENT_HOST, EmbeddedCluster
from rocketrio_protocol.errors import BrokerSystemError

pytestmark = pytest.mark.usefixtures("slave")

QUEUE = MessageQueue("orders", "broker-a", 0)


async def send(client: ClientInstance, count: int, tags: str | None = None) -> None:
    await make_topic(client, "orders", queues=1)
    await client.refresh_topic_route("orders")
    async with open_producer(client=client) as producer:
        for number in range(count):
            await producer.send(Message("orders", b"%d" % number, tags=tags))
    await trio.sleep(1)  # The slave catches up.


async def test_statuses_distinguish_found_nothing_new_and_illegal(client: ClientInstance) -> None:
    await send(client, 3)
    wrapper = PullAPIWrapper(client, "g")
    found = await wrapper.pull_kernel(QUEUE, 1)
    assert found.status is PullStatus.FOUND
    assert [message.body for message in found.messages()] == [b"1", b"2"]
    assert (found.min_offset, found.max_offset, found.next_begin_offset) == (0, 3, 3)
    nothing = await wrapper.pull_kernel(QUEUE, 3, suspend_timeout=0)
    assert (nothing.status, nothing.next_begin_offset) == (PullStatus.NO_NEW_MSG, 3)
    illegal = await wrapper.pull_kernel(QUEUE, 99, suspend_timeout=0)
    assert (illegal.status, illegal.next_begin_offset) == (PullStatus.OFFSET_ILLEGAL, 3)


async def test_held_pull_takes_as_long_as_it_was_allowed(client: ClientInstance) -> None:
    await send(client, 1)
    before = trio.current_time()
    result = await PullAPIWrapper(client, "g").pull_kernel(QUEUE, 1, suspend_timeout=10)
    assert result.status is PullStatus.NO_NEW_MSG
    assert trio.current_time() - before == pytest.approx(10, abs=5.1)


async def test_tags_with_the_same_hash_are_distinguished(client: ClientInstance) -> None:
    await send(client, 2, tags="BB")
    wrapper = PullAPIWrapper(client, "g")
    subscription = parse_subscription("Aa")  # "Aa" and "BB" have one hash in Java.
    result = await wrapper.pull_kernel(QUEUE, 0, subscription=subscription)
    assert result.status is PullStatus.FOUND
    assert result.messages() == []


async def test_killed_master_costs_no_time(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 3)
    wrapper = PullAPIWrapper(client, "g")
    await wrapper.pull_kernel(QUEUE, 0)
    await cluster.kill_master()
    before = trio.current_time()
    result = await wrapper.pull_kernel(QUEUE, 0)
    assert (result.broker_id, len(result.messages())) == (1, 3)
    assert trio.current_time() - before < 0.1


async def test_silent_master_costs_one_timeout_and_is_then_passed_over(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 3)
    wrapper = PullAPIWrapper(client, "g")
    await wrapper.pull_kernel(QUEUE, 0)
    cluster.memory_network.partition(cluster.master.host, CLIENT_HOST)
    before = trio.current_time()
    assert (await wrapper.pull_kernel(QUEUE, 0, timeout=2)).broker_id == 1
    assert trio.current_time() - before == pytest.approx(2, abs=0.1)
    assert (await wrapper.pull_kernel(QUEUE, 1, timeout=2)).broker_id == 1
    assert trio.current_time() - before == pytest.approx(2, abs=0.1)


async def test_held_pull_moves_on_when_its_broker_dies(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 3)
    results = []

    async def hold() -> None:
        results.append(await PullAPIWrapper(client, "g").pull_kernel(QUEUE, 3, suspend_timeout=3))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hold)
        await trio.sleep(1)
        await cluster.kill_master()
    assert results[0].broker_id == 1
    assert results[0].status is PullStatus.NO_NEW_MSG


async def test_pulls_return_to_the_master_when_it_is_back(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 3)
    wrapper = PullAPIWrapper(client, "g")
    await wrapper.pull_kernel(QUEUE, 0)
    await cluster.kill_master()
    assert (await wrapper.pull_kernel(QUEUE, 0)).broker_id == 1
    await cluster.restart_master()
    await trio.sleep(2)
    assert (await wrapper.pull_kernel(QUEUE, 0)).broker_id == 0


async def test_suggested_broker_is_asked_next(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 3)
    wrapper = PullAPIWrapper(client, "g")
    client.routing.update_pull_from_which_node(QUEUE, 1, "g")
    result = await wrapper.pull_kernel(QUEUE, 0)
    assert result.broker_id == 1
    # The slave sees no reason to keep us, and says so.
    assert client.routing.pull_from_which_node_tables["g"][QUEUE] == 0
    assert (await wrapper.pull_kernel(QUEUE, 0)).broker_id == 0


async def test_user_may_choose_the_broker(cluster: EmbeddedCluster, client: ClientInstance) -> None:
    await send(client, 3)
    async with client_of(cluster, connect_broker_by_user=True, default_broker_id=1) as own:
        await own.topic_route("orders")
        for _ in range(2):
            assert (await PullAPIWrapper(own, "g").pull_kernel(QUEUE, 0)).broker_id == 1


async def test_slave_that_lacks_the_topic_yet_is_left_for_the_master(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    cluster.memory_network.partition(cluster.master.host, cluster.slaves[0].host)
    await make_topic(client, "orders", queues=1)
    await client.refresh_topic_route("orders")
    async with open_producer(client=client) as producer:
        await producer.send(Message("orders", b"new"))
    client.routing.connect_broker_by_user, client.routing.default_broker_id = True, 1
    result = await PullAPIWrapper(client, "g").pull_kernel(QUEUE, 0)
    assert (result.broker_id, len(result.messages())) == (0, 1)


async def test_no_broker_left_is_an_error_that_names_the_last_address(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 1)
    await cluster.slaves[0].kill()
    await cluster.kill_master()
    with pytest.raises(NotReachableError, match=r"10\.0\.0\.1"):
        await PullAPIWrapper(client, "g").pull_kernel(QUEUE, 0)


async def test_unknown_broker_name_is_an_error(client: ClientInstance) -> None:
    await send(client, 1)
    with pytest.raises(RouteNotFoundError, match="broker-z"):
        await PullAPIWrapper(client, "g").pull_kernel(MessageQueue("orders", "broker-z", 0), 0)


async def test_refusal_of_a_broker_is_an_error_of_its_class(client: ClientInstance) -> None:
    await send(client, 1)
    with pytest.raises(BrokerSystemError, match="99"):
        await PullAPIWrapper(client, "g").pull_kernel(MessageQueue("orders", "broker-a", 99), 0)
