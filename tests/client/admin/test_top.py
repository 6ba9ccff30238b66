"""What `rocketrio top` shows of a cluster in memory."""

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from tests.support.clients import client_of, open_client
from trio.testing import MockClock

from rocketrio import Message, open_admin, open_consumer, open_producer
from rocketrio.admin.top import ClusterSampler, GroupSampler, Rates, TopicSampler
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
