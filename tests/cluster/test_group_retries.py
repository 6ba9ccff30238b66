"""Groups that fail and come back, over a master that is killed: all is handled, in the end or as a dead letter."""

from collections import Counter

import pytest
import trio
from tests.support.clients import client_of
from tests.support.clocks import run_in_virtual_time

from rocketrio import (
    ClientInstance,
    Message,
    MessageExt,
    MessageQueue,
    Prefetch,
    open_admin,
    open_consumer,
    open_producer,
)
from rocketrio_broker.embedded import EmbeddedCluster

TOPIC = "orders"
GROUP = "billing"
COUNT = 100


async def send_all(client: ClientInstance) -> None:
    async with open_admin(client=client) as admin:
        await admin.create_topic(TOPIC, queues=4)
    async with open_producer(client=client) as producer:
        for number in range(COUNT):
            queue = MessageQueue(TOPIC, "broker-a", number % 4)
            await producer.send(Message(TOPIC, b"%d" % number), queue=queue)


class Work:
    """A handler that fails every third message the first time, and message 7 always."""

    def __init__(self) -> None:
        self.done: Counter[int] = Counter()
        self.attempts: Counter[int] = Counter()

    async def __call__(self, message: MessageExt) -> None:
        number = int(message.body)
        self.attempts[number] += 1
        await trio.sleep(0.2)
        if number == 7 or (number % 3 == 0 and not message.reconsume_times):
            raise RuntimeError(f"no luck with {number}")
        self.done[number] += 1


async def member(cluster: EmbeddedCluster, work: Work, *, life: float) -> None:
    async with (
        client_of(cluster) as own,
        open_consumer(
            TOPIC, group=GROUP, start_from="earliest", max_reconsume_times=2, client=own
        ) as consumer,
    ):
        with trio.move_on_after(life):
            await consumer.run(work, concurrency=3)


@pytest.mark.slow
@pytest.mark.trio(run=run_in_virtual_time)
async def test_every_message_is_handled_over_members_that_go_and_a_master_that_is_killed() -> None:
    work = Work()
    async with (
        EmbeddedCluster(slaves=1, slave_read_enable=True, role="sync-master") as cluster,
        client_of(cluster) as client,
    ):
        await send_all(client)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: member(cluster, work, life=300))
            await trio.sleep(2)
            nursery.start_soon(lambda: member(cluster, work, life=5))
            await trio.sleep(3)
            await cluster.kill_master()
            await trio.sleep(20)
            await cluster.master.start()
            await trio.sleep(10)
            nursery.start_soon(lambda: member(cluster, work, life=60))
        async with open_admin(client=client) as admin:
            letters = await admin.dead_letters(GROUP).messages()
    assert set(work.done) == set(range(COUNT)) - {7}
    assert {message.body for message in letters} == {b"7"}
    # Again came what failed, and what was in work when a queue moved or the master went.
    assert sum(work.done.values()) < COUNT * 1.5


@pytest.mark.slow
@pytest.mark.trio(run=run_in_virtual_time)
async def test_run_far_behind_stays_within_its_budget() -> None:
    budget, size = 300_000, 1_000
    handled = most = 0

    async def handle(message: MessageExt) -> None:
        nonlocal handled, most
        (used,) = {queue.budget.used for queue in consumer._assigned.queues.values()}
        most = max(most, used)
        handled += 1
        await trio.sleep(0.05)

    async with EmbeddedCluster() as cluster, client_of(cluster) as client:
        async with open_admin(client=client) as admin:
            await admin.create_topic(TOPIC, queues=32)
        async with open_producer(client=client) as producer, producer.pipeline() as pipeline:
            for number in range(2000):
                queue = MessageQueue(TOPIC, "broker-a", number % 32)
                await pipeline.send(Message(TOPIC, bytes(size)), queue=queue)
        async with open_consumer(
            TOPIC,
            group=GROUP,
            start_from="earliest",
            prefetch=Prefetch(total_bytes=budget),
            client=client,
        ) as consumer:
            with trio.move_on_after(60):
                await consumer.run(handle, concurrency=5)
            await consumer.commit()
            lag = await consumer.lag()
    assert handled == 2000
    assert set(lag.values()) == {0}
    assert budget / 2 < most <= budget
