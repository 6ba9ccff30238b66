"""Which queue a message goes to."""

from contextlib import suppress

import pytest
import trio
from tests.client.routes import route
from tests.support.clients import client_of
from tests.support.clocks import run_in_virtual_time

from rocketrio import (
    ClientInstance,
    Error,
    Message,
    NoBrokerRegisteredError,
    NotReachableError,
    RequestTimeoutError,
    RouteNotFoundError,
    open_consumer,
    open_producer,
)
from rocketrio.producing.publish_route import PublishRoutes, queue_for_key
from rocketrio.producing.sender import LATE_ROUTE
from rocketrio_broker.embedded import NAME_SERVER_HOST, EmbeddedCluster
from rocketrio_protocol.bodies.route import TopicRouteData
from rocketrio_protocol.message import MessageQueue


def two_brokers(*, with_b: bool = True) -> TopicRouteData:
    addrs = {"a": {0: "10.0.0.1:1"}, "b": {0: "10.0.0.2:1"} if with_b else {1: "10.0.0.3:1"}}
    return route(addrs)


async def test_queues_are_taken_in_turn(client: ClientInstance) -> None:
    client.routing.update_topic_route("t", two_brokers())
    routes = PublishRoutes(client)
    taken = [await routes.next_queue("t") for _ in range(8)]
    assert len(set(taken[:4])) == 4
    assert taken[:4] == taken[4:]


async def test_failed_broker_is_passed_over(client: ClientInstance) -> None:
    client.routing.update_topic_route("t", two_brokers())
    routes = PublishRoutes(client)
    for _ in range(4):
        assert (await routes.next_queue("t", last_broker="a")).broker_name == "b"
    client.mark_unreachable("10.0.0.1:1", spent=0.0)
    for _ in range(4):
        assert (await routes.next_queue("t")).broker_name == "b"


async def test_only_broker_left_is_taken_all_the_same(client: ClientInstance) -> None:
    client.routing.update_topic_route("t", two_brokers(with_b=False))
    routes = PublishRoutes(client)
    assert (await routes.next_queue("t", last_broker="a")).broker_name == "a"


async def test_key_keeps_its_queue_while_a_master_is_away(client: ClientInstance) -> None:
    routes = PublishRoutes(client)
    client.routing.update_topic_route("t", two_brokers())
    before = [queue_for_key(f"k{n}", await routes.keyed_queues("t")) for n in range(20)]
    client.routing.update_topic_route("t", two_brokers(with_b=False))
    after = [queue_for_key(f"k{n}", await routes.keyed_queues("t")) for n in range(20)]
    assert before == after
    assert {queue.broker_name for queue in before} == {"a", "b"}


def test_key_is_hashed_as_java_does() -> None:
    queues = [MessageQueue("t", "a", number) for number in range(7)]
    # Known values of String.hashCode: 99162322, and the smallest of all, whose absolute overflows in Java.
    assert queue_for_key("hello", queues).queue_id == 99162322 % 7
    assert queue_for_key("polygenelubricants", queues).queue_id == 2**31 % 7


@pytest.mark.trio(run=run_in_virtual_time)
async def test_new_topic_that_no_broker_can_create_is_named() -> None:
    async with (
        EmbeddedCluster(auto_create_topic_enable=False) as cluster,
        client_of(cluster) as client,
        open_producer(client=client) as producer,
    ):
        with pytest.raises(RouteNotFoundError, match="or a master that creates topics") as caught:
            await producer.send(Message("orders", b""))
    assert caught.value.topic == "orders"


@pytest.mark.usefixtures("slave")
async def test_cluster_that_only_starts_is_not_taken_for_a_missing_topic(
    cluster: EmbeddedCluster,
) -> None:
    for member in (*cluster.slaves, cluster.master):
        await member.stop()
    async with client_of(cluster) as client:
        for auto_create in (True, False):
            async with open_producer(client=client, auto_create_topic=auto_create) as producer:
                with pytest.raises(NoBrokerRegisteredError, match="Wait until a broker") as caught:
                    await producer.send(Message("orders", b""))
                assert caught.value.topic == "orders"
        with pytest.raises(NoBrokerRegisteredError, match="orders"):
            async with open_consumer("orders", group="g", client=client):
                pass
        await cluster.slaves[0].start()
        with pytest.raises(RouteNotFoundError, match="no name server knows the topic"):
            await client.topic_route("nowhere")


@pytest.mark.parametrize("key", [None, "customer-7"])
async def test_master_that_is_back_is_sent_to_at_once(
    client: ClientInstance, cluster: EmbeddedCluster, key: str | None
) -> None:
    async with open_producer(client=client) as producer:
        for _ in range(2):  # The first makes the topic, the second learns its route.
            await producer.send(Message("orders", b""))
            await trio.sleep(2)
        await cluster.kill_master()
        await trio.sleep(1)
        for _ in range(3):  # The first ones fail at the address, then the route lacks the master.
            with pytest.raises(Error):
                await producer.send(Message("orders", b""), sharding_key=key)
            await trio.sleep(1)
        await cluster.restart_master()
        with trio.fail_after(1.5):
            while True:
                with suppress(RouteNotFoundError):
                    await producer.send(Message("orders", b""), sharding_key=key)
                    break
                await trio.sleep(0.1)


@pytest.mark.parametrize("key", [None, "a"])
async def test_silent_name_server_and_broker_hold_a_send_no_longer_than_its_time(
    client: ClientInstance, cluster: EmbeddedCluster, key: str | None
) -> None:
    async with open_producer(client=client, timeout=1.0) as producer:
        await producer.send(Message("orders", b""))
        cluster.memory_network.silence(NAME_SERVER_HOST)
        started = trio.current_time()
        with pytest.raises(RequestTimeoutError, match="no name server returned"):
            await producer.send(Message("another", b""), sharding_key=key)
        with pytest.raises(RequestTimeoutError):
            await producer.request(Message("another", b""), timeout=2.0)
        with pytest.raises(RequestTimeoutError):
            await producer.send_oneway(Message("another", b""), sharding_key=key)
        assert trio.current_time() == pytest.approx(started + 1 + 2 + 1)
        cluster.memory_network.silence(cluster.master.host)
        started = trio.current_time()
        with pytest.raises(NotReachableError):
            await producer.send(Message("orders", b""), sharding_key=key)
        assert trio.current_time() <= started + 1 + LATE_ROUTE + 0.01
