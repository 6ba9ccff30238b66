"""Receiving from a cluster in memory: order, cancels, commits, groups, rebalancing."""

from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
import trio

from rocketrio import (
    NOT_FOUND,
    ClientInstance,
    ClosedError,
    Consumer,
    Message,
    MessageQueue,
    RouteNotFound,
    open_admin,
    open_client,
    open_consumer,
    open_producer,
)
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.errors import ConfigError

TOPIC = "orders"


@asynccontextmanager
async def another_client(cluster: EmbeddedCluster) -> AsyncIterator[ClientInstance]:
    async with open_client(
        name_servers=cluster.name_servers, dial=cluster.dial, wall_clock=cluster.wall_clock
    ) as client:
        yield client


async def send(client: ClientInstance, count: int, *, start: int = 0, queues: int = 4) -> None:
    """Numbered bodies; the number modulo `queues` is the queue."""
    async with open_admin(client=client) as admin:
        await admin.create_topic(TOPIC, queues=queues)
    await client.refresh_topic_route(TOPIC)
    async with open_producer(client=client) as producer, producer.pipeline() as pipeline:
        for number in range(start, start + count):
            queue = MessageQueue(TOPIC, "broker-a", number % queues)
            tags = "even" if number % 2 == 0 else "odd"
            await pipeline.send(Message(TOPIC, b"%d" % number, tags=tags), queue=queue)


async def receive(consumer: Consumer, count: int) -> list[int]:
    return [int((await consumer.receive()).body) for _ in range(count)]


async def committed(consumer: Consumer) -> dict[int, object]:
    return {queue.queue_id: await consumer.committed(queue) for queue in consumer.assignment}


async def test_every_message_is_received_once_and_in_order_per_queue(
    client: ClientInstance,
) -> None:
    await send(client, 1000)
    by_queue: dict[int, list[int]] = defaultdict(list)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        for number in await receive(consumer, 1000):
            by_queue[number % 4].append(number)
    assert by_queue == {index: list(range(index, 1000, 4)) for index in range(4)}


async def test_consumer_waits_for_the_next_message(client: ClientInstance) -> None:
    await send(client, 4)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        await receive(consumer, 4)
        before = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send, client, 1)
            with trio.fail_after(5):
                assert await receive(consumer, 1) == [0]
        assert trio.current_time() - before < 1  # Long polling, not looking now and then.


async def test_batches_are_full_or_what_is_there(client: ClientInstance) -> None:
    await send(client, 100, queues=1)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        sizes, received = [], 0
        async for batch in consumer.batches(max_messages=32):
            sizes.append(len(batch))
            received += len(batch)
            if received == 100:
                break
    assert max(sizes) <= 32
    assert min(sizes) >= 1


async def test_batch_waits_to_be_filled_no_longer_than_asked(client: ClientInstance) -> None:
    await send(client, 8)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        before = trio.current_time()
        batch = await consumer.receive_batch(100, max_wait=2.0)
        assert len(batch) == 8
        assert trio.current_time() - before == pytest.approx(2.0, abs=0.1)
        assert {int(message.body) for message in batch} == set(range(8))


async def test_batch_size_must_be_positive(client: ClientInstance) -> None:
    await send(client, 1)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        with pytest.raises(ConfigError):
            consumer.batches(0)


async def test_tags_are_filtered(client: ClientInstance) -> None:
    await send(client, 40, queues=3)
    async with open_consumer(TOPIC, group="g", tags="odd", client=client) as consumer:
        numbers = await receive(consumer, 20)
    assert sorted(numbers) == list(range(1, 40, 2))


# ------------------------------------------------------------------------------------------- commits


async def test_message_in_work_is_not_committed_automatically(client: ClientInstance) -> None:
    await send(client, 10, queues=1)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        await receive(consumer, 3)
        await trio.sleep(6)
        assert await committed(consumer) == {0: 2}  # The third may still be worked on.
        await receive(consumer, 1)
        await trio.sleep(6)
        assert await committed(consumer) == {0: 3}


async def test_block_that_ends_well_commits_the_last_message_too(client: ClientInstance) -> None:
    await send(client, 10, queues=1)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        await receive(consumer, 4)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        assert await receive(consumer, 1) == [4]


async def test_block_that_fails_gives_the_last_message_again(client: ClientInstance) -> None:
    await send(client, 10, queues=1)
    with pytest.raises(KeyError, match="mine"):
        await _receive_and_fail(client)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        assert await receive(consumer, 1) == [3]


async def _receive_and_fail(client: ClientInstance) -> None:
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        await receive(consumer, 4)
        raise KeyError("mine")


