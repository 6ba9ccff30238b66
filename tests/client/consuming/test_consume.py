"""Opening a consumer: where it starts, and how members of a group share queues."""

import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest
import trio
from tests.support.clients import client_of
from tests.support.clocks import run_in_virtual_time
from tests.support.orders import TOPIC, make_topic, receive, send

from rocketrio import (
    ClientInstance,
    Message,
    MessageQueue,
    RouteNotFoundError,
    open_consumer,
    open_producer,
)
from rocketrio.cluster.api import ClientAPI
from rocketrio.consuming.fetch import QueueFetcher
from rocketrio.consuming.offset_store import RemoteBrokerOffsetStore
from rocketrio.consuming.process_queue import ProcessQueue
from rocketrio.consuming.pull_result import PullResult
from rocketrio_broker.embedded import SMALL_STORE, EmbeddedCluster
from rocketrio_protocol.errors import ClosedError, ConfigError


async def test_new_group_may_start_at_the_end(client: ClientInstance) -> None:
    await send(client, 8)
    queues = [MessageQueue(TOPIC, "broker-a", index) for index in range(4)]
    async with open_consumer(
        TOPIC, group="g", client=client, start_from=datetime(2040, 1, 1, tzinfo=UTC)
    ) as consumer:
        with trio.move_on_after(3):
            raise AssertionError(await consumer.receive())
        assert [consumer.position(queue) for queue in queues] == [2, 2, 2, 2]


@pytest.mark.parametrize("mode", ["clustering", "broadcasting"])
async def test_end_is_exact_however_young_the_queues_are(
    client: ClientInstance, mode: Literal["clustering", "broadcasting"], tmp_path: Path
) -> None:
    await send(client, 8)
    async with open_consumer(
        TOPIC,
        group="g",
        mode=mode,
        client=client,
        start_from="end",
        offsets_path=tmp_path / "offsets" if mode == "broadcasting" else None,
    ) as consumer:
        with trio.move_on_after(3):
            raise AssertionError(await consumer.receive())
        await send(client, 4, start=8)
        assert sorted(await receive(consumer, 4)) == [8, 9, 10, 11]


async def test_time_decides_where_a_new_group_starts(client: ClientInstance) -> None:
    await send(client, 8)
    await trio.sleep(100)
    between = datetime.fromtimestamp(client.wall_clock.now_ms() / 1000 - 50, UTC)
    await send(client, 8, start=8)
    async with open_consumer(TOPIC, group="g", client=client, start_from=between) as consumer:
        assert sorted(await receive(consumer, 8)) == list(range(8, 16))


async def test_committed_group_continues_whatever_start_is(client: ClientInstance) -> None:
    await send(client, 8, queues=1)
    async with open_consumer(TOPIC, group="g", client=client, start_from="earliest") as consumer:
        await receive(consumer, 5)
    async with open_consumer(TOPIC, group="g", client=client, start_from="earliest") as consumer:
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
        assert await consumer.committed_offset(queue) == 11


