"""Reads while brokers fall silent, close, crawl and come back: exact virtual times."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
import trio.testing
from tests.support.orders import TOPIC, send

from rocketrio import ClientInstance, MessageQueue, Prefetch, open_consumer
from rocketrio.consuming.pull import PullAPIWrapper
from rocketrio.routing import PullReason
from rocketrio_broker.embedded import CLIENT_HOST, EmbeddedCluster

pytestmark = pytest.mark.usefixtures("slave")

QUEUE = MessageQueue(TOPIC, "broker-a", 0)


@attrs.define
class Held:
    """One held pull after another: who answered, and when."""

    wrapper: PullAPIWrapper
    answers: list[tuple[float, int]] = attrs.Factory(list)
    started: float = 0.0

    async def run(self) -> None:
        self.started = trio.current_time()
        while True:
            result = await self.wrapper.pull_kernel(QUEUE, 1)
            self.answers.append((trio.current_time() - self.started, result.broker_id))

    def node(self) -> int:
        """Where the pull under way is held."""
        return self.wrapper.nodes.counts[QUEUE].last.found.broker_id


@asynccontextmanager
async def held_pull(client: ClientInstance) -> AsyncIterator[Held]:
    await send(client, 1, queues=1)
    await trio.sleep(3)
    held = Held(PullAPIWrapper(client, "g"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(held.run)
        await trio.sleep(0.25)
        yield held
        nursery.cancel_scope.cancel()


async def moved_after(held: Held, to: int, *, limit: float = 60.0) -> float:
    """Seconds from now until the pull is held at that broker id."""
    before = trio.current_time()
    for _ in range(round(limit / 0.01)):
        if held.node() == to:
            return trio.current_time() - before
        await trio.sleep(0.01)
    raise AssertionError(f"held at {held.node()} after {limit} s")


def partition(cluster: EmbeddedCluster) -> None:
    cluster.memory_network.partition(cluster.master.host, CLIENT_HOST)


def partition_one_way(cluster: EmbeddedCluster) -> None:
    cluster.memory_network.partition(cluster.master.host, CLIENT_HOST, one_way=True)


def silence(cluster: EmbeddedCluster) -> None:
    cluster.memory_network.silence(cluster.master.host)


def crawl(cluster: EmbeddedCluster) -> None:
    cluster.memory_network.delay(cluster.master.host, CLIENT_HOST, 5.0)


def half_close(cluster: EmbeddedCluster) -> None:
    cluster.memory_network.half_close(cluster.master.host, CLIENT_HOST)
    cluster.memory_network.refuse(cluster.master.broker.address)


def cut(cluster: EmbeddedCluster) -> None:
    cluster.memory_network.cut(cluster.master.host, CLIENT_HOST)
    cluster.memory_network.refuse(cluster.master.broker.address)


@pytest.mark.parametrize(
    ("fault", "seconds"),
    [
        # The pull began at 0, the fault comes at 0.25: a question at 1, given up at 2.
        (partition, 1.75),
        (partition_one_way, 1.75),
        (silence, 1.75),
        (crawl, 1.75),
        # Heard of at once.
        (half_close, 0.0),
        (cut, 0.0),
    ],
)
async def test_held_pull_moves_to_the_slave(
    client: ClientInstance,
    cluster: EmbeddedCluster,
    fault: Callable[[EmbeddedCluster], None],
    seconds: float,
) -> None:
    async with held_pull(client) as held:
        assert held.node() == 0
        fault(cluster)
        assert await moved_after(held, 1) == pytest.approx(seconds, abs=0.02)
        assert held.wrapper.nodes.counts[QUEUE].last.reason is PullReason.SKIPPED


async def test_fault_right_after_an_answer_is_noticed_two_seconds_later(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async with held_pull(client) as held:
        await trio.sleep(0.751)  # A question was answered a moment ago: the worst time.
        partition(cluster)
        assert await moved_after(held, 1) == pytest.approx(2.0, abs=0.02)


@pytest.mark.slow
async def test_pull_is_back_at_the_master_within_five_seconds_of_its_return(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async with held_pull(client) as held:
        partition(cluster)
        await moved_after(held, 1)
        await trio.sleep(100)  # However long it was away.
        assert held.node() == 1
        cluster.memory_network.heal()
        assert await moved_after(held, 0) <= 6.0


@pytest.mark.slow
async def test_silent_master_is_not_tried_by_pulls_while_it_is_silent(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async with held_pull(client) as held:
        partition(cluster)
        await moved_after(held, 1)
        held.answers.clear()
        await trio.sleep(60)
        assert {broker_id for _, broker_id in held.answers} == {1}
        # Held five seconds each, one right after the other: no pull lost time at the master.
        assert len(held.answers) == 12


@pytest.mark.slow
async def test_healthy_broker_may_be_silent_for_as_long_as_it_likes(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async with held_pull(client) as held:
        await trio.sleep(100)
        assert held.node() == 0
        assert [broker_id for _, broker_id in held.answers] == [0] * len(held.answers)
        assert held.answers[0][0] == pytest.approx(15, abs=0.1)
        assert client.faults.count == 0


@pytest.mark.slow
async def test_slow_link_on_which_bytes_arrive_is_not_silent(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async with held_pull(client) as held:
        # The questions' answers take 0.9 s each: late, but not silent.
        cluster.memory_network.delay(cluster.master.host, CLIENT_HOST, 0.45)
        await trio.sleep(40)
        assert held.node() == 0
        assert client.faults.count == 0


async def test_without_another_replica_a_pull_waits_on(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await cluster.slaves[0].stop()
    async with held_pull(client) as held:
        await client.refresh_topic_route(TOPIC)
        cluster.memory_network.partition(cluster.master.host, CLIENT_HOST)
        await trio.sleep(2.5)
        cluster.memory_network.heal()
        await trio.sleep(12.5)
        seconds, broker_id = held.answers[0]
        assert broker_id == 0
        assert seconds == pytest.approx(15, abs=0.3)


async def test_prober_ends_when_no_caller_waits(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async with held_pull(client) as held:
        assert [each.is_probed for each in client.probes._watched.values()] == [True]
        assert held.node() == 0
    await trio.sleep(1.1)
    assert client.probes._watched == {}


async def test_one_prober_asks_for_all_pulls_of_a_connection(
    client: ClientInstance, cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send(client, 4)
    await trio.sleep(3)
    asked = 0
    original = client.probes._probe_connection

    async def counted(watched: object) -> bool:
        nonlocal asked
        asked += 1
        return await original(watched)  # type: ignore[arg-type]

    monkeypatch.setattr(type(client.probes), "_probe_connection", lambda _, each: counted(each))
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        for _ in range(4):
            await consumer.receive()
        await trio.sleep(10)
    assert 9 <= asked <= 11


async def test_consumer_continues_at_the_slave_and_reports_the_reason(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 4, queues=1)
    await trio.sleep(3)
    async with open_consumer(
        TOPIC, group="g", client=client, prefetch=Prefetch(queue_messages=1, batch_size=1)
    ) as consumer:
        await consumer.receive()
        assert consumer.statistics().queues[QUEUE].pulled_from == cluster.master.broker.address
        partition(cluster)
        before = trio.current_time()
        for _ in range(3):
            await consumer.receive()
        assert trio.current_time() - before <= 2.0
        await trio.sleep(0.5)
        statistics = consumer.statistics().queues[QUEUE]
        assert statistics.pulled_from == cluster.slaves[0].broker.address
        assert statistics.pull_reason is PullReason.SKIPPED
        assert statistics.pulls[PullReason.SKIPPED] >= 1


@pytest.mark.parametrize("turns", range(6))
async def test_pull_that_begins_while_the_client_ends_is_not_watched(
    client: ClientInstance, turns: int
) -> None:
    watch = client.probes

    async def begin_after_cancel(cancel: trio.CancelScope) -> None:
        with trio.CancelScope(shield=True):
            cancel.cancel()
            for _ in range(turns):
                await trio.lowlevel.checkpoint()
            watch.begin("10.0.0.77:10911", QUEUE).waiting -= 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.run)
        await trio.testing.wait_all_tasks_blocked()
        for number in range(4):
            watch.begin(f"10.0.1.{number}:10911", QUEUE)
        await trio.testing.wait_all_tasks_blocked()
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(begin_after_cancel, nursery.cancel_scope)