async def test_cancelled_block_commits_what_was_worked_on(client: ClientInstance) -> None:
    await send(client, 10, queues=1)
    with trio.move_on_after(1):
        async with open_consumer(TOPIC, group="g", client=client) as consumer:
            await receive(consumer, 4)
            await trio.sleep_forever()
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        assert await receive(consumer, 1) == [3]


async def test_cancelled_client_commits_before_its_connections_end(
    cluster: EmbeddedCluster, client: ClientInstance
) -> None:
    await send(client, 10, queues=1)
    with trio.move_on_after(1):
        async with (
            another_client(cluster) as own,
            open_consumer(TOPIC, group="g", client=own) as consumer,
        ):
            await receive(consumer, 4)
            await trio.sleep_forever()
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        assert await receive(consumer, 1) == [3]


async def test_manual_commit_covers_what_was_received(client: ClientInstance) -> None:
    await send(client, 10, queues=1)
    async with open_consumer(TOPIC, group="g", client=client, auto_commit=False) as consumer:
        await receive(consumer, 5)
        await trio.sleep(12)
        assert await committed(consumer) == {0: NOT_FOUND}
        await consumer.commit()
        assert await committed(consumer) == {0: 5}
        await receive(consumer, 3)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        assert await receive(consumer, 1) == [5]


async def test_explicit_commit_never_lowers(client: ClientInstance) -> None:
    await send(client, 10, queues=1)
    queue = MessageQueue(TOPIC, "broker-a", 0)
    async with open_consumer(TOPIC, group="g", client=client, auto_commit=False) as consumer:
        await consumer.commit({queue: 7})
        await consumer.commit({queue: 3})
        assert await committed(consumer) == {0: 7}
        with pytest.raises(ConfigError, match="not assigned"):
            await consumer.commit({MessageQueue(TOPIC, "broker-a", 9): 1})


async def test_seek_goes_back_and_may_lower_what_is_stored(client: ClientInstance) -> None:
    await send(client, 10, queues=1)
    queue = MessageQueue(TOPIC, "broker-a", 0)
    async with open_consumer(TOPIC, group="g", client=client, auto_commit=False) as consumer:
        await receive(consumer, 8)
        await consumer.commit()
        consumer.seek(queue, 2)
        assert consumer.position(queue) == 2
        assert await receive(consumer, 2) == [2, 3]
        await consumer.commit()
        assert await committed(consumer) == {0: 4}


# ------------------------------------------------------------------------------------------- cancels


async def test_cancelled_receive_loses_no_message(client: ClientInstance) -> None:
    await send(client, 200, queues=2)
    received: list[int] = []
    async with open_consumer(TOPIC, group="g", client=client, pull_batch_size=7) as consumer:
        while len(received) < 200:
            with trio.CancelScope() as scope:
                if len(received) % 3 != 1:
                    scope.cancel()  # Every checkpoint inside is a cancelled one.
                received.append(int((await consumer.receive()).body))
            with trio.move_on_after(0.001):
                received += [int(m.body) for m in await consumer.receive_batch(2, max_wait=1)]
    assert sorted(received) == list(range(200))


async def test_second_receiving_task_is_refused(client: ClientInstance) -> None:
    await send(client, 1)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        await receive(consumer, 1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.receive)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(trio.BusyResourceError):
                await consumer.receive()
            nursery.cancel_scope.cancel()


async def test_closed_consumer_says_so(client: ClientInstance) -> None:
    await send(client, 1)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        await receive(consumer, 1)
    with pytest.raises(ClosedError):
        await consumer.receive()


# -------------------------------------------------------------------------------------------- starts


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


async def test_lagging_slave_moves_nobody(client: ClientInstance, cluster: EmbeddedCluster) -> None:
    await send(client, 10, queues=1)
    queue = MessageQueue(TOPIC, "broker-a", 0)
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


async def test_statistics_and_lag_add_up(client: ClientInstance) -> None:
    await send(client, 20, queues=1)
    queue = MessageQueue(TOPIC, "broker-a", 0)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        await receive(consumer, 5)
        statistics = consumer.statistics()
        assert statistics.handed_out == 5
        assert statistics.queues[queue].position == 5
        assert statistics.queues[queue].done_offset == 4
        assert await consumer.lag() == {queue: 15}
        assert consumer.pull_from_which_node_table == {queue: 0}


async def test_queue_is_pulled_ahead_no_further_than_its_threshold(client: ClientInstance) -> None:
    await send(client, 1000, queues=1)
    queue = MessageQueue(TOPIC, "broker-a", 0)
    async with open_consumer(
        TOPIC, group="g", client=client, pull_batch_size=10, pull_threshold_for_queue=50
    ) as consumer:
        await receive(consumer, 1)
        await trio.sleep(5)
        assert consumer.statistics().queues[queue].cached_messages <= 60
        assert await receive(consumer, 999) == list(range(1, 1000))
