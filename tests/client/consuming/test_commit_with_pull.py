"""Progress that pulls take along: a member that is killed repeats little, and nothing that is newer is undone."""

from collections.abc import Iterator
from itertools import count, islice
from typing import Any

import pytest
import trio
from tests.client.consuming.offset_stores import QUEUE, at, commit
from tests.support.clients import client_of
from tests.support.orders import TOPIC, committed, receive, send, take
from tests.support.raw_server import server_and_client
from trio.testing import MockClock

from rocketrio import ClientInstance, Consumer, Message, MessageQueue, open_consumer, open_producer
from rocketrio.consuming.offset_store import RemoteBrokerOffsetStore
from rocketrio.consuming.pull import PullAPIWrapper
from rocketrio_broker.embedded import EmbeddedCluster

ELSEWHERE = "10.0.0.77"
QUEUES = 4
RATE = 25
"""Messages a second."""
UNTIL_KILLED = 13.7
"""Seconds; far from a round of commits, which comes every five."""


async def produce(client: ClientInstance, numbers: Iterator[int]) -> None:
    async with open_producer(client=client) as producer:
        for number in numbers:
            queue = MessageQueue(TOPIC, "broker-a", number % QUEUES)
            await producer.send(Message(TOPIC, b"%d" % number), queue=queue)
            await trio.sleep(1 / RATE)


async def handle_all(consumer: Consumer, taken: list[int], work: float) -> None:
    async def handle(message: Any) -> None:
        await trio.sleep(work)
        taken.append(int(message.body))

    await consumer.run(handle, concurrency=4)


@pytest.mark.slow
@pytest.mark.parametrize("how", [take, handle_all])
async def test_a_killed_member_repeats_little(
    client: ClientInstance, cluster: EmbeddedCluster, how: Any
) -> None:
    await send(client, 0, queues=QUEUES)
    numbers = count()
    first: list[int] = []
    second: list[int] = []
    async with trio.open_nursery() as killed:

        async def member() -> None:
            async with (
                client_of(cluster, host=ELSEWHERE) as its_client,
                open_consumer(TOPIC, group="g", client=its_client) as consumer,
            ):
                await how(consumer, first, 0.01)

        killed.start_soon(member)
        killed.start_soon(produce, client, numbers)
        await trio.sleep(UNTIL_KILLED)
        # Nothing of what it says at its end comes through.
        cluster.memory_network.silence(ELSEWHERE)
        cluster.memory_network.cut(ELSEWHERE)
        handled = set(first)
        killed.cancel_scope.cancel()
    last = set(islice(numbers, QUEUES))
    await produce(client, iter(sorted(last)))
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        with trio.fail_after(200):  # Until the broker takes the first for dead.
            while not last <= set(second):
                second += await receive(consumer, 1)
    assert len(handled) > 200
    # Nothing is skipped; the last number was perhaps not sent any more when it was drawn.
    assert handled | set(second) >= set(range(min(last) - 1))
    assert (
        len(handled & set(second)) <= 4 * QUEUES
    )  # One a queue; by the period alone it would be a hundred.


async def test_without_automatic_commits_pulls_commit_nothing(client: ClientInstance) -> None:
    await send(client, 100, queues=1)
    async with open_consumer(TOPIC, group="g", client=client, auto_commit=False) as consumer:
        for _ in range(50):
            await consumer.receive()
        await consumer.commit({next(iter(consumer.assignment)): 5})
        await send(client, 10, start=100, queues=1)
        await trio.sleep(30)
        assert await committed(consumer) == {0: 5}


async def pull(store: RemoteBrokerOffsetStore) -> None:
    await PullAPIWrapper(store.client, "g").pull_kernel(
        QUEUE,
        0,
        commit=lambda addr: store.with_pull(QUEUE, addr),
        epoch=store.epoch(QUEUE),
        suspend_timeout=0.0,
    )


@pytest.fixture
def master(cluster: EmbeddedCluster) -> str:
    return cluster.master.broker.address


async def taken_over(store: RemoteBrokerOffsetStore) -> None:
    """As a fetcher does."""
    stored = await store.read_offset(QUEUE, zero_if_young=False)
    store.set_epoch(QUEUE, stored.epoch)


async def test_a_pull_commits_what_is_noted_and_the_next_commit_confirms_it(
    store: RemoteBrokerOffsetStore, master: str
) -> None:
    await taken_over(store)
    store.update_offset(QUEUE, 7)
    await pull(store)
    assert await at(store, master) == 7
    store.update_offset(QUEUE, 9)
    await pull(store)
    assert await at(store, master) == 9
    await store.persist(QUEUE)
    assert store.with_pull(QUEUE, master) is None  # It is confirmed.


async def test_a_pull_undoes_no_reset_and_nothing_of_the_next_owner(
    store: RemoteBrokerOffsetStore, cluster: EmbeddedCluster, master: str
) -> None:
    await taken_over(store)
    await commit(store, 50)
    api = store.client.api
    await api.update_consumer_offset(master, "g", QUEUE, 10, reset=True)
    store.update_offset(QUEUE, 60)
    await pull(store)
    assert await at(store, master) == 10
    store.claim_again(QUEUE)
    await taken_over(store)
    await commit(store, 61)
    claimed = await api.claim_queue(master, "g", QUEUE, "another-client")
    assert claimed.ownership is not None
    store.update_offset(QUEUE, 70)
    await pull(store)
    assert await at(store, master) == 61  # It is not ours any more: an answered commit decides.


async def test_a_seek_that_is_not_committed_yet_travels_with_no_pull(
    store: RemoteBrokerOffsetStore, master: str
) -> None:
    await taken_over(store)
    epoch = store.epoch(QUEUE)
    await commit(store, 50)
    store.reset_offset(QUEUE, 20)
    assert store.with_pull(QUEUE, master) is None
    await store.persist(QUEUE)
    store.set_epoch(QUEUE, epoch)  # As the next pull's answer says.
    store.update_offset(QUEUE, 21)
    await pull(store)
    assert await at(store, master) == 21


async def test_pull_from_an_apache_broker_has_no_commit(autojump_clock: MockClock) -> None:
    """It stores whatever comes, in whatever order its threads get to it."""
    async with server_and_client() as (server, client):
        server.serve_idle(client, 5, 15)
        async with open_consumer("orders", group="g", client=client):
            await trio.sleep(60)
        pulls = [header["extFields"] for header, _ in server.of(11)]
        assert len(pulls) > 4
        assert {fields["commitOffset"] for fields in pulls} == {"0"}
        assert not any("rocketrioOwnership" in fields for fields in pulls)
        assert not any(int(fields["sysFlag"]) & 1 for fields in pulls)
