"""A member that no broker answers for minutes, and then they do: it goes on where the group is."""

from collections import Counter

import pytest
import trio
from tests.support.clients import client_of
from tests.support.orders import TOPIC, send, take

from rocketrio import ClientInstance, MessageQueue, Prefetch, open_consumer
from rocketrio_broker.embedded import EmbeddedCluster

ELSEWHERE = "10.0.0.77"
QUEUE = MessageQueue(TOPIC, "broker-a", 0)
AHEAD = 10
"""Messages that each member pulls ahead here."""


@pytest.fixture
async def cluster() -> EmbeddedCluster:  # type: ignore[misc]
    """Without a slave, which could be asked instead."""
    async with EmbeddedCluster() as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("by", ["loop", "handlers"])
async def test_member_that_was_cut_off_continues_at_the_offset_of_the_others(
    client: ClientInstance, cluster: EmbeddedCluster, by: str
) -> None:
    await send(client, 1000, queues=1)
    mine: list[int] = []
    theirs: list[int] = []
    ahead = Prefetch(queue_messages=AHEAD, batch_size=AHEAD)
    async with (
        client_of(cluster, host=ELSEWHERE) as cut_off,
        open_consumer(TOPIC, group="g", client=cut_off, prefetch=ahead) as one,
        trio.open_nursery() as nursery,
    ):
        if by == "loop":
            nursery.start_soon(lambda: take(one, mine, pause=1))
        else:

            async def handle(message: object) -> None:
                mine.append(int(message.body))  # type: ignore[attr-defined]
                await trio.sleep(1)

            nursery.start_soon(lambda: one.run(handle, concurrency=1))
        await trio.sleep(60)
        for host in ("10.0.0.9", cluster.master.host):
            cluster.memory_network.partition(ELSEWHERE, host)
        known = len(mine)
        async with open_consumer(TOPIC, group="g", client=client, prefetch=ahead) as other:
            with trio.move_on_after(200):
                await take(other, theirs, pause=1)
        assert len(theirs) > 40
        cluster.memory_network.heal()
        await trio.sleep(100)
        nursery.cancel_scope.cancel()
    twice = [number for number, times in Counter(mine + theirs).items() if times > 1]
    assert set(mine) | set(theirs) >= set(range(max(mine)))
    # What was pulled ahead, and what one of them has not committed yet.
    assert len(twice) <= 2 * AHEAD + 2 * 5 + 2, (known, mine, theirs)
    assert len(mine) > known + 50


@pytest.mark.slow
async def test_member_that_was_not_replaced_keeps_its_place(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 200, queues=1)
    taken: list[int] = []
    async with (
        client_of(cluster, host=ELSEWHERE) as cut_off,
        open_consumer(TOPIC, group="g", client=cut_off, prefetch=Prefetch(batch_size=4)) as one,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(lambda: take(one, taken, pause=0.5))
        await trio.sleep(20)
        cluster.memory_network.partition(ELSEWHERE, cluster.master.host)
        await trio.sleep(200)
        cluster.memory_network.heal()
        await trio.sleep(20)
        nursery.cancel_scope.cancel()
    assert taken == list(range(200))


@pytest.mark.slow
async def test_reader_of_named_queues_is_never_moved(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 60, queues=1)
    taken: list[int] = []
    async with (
        client_of(cluster, host=ELSEWHERE) as cut_off, open_consumer(
            group="g", queues=[QUEUE], auto_commit=False, prefetch=Prefetch(queue_messages=4, batch_size=4),
            client=cut_off,
        ) as one,
        trio.open_nursery() as nursery,
    ):  # fmt: skip
        nursery.start_soon(lambda: take(one, taken, pause=1))
        await trio.sleep(10)
        cluster.memory_network.partition(ELSEWHERE, cluster.master.host)
        async with open_consumer(TOPIC, group="g", client=client) as other:
            for _ in range(50):
                await other.receive()
        await trio.sleep(60)
        cluster.memory_network.heal()
        await trio.sleep(60)
        nursery.cancel_scope.cancel()
    assert taken == list(range(60))
