"""Where a consumer stands and goes: pause, resume, seek by time, bounds."""

from datetime import UTC, datetime

import pytest
import trio
from tests.support.orders import TOPIC, committed, receive, send

from rocketrio import (
    NOT_FOUND,
    ClientInstance,
    Message,
    MessageQueue,
    NotReachableError,
    Prefetch,
    open_consumer,
    open_producer,
)
from rocketrio.consuming.consumer import _known
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.errors import ConfigError

QUEUES = [MessageQueue(TOPIC, "broker-a", index) for index in range(2)]


async def test_paused_queue_gives_nothing_and_resumes_at_its_position(
    client: ClientInstance,
) -> None:
    await send(client, 40, queues=2)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        first = await receive(consumer, 3)
        own, other = (QUEUES[0], QUEUES[1]) if first[0] % 2 == 0 else (QUEUES[1], QUEUES[0])
        position = consumer.position(own)
        consumer.pause([own])
        assert consumer.paused == [own]
        assert consumer.position(own) == position
        rest = await receive(consumer, 20)
        assert {number % 2 for number in rest} == {other.queue_id}
        with trio.move_on_after(3):
            raise AssertionError(await consumer.receive())
        consumer.resume()
        assert sorted(first + rest + await receive(consumer, 17)) == list(range(40))
        assert consumer.paused == []


async def test_pause_holds_no_memory_and_keeps_the_queue(client: ClientInstance) -> None:
    await send(client, 400, queues=1)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        await receive(consumer, 5)
        consumer.pause()
        await trio.sleep(40)
        statistics = consumer.statistics().queues[QUEUES[0]]
        assert (statistics.cached_messages, statistics.position) == (0, 5)
        assert await committed(consumer) == {0: 4}  # The fifth is in work still.
        consumer.resume([QUEUES[0]])
        assert await receive(consumer, 2) == [5, 6]


async def test_batch_in_work_is_settled_though_its_queue_is_paused(client: ClientInstance) -> None:
    await send(client, 20, queues=1)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        await consumer.receive_batch(7)
        consumer.pause()
        await trio.sleep(6)
        assert await committed(consumer) == {0: NOT_FOUND}
        consumer._settle()
        await trio.sleep(6)
        assert await committed(consumer) == {0: 7}


async def test_seek_while_paused_counts_after_resume(client: ClientInstance) -> None:
    await send(client, 20, queues=1)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        await receive(consumer, 5)
        consumer.pause()
        consumer.seek(QUEUES[0], 17)
        with trio.move_on_after(3):
            raise AssertionError(await consumer.receive())
        consumer.resume()
        assert await receive(consumer, 1) == [17]


async def test_seek_to_a_time_moves_all_queues(client: ClientInstance) -> None:
    await send(client, 8, queues=2)
    await trio.sleep(100)
    between = datetime.fromtimestamp(client.wall_clock.now_ms() / 1000 - 50, UTC)
    await send(client, 8, start=8, queues=2)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        await receive(consumer, 16)
        assert await consumer.seek_to_time(between) == dict.fromkeys(QUEUES, 4)
        assert sorted(await receive(consumer, 8)) == list(range(8, 16))
        assert await consumer.seek_to_time(between, QUEUES[:1]) == {QUEUES[0]: 4}
        assert await receive(consumer, 2) == [8, 10]
        with pytest.raises(ConfigError, match="no time zone"):
            await consumer.seek_to_time(datetime(2040, 1, 1))


async def test_no_position_moves_while_no_master_answers(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 8, queues=2)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        await receive(consumer, 8)
        await cluster.kill_master()
        with pytest.raises(NotReachableError):
            await consumer.seek_to_time(datetime(2020, 1, 1, tzinfo=UTC))
        assert [consumer.position(queue) for queue in QUEUES] == [4, 4]


async def test_bounds_are_asked_of_the_brokers(client: ClientInstance) -> None:
    await send(client, 9, queues=2)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        assert await consumer.min_offsets() == {QUEUES[0]: 0, QUEUES[1]: 0}
        assert await consumer.max_offsets() == {QUEUES[0]: 5, QUEUES[1]: 4}


def test_position_that_no_broker_reports_is_none() -> None:
    assert _known({QUEUES[0]: 3, QUEUES[1]: NotReachableError("away")}) == {
        QUEUES[0]: 3,
        QUEUES[1]: None,
    }


@pytest.mark.slow
async def test_memory_stays_within_the_budget_whatever_lags(client: ClientInstance) -> None:
    budget, size, count = 400_000, 2_000, 2_000
    await send(client, 1, queues=16)
    async with open_producer(client=client) as producer, producer.pipeline() as pipeline:
        for number in range(count):
            await pipeline.send(
                Message(TOPIC, b"%06d" % number + bytes(size)),
                queue=MessageQueue(TOPIC, "broker-a", number % 16),
            )
    most = 0
    received: set[bytes] = set()
    async with open_consumer(
        TOPIC,
        group="g",
        client=client,
        start_from="earliest",
        prefetch=Prefetch(total_bytes=budget),
    ) as consumer:
        while len(received) <= count:
            batch = await consumer.receive_batch(10)
            await trio.sleep(0.05)  # A slow handler: pulls have all the time they want.
            received |= {message.body[:6] for message in batch}
            (used,) = {queue.budget.used for queue in consumer._assigned.queues.values()}
            most = max(most, used)
    assert budget / 2 < most <= budget
