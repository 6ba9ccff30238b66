"""Handlers that get lists: what is in a list, and what of it comes again."""

from collections import Counter
from datetime import timedelta

import pytest
import trio
from tests.support.clients import client_of
from tests.support.orders import TOPIC, committed, receive, send, total_committed

from rocketrio import (
    ClientInstance,
    ConsumeLater,
    MessageExt,
    MessageQueue,
    Prefetch,
    open_admin,
    open_consumer,
)
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.names import dead_letter_topic

QUEUE = MessageQueue(TOPIC, "broker-a", 0)


def numbers(messages: list[MessageExt]) -> list[int]:
    return [int(message.body) for message in messages]


async def test_each_list_is_of_one_queue_in_order_and_full_where_it_can_be(
    client: ClientInstance,
) -> None:
    await send(client, 1000, queues=4)
    lists: list[list[int]] = []

    async def store(messages: list[MessageExt]) -> None:
        assert len({message.queue_id for message in messages}) == 1
        lists.append(numbers(messages))
        await trio.sleep(0.1)

    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        with trio.move_on_after(5):
            await consumer.run_batches(store, 100, concurrency=3)
        await consumer.commit()
        assert await total_committed(consumer) == 1000
    assert sorted(number for each in lists for number in each) == list(range(1000))
    assert all(each == sorted(each) for each in lists)
    assert sorted(map(len, lists)) == [50] * 4 + [100] * 8


async def test_lists_go_on_over_the_end_of_a_pull(client: ClientInstance) -> None:
    await send(client, 64, queues=1)
    sizes: list[int] = []

    async def store(messages: list[MessageExt]) -> None:
        sizes.append(len(messages))
        await trio.sleep(1)  # Meanwhile more is pulled.

    async with open_consumer(
        TOPIC, group="g", client=client, prefetch=Prefetch(batch_size=4)
    ) as consumer:
        await trio.sleep(1)
        with trio.move_on_after(10):
            await consumer.run_batches(store, 32, concurrency=1)
    assert sizes == [32, 32]


async def test_failed_list_comes_again_message_by_message(client: ClientInstance) -> None:
    await send(client, 6, queues=1)
    seen: Counter[int] = Counter()

    async def store(messages: list[MessageExt]) -> None:
        seen.update(numbers(messages))
        if messages[0].reconsume_times == 0:
            raise ValueError("not today")

    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        with trio.move_on_after(30):
            await consumer.run_batches(store, 3)
        assert await committed(consumer) == {0: 6}
    assert seen == dict.fromkeys(range(6), 2)


async def test_handler_may_report_how_many_are_done(client: ClientInstance) -> None:
    await send(client, 5, queues=1)
    seen: list[list[int]] = []

    async def store(messages: list[MessageExt]) -> None:
        seen.append(numbers(messages))
        if len(messages) == 5:
            raise ConsumeLater(timedelta(seconds=1), done=3)

    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        with trio.move_on_after(30):
            await consumer.run_batches(store)
        assert await committed(consumer) == {0: 5}
    assert seen[0] == [0, 1, 2, 3, 4]
    assert sorted(number for each in seen[1:] for number in each) == [3, 4]


async def test_message_that_no_broker_takes_back_is_handled_again(
    client: ClientInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send(client, 4, queues=1)
    seen: list[list[int]] = []

    async def store(messages: list[MessageExt]) -> None:
        seen.append(numbers(messages))
        if len(seen) == 1:
            raise ConsumeLater(timedelta(seconds=1))

    async def taken_once(_: object, message: MessageExt, delay_level: int) -> None:
        if message.body != b"0":
            raise ConfigError("no broker today")

    monkeypatch.setattr("rocketrio.consuming.send_back.SendBack.send_back", taken_once)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        with trio.move_on_after(12):
            await consumer.run_batches(store)
        assert await committed(consumer) == {0: 4}
    assert seen == [[0, 1, 2, 3], [1, 2, 3]]


async def test_cancelled_list_is_handed_out_first_and_done_ones_are_not(
    client: ClientInstance,
) -> None:
    await send(client, 9, queues=1)

    async def store(messages: list[MessageExt]) -> None:
        if 4 in numbers(messages):
            await trio.sleep_forever()

    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        with trio.move_on_after(1):
            await consumer.run_batches(store, 3, concurrency=2, drain_timeout=0)
        await consumer.commit()
        assert await committed(consumer) == {0: 3}
        assert await receive(consumer, 3) == [3, 4, 5]
        with trio.move_on_after(3):
            raise AssertionError(await consumer.receive())


async def test_in_order_a_list_is_tried_again_in_place_without_its_dead(
    client: ClientInstance,
) -> None:
    await send(client, 8, queues=1)
    seen: list[list[tuple[int, int]]] = []

    async def store(messages: list[MessageExt]) -> None:
        seen.append([(int(message.body), message.reconsume_times) for message in messages])
        if seen[-1][0][0] == 0:
            raise ConsumeLater(done=1)
        if seen[-1][0][0] == 1:
            raise ValueError("never")

    async with open_consumer(
        TOPIC, group="g", orderly=True, max_reconsume_times=2, client=client
    ) as consumer:
        with trio.move_on_after(10):
            await consumer.run_batches(store, 3)
        assert await committed(consumer) == {0: 8}
    assert seen == [
        [(0, 0), (1, 0), (2, 0)],
        [(1, 1), (2, 1)],
        [(1, 2), (2, 2)],
        [(3, 0), (4, 0), (5, 0)],
        [(6, 0), (7, 0)],
    ]
    async with open_admin(client=client) as admin:
        (dead,) = (await admin.topic(dead_letter_topic("g"))).queues
    assert dead.max_offset == 2


async def test_queue_of_a_list_in_work_moves_when_it_is_done(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    """In order: the next owner begins behind the list, not in it."""
    await send(client, 20, queues=1)
    order: list[int] = []

    async def store(messages: list[MessageExt]) -> None:
        await trio.sleep(2)
        order.extend(numbers(messages))

    async with trio.open_nursery() as nursery:

        async def member(client_id: str, *, seconds: float) -> None:
            async with (
                client_of(cluster, client_id=client_id) as own,
                open_consumer(TOPIC, group="g", orderly=True, client=own) as consumer,
            ):
                with trio.move_on_after(seconds):
                    await consumer.run_batches(store, 5, concurrency=1)

        nursery.start_soon(lambda: member("b", seconds=30))
        await trio.sleep(3)
        nursery.start_soon(lambda: member("a", seconds=30))  # First in the order of names.
    assert order == list(range(20))


async def test_lists_are_traced_message_by_message(cluster: EmbeddedCluster) -> None:
    async with client_of(cluster, trace=True) as client:
        await send(client, 4, queues=1)

        async def store(messages: list[MessageExt]) -> None:
            await trio.sleep(1)

        async with open_consumer(TOPIC, group="g", client=client) as consumer:
            with trio.move_on_after(5):
                await consumer.run_batches(store)
        assert client.traces is not None
        await client.traces.flush()
        assert client.traces.statistics().sent == 1 + 4 + 4  # Sent together; begun and ended each.


async def test_empty_lists_are_refused(client: ClientInstance) -> None:
    await send(client, 1, queues=1)

    async def store(messages: list[MessageExt]) -> None:
        raise AssertionError

    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        with pytest.raises(ConfigError, match="max_messages=0"):
            await consumer.run_batches(store, 0)
    with pytest.raises(ConfigError, match="done=-1"):
        ConsumeLater(done=-1)
