"""Reading a topic for people: which messages, in which order, and nothing committed."""

from datetime import UTC, datetime

import pytest
import trio
from tests.support.orders import make_topic

from rocketrio import (
    ClientInstance,
    ConfigError,
    Message,
    MessageQueue,
    RouteNotFoundError,
    open_admin,
    open_producer,
)
from rocketrio_broker.embedded import EmbeddedCluster


async def stored(client: ClientInstance, count: int) -> None:
    """Store the bodies b"0", b"1" and so on, one after the other, in the queues in turn."""
    await make_topic(client, "orders", queues=3)
    async with open_producer(client=client) as producer:
        for number in range(count):
            queue = MessageQueue("orders", "broker-a", number % 3)
            await producer.send(Message("orders", b"%d" % number), queue=queue)
            await trio.sleep(1)


async def test_first_and_last_are_in_the_order_of_storing(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await stored(client, 10)
    async with open_admin(client=client) as admin:
        first = await admin.messages("orders").first(4)
        last = await admin.messages("orders").last(4)
        every = await admin.messages("orders").first(100)
    assert [one.body for one in first.messages] == [b"0", b"1", b"2", b"3"]
    assert [one.body for one in last.messages] == [b"6", b"7", b"8", b"9"]
    assert (first.in_all, last.in_all, every.in_all, len(every.messages)) == (10, 10, 10, 10)


async def test_times_bound_what_is_read(client: ClientInstance, cluster: EmbeddedCluster) -> None:
    await stored(client, 9)
    async with open_admin(client=client) as admin:
        times = [one.store_time for one in (await admin.messages("orders").first(9)).messages]
        found = await admin.messages("orders").first(100, since=times[2], until=times[5])
        nothing = await admin.messages("orders").first(1, since=datetime(2999, 1, 1, tzinfo=UTC))
    assert [one.body for one in found.messages] == [b"2", b"3", b"4"]
    assert (found.in_all, nothing.in_all, nothing.messages) == (3, 0, [])


async def test_one_queue_and_an_offset(client: ClientInstance, cluster: EmbeddedCluster) -> None:
    await stored(client, 10)
    async with open_admin(client=client) as admin:
        queue = admin.messages("orders", broker_name="broker-a", queue_id=1)
        assert [one.body for one in (await queue.first(10)).messages] == [b"1", b"4", b"7"]
        assert [one.body for one in await queue.at(1, 1)] == [b"4"]
        assert [one.body for one in await queue.at(1, 100)] == [b"4", b"7"]
        assert await queue.at(3, 1) == []
        with pytest.raises(ConfigError, match="no such queue: broker-a, queue 7"):
            await admin.messages("orders", broker_name="broker-a", queue_id=7).at(0, 1)
        with pytest.raises(RouteNotFoundError):
            await admin.messages("ordres").first(1)


async def test_small_pages_return_the_same(
    client: ClientInstance, cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketrio.admin.browse.PAGE_MESSAGES", 1)
    await stored(client, 9)
    async with open_admin(client=client) as admin:
        found = await admin.messages("orders").first(7)
    assert [one.body for one in found.messages] == [b"%d" % number for number in range(7)]


async def test_follow_yields_what_is_stored_afterwards(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await stored(client, 3)
    async with open_admin(client=client) as admin:
        async with admin.messages("orders").follow() as pages:
            async with open_producer(client=client) as producer:
                await producer.send(Message("orders", b"new"))
            assert [one.body for one in await pages.receive()] == [b"new"]
        since = datetime.fromtimestamp(0, UTC)
        async with admin.messages("orders").follow(since=since) as pages:
            bodies = set[bytes]()
            while len(bodies) < 4:
                bodies |= {one.body for one in await pages.receive()}
    assert bodies == {b"0", b"1", b"2", b"new"}
    assert cluster.master.broker.state.consumer_offsets.table.offsets == {}
