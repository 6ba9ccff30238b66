"""What a consumer says of its queues: what it holds, what handlers have, when something happened."""

from datetime import datetime, timedelta, timezone
from functools import partial

import trio
from tests.support.orders import TOPIC, receive, send

from rocketrio import (
    ClientInstance,
    Consumer,
    Message,
    MessageExt,
    MessageQueue,
    open_consumer,
    open_producer,
)
from rocketrio_protocol.bodies.running_info import ConsumerRunningInfo, ProcessQueueInfo

QUEUE = MessageQueue(TOPIC, "broker-a", 0)


def info(client: ClientInstance) -> ConsumerRunningInfo:
    answers = client.heartbeat.consumers["g"].answers
    assert answers is not None
    return answers.running_info()


def queue_info(client: ClientInstance) -> ProcessQueueInfo:
    return info(client).mq_table[QUEUE]


def cached(told: ProcessQueueInfo) -> tuple[int, int, int]:
    return told.cached_msg_count, told.cached_msg_min_offset, told.cached_msg_max_offset


def transaction(told: ProcessQueueInfo) -> tuple[int, int, int]:
    return (
        told.transaction_msg_count,
        told.transaction_msg_min_offset,
        told.transaction_msg_max_offset,
    )


async def pulled(consumer: Consumer, count: int) -> None:
    """Wait for that many messages, without taking any."""
    await trio.sleep(1)
    assert sum(queue.cached_messages for queue in consumer.statistics().queues.values()) == count


async def test_what_was_pulled_and_not_received_is_cached(client: ClientInstance) -> None:
    await send(client, 10, queues=1)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        await pulled(consumer, 10)
        assert cached(queue_info(client)) == (10, 0, 9)
        await receive(consumer, 4)
        assert cached(queue_info(client)) == (6, 4, 9)
        assert queue_info(client).commit_offset == 3  # The fourth is in work.
        await consumer.receive_batch(3)
        assert cached(queue_info(client)) == (3, 7, 9)
        await receive(consumer, 3)
        assert cached(queue_info(client)) == (0, 0, 0)
        assert transaction(queue_info(client)) == (0, 0, 0)


async def test_what_handlers_have_is_cached_too(client: ClientInstance) -> None:
    await send(client, 10, queues=1)
    may_end = trio.Event()

    async def handle(message: MessageExt) -> None:
        if message.body in (b"1", b"3"):
            await may_end.wait()

    async with (
        open_consumer(TOPIC, group="g", client=client) as consumer,
        trio.open_nursery() as nursery,
    ):
        await pulled(consumer, 10)
        nursery.start_soon(partial(consumer.run, handle, concurrency=2))
        await trio.sleep(1)
        told = queue_info(client)
        assert (cached(told), told.commit_offset) == ((8, 1, 9), 1)
        assert (
            info(client).properties.items()
            >= {
                "PROP_THREADPOOL_CORE_SIZE": "2",
                "consumeThreadMin": "2",
                "consumeMessageBatchMaxSize": "1",
                "consumeTimeout": "15",
            }.items()
        )
        may_end.set()
        await trio.sleep(1)
        told = queue_info(client)
        assert (cached(told), told.commit_offset) == ((0, 0, 0), 10)
        nursery.cancel_scope.cancel()


async def test_running_info_of_an_orderly_consumer_counts_messages_in_work(
    client: ClientInstance,
) -> None:
    await send(client, 10, queues=1)
    may_end = trio.Event()

    async def handle(message: MessageExt) -> None:
        if message.body == b"2":
            await may_end.wait()

    begun_ms = client.wall_clock.now_ms()
    async with (
        open_consumer(TOPIC, group="g", orderly=True, client=client) as consumer,
        trio.open_nursery() as nursery,
    ):
        await pulled(consumer, 10)
        nursery.start_soon(consumer.run, handle)
        await trio.sleep(25)  # The lock was renewed after 20 s.
        told = queue_info(client)
        assert (cached(told), transaction(told)) == ((7, 3, 9), (1, 2, 2))
        assert (told.commit_offset, told.locked) == (2, True)
        assert 20_000 <= told.last_lock_timestamp - begun_ms < 25_000
        assert info(client).properties["PROP_CONSUMEORDERLY"] == "true"
        nursery.cancel_scope.cancel()


async def test_times_are_those_of_the_last_events(client: ClientInstance) -> None:
    await send(client, 2, queues=1)
    clock = client.wall_clock
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        taken_over = clock.now_ms()
        await trio.sleep(30)
        told = queue_info(client)
        assert abs(told.last_lock_timestamp - taken_over) < 1000
        assert abs(told.last_consume_timestamp - taken_over) < 1000
        assert clock.now_ms() - told.last_pull_timestamp < 16_000  # held by the broker
        await receive(consumer, 1)
        received = clock.now_ms()
        await trio.sleep(30)
        assert 0 <= queue_info(client).last_consume_timestamp - received <= 5000  # the next look
        assert (told.locked, told.droped, told.try_unlock_times) == (True, False, 0)


async def test_size_is_that_of_the_pulls_that_are_held(client: ClientInstance) -> None:
    await send(client, 0, queues=1)
    async with open_producer(client=client, compress_over=1 << 30) as producer:
        for _ in range(12):
            await producer.send(Message(TOPIC, bytes(100 << 10)), queue=QUEUE)
    async with open_consumer(TOPIC, group="g", start_from="earliest", client=client) as consumer:
        await pulled(consumer, 12)
        assert queue_info(client).cached_msg_size_in_mib == 1
        await consumer.receive_batch(1)  # Of a pull that brought two.
        assert queue_info(client).cached_msg_size_in_mib == 1
        await consumer.receive_batch(11)
        assert queue_info(client).cached_msg_size_in_mib == 0


async def test_rates_are_those_of_the_moment(client: ClientInstance) -> None:
    await send(client, 10, queues=1)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        await receive(consumer, 10)
        await trio.sleep(2)
        assert info(client).status_table[TOPIC].consume_ok_tps >= 3


async def test_queue_whose_start_is_unknown_has_no_offset(client: ClientInstance) -> None:
    await send(client, 1, queues=1)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        process_queue = consumer._assigned.queues[QUEUE]
        assert process_queue.position is None
        assert queue_info(client).commit_offset == -1
        answers = client.heartbeat.consumers["g"].answers
        assert answers is not None
        assert answers.consumer_offsets("") == {}


async def test_start_by_time_is_reported_as_java_writes_it(client: ClientInstance) -> None:
    await send(client, 1, queues=1)
    start = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=5.5)))
    async with open_consumer(TOPIC, group="g", start_from=start, client=client):
        properties = info(client).properties
    told = datetime.strptime(properties["consumeTimestamp"], "%Y%m%d%H%M%S").astimezone()
    assert told - start == timedelta(0)
    assert properties["consumeFromWhere"] == "CONSUME_FROM_TIMESTAMP"


async def test_queue_read_by_columns_is_reported_alike(client: ClientInstance) -> None:
    await send(client, 10, queues=1)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        table = await consumer.read_arrow(4, max_wait=1.0)
        assert table.num_rows == 4
        assert cached(queue_info(client)) == (6, 4, 9)
