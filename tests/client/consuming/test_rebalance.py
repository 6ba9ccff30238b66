"""Rounds of a rebalance while members and brokers can be asked, and while they cannot."""

import logging
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager

import pytest
import trio
from tests.support.clients import open_consumer
from tests.support.orders import make_topic

from rocketrio import ClientInstance, Consumer, MessageQueue, open_admin
from rocketrio.cluster.heartbeat import ConsumerMembership
from rocketrio.consuming.rebalance import RebalanceService
from rocketrio.consuming.subscription import ALL
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.bodies.topics import Permission

pytestmark = pytest.mark.usefixtures("slave")

Assigned = list[Mapping[str, list[MessageQueue]]]


@pytest.fixture
async def service(client: ClientInstance) -> RebalanceService:
    await make_topic(client, "orders", queues=4)
    await client.topic_route("orders")
    await trio.sleep(1)  # The heartbeats that the route caused are over.
    subscriptions = {"orders": ALL.data("orders", sub_version=1)}
    member = ConsumerMembership("g", "CONSUME_FROM_LAST_OFFSET", subscriptions)
    return RebalanceService(client, member, lambda mine: None)


def record(service: RebalanceService) -> Assigned:
    rounds: Assigned = []
    service.assign = rounds.append
    return rounds


async def test_only_member_gets_every_queue(
    client: ClientInstance, service: RebalanceService
) -> None:
    rounds = record(service)
    await client.join(service.member)
    assert await service.rebalance()
    assert [queue.queue_id for queue in rounds[0]["orders"]] == [0, 1, 2, 3]


async def test_member_that_is_not_listed_announces_itself_first(
    client: ClientInstance, service: RebalanceService
) -> None:
    rounds = record(service)
    client.heartbeat.consumers["g"] = service.member  # Known here, but to no broker.
    assert await service.rebalance()
    assert len(rounds[0]["orders"]) == 4


async def test_stranger_to_the_brokers_keeps_what_it_has(
    client: ClientInstance, service: RebalanceService
) -> None:
    rounds = record(service)
    assert not await service.rebalance()
    assert rounds == [{}]


async def test_assignment_stays_while_no_broker_answers(
    client: ClientInstance, service: RebalanceService, cluster: EmbeddedCluster
) -> None:
    rounds = record(service)
    await client.join(service.member)
    await cluster.slaves[0].kill()
    await cluster.kill_master()
    assert not await service.rebalance()
    assert rounds == [{}]


async def test_slave_knows_the_members_too(
    client: ClientInstance, service: RebalanceService, cluster: EmbeddedCluster
) -> None:
    rounds = record(service)
    await client.join(service.member)
    await cluster.kill_master()
    assert await service.rebalance()
    assert len(rounds[0]["orders"]) == 4


@pytest.mark.slow
async def test_what_moved_is_reported_once(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await make_topic(client, "orders", queues=4)
    queues = [MessageQueue("orders", "broker-a", number) for number in range(4)]

    def member(client_id: str) -> AbstractAsyncContextManager[Consumer]:
        return open_consumer(
            "orders",
            group="g",
            client_id=client_id,
            name_servers=cluster.name_servers,
            dial=cluster.dial,
            wall_clock=cluster.wall_clock,
        )

    async with member("a") as first:
        await trio.sleep(60)
        [begun] = first.rebalances
        assert (begun.gained, begun.lost, begun.joined) == (tuple(queues), (), ("a",))
        async with member("b"):
            await trio.sleep(60)
            _, shared = first.rebalances
            assert (shared.gained, shared.lost) == ((), (queues[2], queues[3]))
            assert (shared.joined, shared.left, shared.topic) == (("b",), (), "orders")
            moment = shared.when
        await trio.sleep(60)
        _, _, alone = first.rebalances
        assert (alone.gained, alone.left) == ((queues[2], queues[3]), ("b",))
        assert 59 <= (alone.when - moment).total_seconds() <= 61
        assert str(alone) == (
            "topic=orders gained=broker-a:2,broker-a:3 lost=none joined=none left=b"
        )


async def test_a_topic_that_may_not_be_read_is_named_in_the_log(
    client: ClientInstance, service: RebalanceService, caplog: pytest.LogCaptureFixture
) -> None:
    rounds = record(service)
    await client.join(service.member)
    await make_topic(client, "orders", queues=4, perm=Permission.WRITE)
    await client.refresh_topic_route("orders")
    assert await service.rebalance()
    assert rounds == [{"orders": []}]
    assert "no queue may be read topic=orders group=g" in caplog.text


@pytest.mark.slow
async def test_failures_of_one_cause_are_logged_once_a_minute_with_their_number(
    client: ClientInstance, cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    def lines(event: str) -> list[str]:
        return [line for line in caplog.messages if line.startswith(event)]

    topics = ["orders", "returns", "bills"]
    async with open_admin(client=client) as admin:
        for topic in topics:
            await admin.create_topic(topic, queues=1)
    async with open_consumer(topics, group="g", client=client):
        await trio.sleep(60)
        caplog.set_level(logging.INFO, logger="rocketrio.rebalance")
        caplog.clear()
        await cluster.master.kill()
        await cluster.slaves[0].kill()
        await trio.sleep(170)
        for event in ("not rebalanced", "commit failed"):
            # One for how the connections ended, and three for those that are refused since.
            assert 3 <= len(lines(event)) <= 4
        failed = lines("not rebalanced")
        assert " failures=1 " in failed[0]
        assert "topics=orders,returns,bills,%RETRY%g " in failed[-1]
        assert int(failed[-1].split("failures=")[1].split()[0]) >= 59
        await cluster.master.start()
        await trio.sleep(60)
        assert len(lines("rebalanced again")) == 1