@pytest.mark.trio(run=run_in_virtual_time)
async def test_lagging_slave_moves_no_reader() -> None:
    queue = MessageQueue(TOPIC, "broker-a", 0)
    store = attrs.evolve(SMALL_STORE, offset_check_in_slave=True)  # It answers "illegal" itself.
    async with (
        EmbeddedCluster(slaves=1, slave_read_enable=True, store=store) as cluster,
        client_of(cluster) as client,
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
    with pytest.raises(RouteNotFoundError, match="nowhere"):
        async with open_consumer("nowhere", group="g", client=client):
            pass


# -------------------------------------------------------------------------------------------- groups


async def test_members_share_queues_and_take_over_those_of_a_member_that_leaves(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 400)
    received: list[int] = []
    async with open_consumer(TOPIC, group="g", client=client) as first:
        received += await receive(first, 50)
        async with (
            client_of(cluster) as own,
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
        async with client_of(cluster) as own, trio.open_nursery() as nursery:

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


async def test_second_member_that_comes_at_the_same_time_leaves_the_first_alone(
    client: ClientInstance,
) -> None:
    await send(client, 1)
    client.routing.topic_route_table.clear()  # So that both wait for the route.
    refused: list[ConfigError] = []

    async def consume() -> None:
        try:
            async with open_consumer(TOPIC, group="g", client=client):
                await trio.sleep_forever()
        except ConfigError as error:
            refused.append(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(consume)
        nursery.start_soon(consume)
        await trio.sleep(5)
        assert len(refused) == 1
        assert list(client.heartbeat.consumers) == ["g"]
        nursery.cancel_scope.cancel()


async def test_queue_given_up_again_while_its_commit_is_under_way_comes_back(
    client: ClientInstance,
) -> None:
    await send(client, 8, queues=1)
    queue = MessageQueue(TOPIC, "broker-a", 0)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        await receive(consumer, 3)
        assigned = consumer._assigned
        first = assigned._fetchers[queue]

        def new_fetcher(queue: MessageQueue) -> QueueFetcher:
            return attrs.evolve(first, process_queue=ProcessQueue(queue), scope=trio.CancelScope())

        assert isinstance(assigned.offsets, RemoteBrokerOffsetStore)
        async with trio.open_nursery() as nursery:
            async with assigned.offsets._lock(queue):
                for mine in ([], [queue], [], [queue]):
                    assigned.change({TOPIC: mine}, nursery=nursery, new_fetcher=new_fetcher)
                    await trio.sleep(0.01)
            assert await receive(consumer, 2) == [2, 3]  # The third was in work.
            nursery.cancel_scope.cancel()


async def test_late_commit_of_the_old_owner_does_not_lower_what_the_new_one_stored(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 20, queues=2)
    queues = [MessageQueue(TOPIC, "broker-a", index) for index in range(2)]
    async with client_of(cluster) as other:
        await other.topic_route(TOPIC)
        store = RemoteBrokerOffsetStore(other, "g")
        async with open_consumer(TOPIC, group="g", client=client) as consumer:
            await receive(consumer, 15)
            for queue in queues:
                store.update_offset(queue, 9)
                await store.persist(queue)
            async with trio.open_nursery() as nursery:  # One is given up, one kept to the end.
                consumer._assigned.change(
                    {TOPIC: queues[1:]},
                    nursery=nursery,
                    new_fetcher=lambda queue: pytest.fail("none"),
                )
            assert await read(store, queues[0]) >= 9
        assert min([await read(store, queue) for queue in queues]) >= 9


async def read(store: RemoteBrokerOffsetStore, queue: MessageQueue) -> int:
    offset = (await store.read_offset(queue, zero_if_young=False)).offset
    assert isinstance(offset, int)
    return offset


async def test_answer_that_cannot_be_read_is_asked_for_again(
    client: ClientInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send(client, 8, queues=1)
    pull_message = ClientAPI.pull_message
    damaged: list[PullResult] = []

    async def damage_first(self: ClientAPI, *args: Any, **kwargs: Any) -> PullResult:
        result = await pull_message(self, *args, **kwargs)
        if not damaged:
            damaged.append(result)
            result.body = bytes(200)
        return result

    monkeypatch.setattr(ClientAPI, "pull_message", damage_first)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        with trio.fail_after(10):
            assert await receive(consumer, 2) == [0, 1]
        assert damaged


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
        ({"topics": "t", "group": "g", "start_from": "first"}, "neither 'earliest', 'latest'"),
        ({"topics": "t", "group": "g", "start_from": datetime(2040, 1, 1)}, "with a time zone"),
        ({"topics": "t", "group": "g", "prefetch": 1000}, "must be a Prefetch"),
        ({"topics": "t", "group": "g", "auto_commit_interval": 0}, "more than 0"),
        ({"topics": "t", "group": "g", "queues": [MessageQueue("u", "b", 0)]}, "not consumed: u"),
    ],
)
async def test_wrong_use_names_what_is_wrong(
    client: ClientInstance, arguments: dict[str, object], what: str
) -> None:
    with pytest.raises(ConfigError, match=what):
        async with open_consumer(client=client, **arguments):  # type: ignore[arg-type]
            pass


async def test_commit_after_the_block_is_an_error(client: ClientInstance) -> None:
    await send(client, 1)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        await consumer.commit()
    with pytest.raises(ClosedError, match="group g is closed"):
        await consumer.commit()


async def test_topic_that_was_just_made_is_waited_for(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async def create() -> None:
        await trio.sleep(0.5)
        await make_topic(client, "young")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(create)
        async with open_consumer("young", group="g", client=client) as consumer:
            assert consumer.assignment


async def test_unknown_topic_is_an_error_soon(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    started = trio.current_time()
    with pytest.raises(RouteNotFoundError, match="nowhere"):
        async with open_consumer("nowhere", group="g", client=client):
            pass
    assert trio.current_time() - started < 2.0


@pytest.mark.slow
async def test_consumer_may_start_before_its_topic(
    client: ClientInstance, caplog: pytest.LogCaptureFixture
) -> None:
    async def send_later() -> None:
        await trio.sleep(150)
        async with open_producer(client=client) as producer:
            await producer.send(Message("later", b"at last"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send_later)
        async with open_consumer(
            "later", group="g", start_from="earliest", wait_for_topic=math.inf, client=client
        ) as consumer:
            assert 150 <= trio.current_time() < 160
            assert (await consumer.receive()).body == b"at last"
    assert caplog.text.count("waiting for topic=later") == 3


@pytest.mark.parametrize(("given", "waited"), [({}, 1.0), ({"wait_for_topic": 20.0}, 20.0)])
async def test_topic_is_waited_for_as_long_as_was_said(
    client: ClientInstance, given: dict[str, float], waited: float
) -> None:
    began = trio.current_time()
    with pytest.raises(RouteNotFoundError, match="never"):
        async with open_consumer("never", group="g", client=client, **given):
            pass
    assert trio.current_time() - began == pytest.approx(waited, abs=1.0)


@pytest.mark.slow
@pytest.mark.usefixtures("slave")
async def test_consumer_may_start_before_its_cluster(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 1)
    await cluster.kill_master()
    await cluster.slaves[0].kill()
    await cluster.kill_name_server()

    async def start_later() -> None:
        await trio.sleep(10)
        await cluster.restart_name_server()
        await trio.sleep(10)
        await cluster.restart_master()

    cluster.nursery.start_soon(start_later)
    async with (
        client_of(cluster) as fresh,
        open_consumer(
            TOPIC, group="g", start_from="earliest", wait_for_topic=60, client=fresh
        ) as consumer,
    ):
        assert (await consumer.receive()).body == b"0"
