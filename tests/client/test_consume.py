"""Opening a consumer: where it starts, and how members of a group share queues."""

from datetime import UTC, datetime

import attrs
import pytest
import trio
from tests.client.conftest import run_in_virtual_time
from tests.client.orders import TOPIC, another_client, receive, send

from rocketrio import (
    ClientInstance,
    MessageQueue,
    RouteNotFound,
    open_consumer,
)
from rocketrio_broker.embedded import SMALL_STORE, EmbeddedCluster
from rocketrio_protocol.errors import ConfigError


async def test_new_group_may_start_at_the_end(client: ClientInstance) -> None:
    await send(client, 8)
    queues = [MessageQueue(TOPIC, "broker-a", index) for index in range(4)]
    async with open_consumer(
        TOPIC, group="g", client=client, start_from=datetime(2040, 1, 1, tzinfo=UTC)
    ) as consumer:
        with trio.move_on_after(3):
            raise AssertionError(await consumer.receive())
        assert [consumer.position(queue) for queue in queues] == [2, 2, 2, 2]


async def test_time_decides_where_a_new_group_starts(client: ClientInstance) -> None:
    await send(client, 8)
    await trio.sleep(100)
    between = datetime.fromtimestamp(client.wall_clock.now_ms() / 1000 - 50, UTC)
    await send(client, 8, start=8)
    async with open_consumer(TOPIC, group="g", client=client, start_from=between) as consumer:
        assert sorted(await receive(consumer, 8)) == list(range(8, 16))


async def test_committed_group_goes_on_whatever_start_says(client: ClientInstance) -> None:
    await send(client, 8, queues=1)
    async with open_consumer(TOPIC, group="g", client=client, start_from="first") as consumer:
        await receive(consumer, 5)
    async with open_consumer(TOPIC, group="g", client=client, start_from="first") as consumer:
        assert await receive(consumer, 1) == [5]


async def test_offset_beyond_the_end_is_corrected_by_the_master(client: ClientInstance) -> None:
    await send(client, 10, queues=1)
    queue = MessageQueue(TOPIC, "broker-a", 0)
    async with open_consumer(TOPIC, group="g", client=client, auto_commit=False) as consumer:
        await consumer.commit({queue: 99})
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        await trio.sleep(1)
        assert consumer.position(queue) == 10
        await send(client, 1, start=10, queues=1)
        assert await receive(consumer, 1) == [10]
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        assert await consumer.committed(queue) == 11


@pytest.mark.trio(run=run_in_virtual_time)
async def test_lagging_slave_moves_nobody() -> None:
    queue = MessageQueue(TOPIC, "broker-a", 0)
    store = attrs.evolve(SMALL_STORE, offset_check_in_slave=True)  # It answers "illegal" itself.
    async with (
        EmbeddedCluster(slaves=1, slave_read_enable=True, store=store) as cluster,
        another_client(cluster) as client,
    ):
        await send(client, 10, queues=1)
        await trio.sleep(1)
        async with open_consumer(TOPIC, group="g", client=client, auto_commit=False) as consumer:
            await consumer.commit({queue: 99})
        await trio.sleep(15)
        await cluster.kill_master()
        async with open_consumer(TOPIC, group="g", client=client) as consumer:
            await trio.sleep(10)
            assert consumer.position(queue) == 99


async def test_unknown_topic_is_an_error_at_once(client: ClientInstance) -> None:
    with pytest.raises(RouteNotFound, match="nowhere"):
        async with open_consumer("nowhere", group="g", client=client):
            pass


# -------------------------------------------------------------------------------------------- groups


async def test_members_share_queues_and_take_over_from_who_leaves(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 400)
    received: list[int] = []
    async with open_consumer(TOPIC, group="g", client=client) as first:
        received += await receive(first, 50)
        async with (
            another_client(cluster) as own,
            open_consumer(TOPIC, group="g", client=own) as second,
        ):
            await trio.sleep(1)
            assert len(first.assignment) == len(second.assignment) == 2
            assert not set(first.assignment) & set(second.assignment)
            received += await receive(second, 50)
        await trio.sleep(1)
        assert len(first.assignment) == 4
        while set(received) != set(range(400)):
            with trio.fail_after(5):
                received += await receive(first, 1)
    # What the second member had in work when queues moved may come twice; nothing may be missing.
    assert len(received) < 500


async def test_member_that_dies_is_replaced(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 40)
    async with open_consumer(TOPIC, group="g", client=client) as first:
        async with another_client(cluster) as own, trio.open_nursery() as nursery:

            async def member() -> None:
                async with open_consumer(TOPIC, group="g", client=own):
                    await trio.sleep_forever()

            nursery.start_soon(member)
            await trio.sleep(1)
            assert len(first.assignment) == 2
            nursery.cancel_scope.cancel()
        await trio.sleep(1)
        assert len(first.assignment) == 4


async def test_two_members_of_a_group_need_two_clients(client: ClientInstance) -> None:
    await send(client, 1)
    async with open_consumer(TOPIC, group="g", client=client):
        with pytest.raises(ConfigError, match="member of group g already"):
            async with open_consumer(TOPIC, group="g", client=client):
                pass


async def test_named_queues_are_read_without_joining_the_group(client: ClientInstance) -> None:
    await send(client, 8)
    queues = [MessageQueue(TOPIC, "broker-a", 1)]
    async with open_consumer(group="g", queues=queues, client=client) as consumer:
        assert consumer.assignment == queues
        assert await receive(consumer, 2) == [1, 5]
        assert client.heartbeat.consumers == {}


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"topics": (), "group": "g"}, "at least one topic"),
        ({"topics": "t", "group": "bad group"}, "illegal"),
        ({"topics": "t", "group": "g", "tags": {"other": "a"}}, "not consumed: other"),
        ({"topics": "t", "group": "g", "queues": [MessageQueue("u", "b", 0)]}, "not consumed: u"),
    ],
)
async def test_wrong_use_names_what_is_wrong(
    client: ClientInstance, arguments: dict[str, object], what: str
) -> None:
    with pytest.raises(ConfigError, match=what):
        async with open_consumer(client=client, **arguments):  # type: ignore[arg-type]
            pass
