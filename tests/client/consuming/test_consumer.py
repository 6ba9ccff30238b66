"""Receiving from a cluster in memory: order, batches, commits, cancels."""

from collections import defaultdict

import pytest
import trio
from tests.support.clients import client_of
from tests.support.orders import TOPIC, committed, receive, send

from rocketrio import (
    NOT_FOUND,
    ClientInstance,
    ClosedError,
    CommitRefusedError,
    MessageQueue,
    Prefetch,
    open_admin,
    open_consumer,
)
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.errors import ConfigError


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


async def test_batches_are_full_or_hold_what_has_arrived(client: ClientInstance) -> None:
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


async def test_batch_that_could_hold_nothing_takes_nothing(client: ClientInstance) -> None:
    await send(client, 4, queues=1)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        await trio.sleep(1)
        for nothing in (0, -1):
            with pytest.raises(ConfigError, match="max_messages"):
                await consumer.receive_batch(nothing)
            with pytest.raises(ConfigError, match="max_messages"):
                consumer.batches(nothing)
        assert await receive(consumer, 4) == [0, 1, 2, 3]


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


async def test_consumer_with_tags_receives_only_their_messages(client: ClientInstance) -> None:
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
            client_of(cluster) as own,
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


async def test_reset_by_an_operator_moves_no_running_consumer_and_is_not_overwritten(
    client: ClientInstance, caplog: pytest.LogCaptureFixture
) -> None:
    await send(client, 30, queues=1)
    queue = MessageQueue(TOPIC, "broker-a", 0)
    async with open_admin(client=client) as admin:
        async with open_consumer(TOPIC, group="g", client=client) as consumer:
            assert await receive(consumer, 10) == list(range(10))
            await consumer.commit()
            await admin.reset_offsets("g", {queue: 3})
            assert await receive(consumer, 3) == [10, 11, 12]
            await trio.sleep(30)
            assert caplog.text.count("an operator has reset group g") == 1
            with pytest.raises(CommitRefusedError, match="seek"):
                await consumer.commit()
            assert consumer.position(queue) == 13
        async with open_consumer(TOPIC, group="g", client=client) as consumer:
            assert await receive(consumer, 2) == [3, 4]
            await admin.reset_offsets("g", {queue: 0})
            with pytest.raises(CommitRefusedError):
                await consumer.commit()
            consumer.seek(queue, 20)
            assert await receive(consumer, 1) == [20]
            await consumer.commit()
            assert await committed(consumer) == {0: 21}
        with pytest.raises(ConfigError, match="not an offset"):
            await admin.reset_offsets("g", {queue: -1})


async def test_seek_of_a_consumer_that_ends_lowers_nothing_another_member_stored(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 30, queues=1)
    queue, master = MessageQueue(TOPIC, "broker-a", 0), cluster.master.broker.address
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        await receive(consumer, 10)
        claimed = await client.api.claim_queue(master, "g", queue, "another member")
        await client.api.update_consumer_offset(
            master, "g", queue, 20, generation=claimed.generation, ownership=claimed.ownership
        )
        consumer.seek(queue, 2)
    assert await client.api.query_consumer_offset(master, "g", queue) == 20


# ------------------------------------------------------------------------------------------- cancels


async def test_cancelled_receive_loses_no_message(client: ClientInstance) -> None:
    await send(client, 200, queues=2)
    received: list[int] = []
    async with open_consumer(
        TOPIC, group="g", client=client, prefetch=Prefetch(batch_size=7)
    ) as consumer:
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


async def test_closed_consumer_raises_closed_error(client: ClientInstance) -> None:
    await send(client, 1)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        await receive(consumer, 1)
    with pytest.raises(ClosedError):
        await consumer.receive()


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


async def test_queue_is_pulled_ahead_to_its_threshold_and_no_further(
    client: ClientInstance,
) -> None:
    """However little an answer brings, the next pull is under way while the application takes nothing of what came."""
    await send(client, 1000, queues=1)
    queue = MessageQueue(TOPIC, "broker-a", 0)
    async with open_consumer(
        TOPIC, group="g", client=client, prefetch=Prefetch(batch_size=10, queue_messages=50)
    ) as consumer:
        await receive(consumer, 1)
        await trio.sleep(5)
        assert 50 <= consumer.statistics().queues[queue].cached_messages <= 60
        assert await receive(consumer, 999) == list(range(1, 1000))


async def test_number_that_is_no_offset_is_refused(client: ClientInstance) -> None:
    await send(client, 4, queues=1)
    queue = MessageQueue(TOPIC, "broker-a", 0)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        for number in (-1, 2**63):
            with pytest.raises(ConfigError, match="is not an offset"):
                consumer.seek(queue, number)
            with pytest.raises(ConfigError, match="is not an offset"):
                await consumer.commit({queue: number})


async def test_commit_of_a_queue_that_is_lost_meanwhile_is_an_error(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 8)
    async with open_consumer(TOPIC, group="g", client=client, auto_commit=False) as consumer:
        await receive(consumer, 8)
        cluster.memory_network.delay("10.0.0.10", "10.0.0.100", 0.5)
        async with client_of(cluster) as other, trio.open_nursery() as nursery:

            async def join() -> None:
                async with open_consumer(TOPIC, group="g", client=other):
                    await trio.sleep(30)

            nursery.start_soon(join)
            refused: CommitRefusedError | None = None
            with trio.fail_after(30):
                while len(consumer.assignment) == 4:
                    try:
                        await consumer.commit()
                    except CommitRefusedError as error:
                        refused = error
                    await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
        assert refused is not None
        assert "another member" in str(refused)
