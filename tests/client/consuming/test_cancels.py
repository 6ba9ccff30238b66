"""Receiving, commits, runs and whole blocks, cancelled at every checkpoint: nothing is lost, nothing is done twice."""

from collections import Counter
from functools import partial

import pytest
import trio
from tests.client.checkpoints import cancelled_at
from tests.support.clients import client_of
from tests.support.orders import TOPIC, receive, send, total_committed

from rocketrio import ClientInstance, Consumer, MessageExt, Prefetch, open_consumer
from rocketrio_broker.embedded import EmbeddedCluster


async def test_receive_cancelled_anywhere_takes_nothing(client: ClientInstance) -> None:
    await send(client, 150, queues=2)
    received: list[int] = []
    async with open_consumer(
        TOPIC, group="g", client=client, prefetch=Prefetch(batch_size=3)
    ) as consumer:

        async def one() -> None:
            received.append(int((await consumer.receive()).body))

        async def some() -> None:
            received.extend(int(m.body) for m in await consumer.receive_batch(4, max_wait=0.2))

        for work in (one, some):
            number = 1
            while await cancelled_at(number, work):
                number += 1
            assert number > 1
        while len(received) < 150:
            received.extend(await receive(consumer, 1))
    assert sorted(received) == list(range(150))


async def test_commit_cancelled_anywhere_loses_nothing(client: ClientInstance) -> None:
    await send(client, 100, queues=2)
    number, is_cancelled = 1, True
    received: list[int] = []
    async with open_consumer(TOPIC, group="g", client=client, auto_commit=False) as consumer:
        while is_cancelled:
            received += await receive(consumer, 1)
            is_cancelled = await cancelled_at(number, consumer.commit)
            total = await total_committed(consumer)
            assert total <= len(received)
            number += 1
        assert total == len(received)
    assert number > 5


@pytest.mark.parametrize("orderly", [False, True])
async def test_run_cancelled_anywhere_finishes_every_message_once(
    client: ClientInstance, orderly: bool
) -> None:
    count = 400
    await send(client, count, queues=2)
    done: Counter[int] = Counter()

    async def handle(message: MessageExt) -> None:
        await trio.sleep(0.01)
        done[int(message.body)] += 1

    async def run_for_a_moment(consumer: Consumer, drain_timeout: float) -> None:
        with trio.move_on_after(0.05):
            await consumer.run(handle, concurrency=3, drain_timeout=drain_timeout)

    async with open_consumer(
        TOPIC, group="g", orderly=orderly, client=client, prefetch=Prefetch(batch_size=5)
    ) as consumer:
        number = 1
        while len(done) < count:
            await cancelled_at(
                number, partial(run_for_a_moment, consumer, drain_timeout=number % 2)
            )
            number += 1
        await consumer.commit()
        assert await total_committed(consumer) == count
    assert number > 20
    assert set(done.values()) == {1}


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.slow)])
async def test_block_cancelled_anywhere_commits_only_what_was_done(
    client: ClientInstance, cluster: EmbeddedCluster, step: int
) -> None:
    await send(client, 300, queues=2)
    done: list[int] = []

    async def handle(message: MessageExt) -> None:
        await trio.sleep(0.01)
        done.append(int(message.body))

    async def block() -> None:
        async with (
            client_of(cluster) as own,
            open_consumer(TOPIC, group="g", client=own) as consumer,
        ):
            with trio.move_on_after(0.04):
                await consumer.run(handle, concurrency=2, drain_timeout=1)

    number = 1
    while await cancelled_at(number, block):
        number += step
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        rest: list[int] = []
        with trio.move_on_after(5):
            while True:
                rest += await receive(consumer, 1)
    assert sorted(set(done) | set(rest)) == list(range(300))
    assert number > 50
