"""What `rocketrio top` shows of a cluster in memory."""

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from tests.support.clients import client_of, open_client
from trio.testing import MockClock

from rocketrio import Message, open_admin, open_consumer, open_producer
from rocketrio.admin.top import (
    TREND_LENGTH,
    ClusterSampler,
    GroupSampler,
    Rates,
    TopicSampler,
    Trends,
)
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.errors import NotReachableError


@given(st.integers(0, 1000), st.integers(0, 1000), st.floats(0.1, 100))
def test_rate_is_what_was_added_since_the_last_sample(
    first: int, more: int, seconds: float
) -> None:
    rates = Rates()
    assert rates.of("a", first, 0.0) is None
    assert rates.of("b", 5, 0.0) is None
    assert rates.of("a", first + more, seconds) == pytest.approx(more / seconds)


def test_rate_is_unknown_after_an_unknown_count_and_after_a_restart() -> None:
    rates = Rates()
    rates.of("a", 10, 0.0)
    assert rates.of("a", None, 1.0) is None
    assert rates.of("a", 20, 2.0) is None
    assert rates.of("a", 3, 3.0) is None
    assert rates.of("a", 5, 4.0) == 2.0


def test_trend_has_the_last_samples_and_none_for_what_was_not_found() -> None:
    trends = Trends()
    trends.add({"a": 1})
    trends.add({"a": None, "b": 7})
    trends.add({"b": 8})
    trends.add({"a": 4, "b": 9})
    assert (trends.of("a"), trends.of("b")) == ((1, None, None, 4), (7, 8, 9))
    for number in range(100):
        trends.add({"a": number})
    assert trends.of("a") == tuple(range(100 - TREND_LENGTH, 100))


@given(st.lists(st.sampled_from("abcdefgh"), min_size=TREND_LENGTH, max_size=60))
def test_trends_forget_what_no_remembered_sample_has_found(found: list[str]) -> None:
    trends = Trends()
    for name in found:
        trends.add({name: 5})
    remembered = set(found[-TREND_LENGTH:])
    assert {name for name in "abcdefgh" if trends.of(name)} == remembered


async def test_trend_of_a_group_has_a_gap_while_brokers_or_name_servers_are_silent(
    autojump_clock: MockClock,
) -> None:
    async with (
        EmbeddedCluster() as cluster,
        client_of(cluster) as client,
        open_admin(client=client) as admin,
        open_producer(client=client) as producer,
    ):
        await admin.create_topic("orders", queues=1)
        await producer.send(Message("orders", b"x"))
        async with open_consumer(
            "orders", group="billing", start_from="earliest", client=client
        ) as consumer:
            await consumer.receive()
            await consumer.commit()
        sampler = GroupSampler(admin)

        async def trends() -> list[tuple[int | None, ...]]:
            await trio.sleep(5)
            rows = (await sampler.sample()).rows
            return [row["trend"] for row in rows if row["topic"] == "orders"]

        assert await trends() == [(0,)]
        await producer.send(Message("orders", b"x"))
        assert await trends() == [(0, 1)]
        cluster.silence(cluster.master)
        assert await trends() in ([], [(0, 1, None)])
        cluster.heal()
        await producer.send(Message("orders", b"x"))
        assert await trends() == [(0, 1, None, 2)]
        await cluster.kill_name_server()
        with pytest.raises(NotReachableError):
            await sampler.sample()
        await trio.sleep(1)  # The address is free then.
        await cluster.restart_name_server()
        while len(found := await trends()) == 0:  # Until the broker has registered again.
            pass
        assert found == [(0, 1, None, 2, None, 2)]


@pytest.mark.slow
async def test_looks_at_a_cluster_in_memory(autojump_clock: MockClock) -> None:
    async with (
        EmbeddedCluster(slaves=1) as cluster,
        client_of(cluster) as client,
        open_admin(client=client) as admin,
        open_producer(client=client) as producer,
    ):
        await admin.create_topic("orders", queues=2)
        samplers = ClusterSampler(admin), GroupSampler(admin), TopicSampler(admin)
        *_, topics = [await one.sample() for one in samplers]
        assert [row["lag"] for row in topics.rows] == ["-"]  # No group has read it.
        async with open_consumer(
            "orders", group="billing", start_from="earliest", client=client
        ) as consumer:
            for _ in range(2):  # One for each queue.
                await producer.send(Message("orders", b"x"))
                await consumer.receive()
            await consumer.commit()
        for _ in range(28):
            await producer.send(Message("orders", b"x"))
        for _ in range(3):
            await samplers[1].sample()
            await trio.sleep(5)
        brokers, groups, topics = [await one.sample() for one in samplers]
        assert [row["role"] for row in brokers.rows] == ["async-master", "slave"]
        assert brokers.rows[0]["in/s"] > 0
        [row] = [row for row in groups.rows if row["topic"] == "orders"]
        assert (row["group"], row["members"], row["verdict"]) == ("billing", 0, "stopped")
        [topic] = topics.rows
        assert (topic["topic"], topic["queues"], topic["messages"]) == ("orders", 2, 30)
        assert topic["lag"] == 28
        assert topic["in/s"] > 0

        cluster.silence(cluster.master)
        brokers, groups, topics = [await one.sample() for one in samplers]
        assert brokers.rows[0]["in/s"] is None
        assert cluster.master.config.listen in brokers.silent
        assert list(groups.silent) == list(topics.silent) == ["broker-a"]
        assert topics.rows == []


async def test_sample_without_a_name_server_is_an_error(autojump_clock: MockClock) -> None:
    async with (
        EmbeddedCluster() as cluster,
        open_client(name_servers=["10.0.0.77:9876"], dial=cluster.dial) as client,
        open_admin(client=client) as a,
    ):
        for sampler in (ClusterSampler(a), GroupSampler(a), TopicSampler(a)):
            with pytest.raises(NotReachableError):
                await sampler.sample()
