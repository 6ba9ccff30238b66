"""Slow brokers: Java's figures, and what they do to the choice of a queue, all without a clock."""

import pickle

import pytest
import trio

from rocketrio import ClientInstance, open_producer
from rocketrio.producing.publish_route import PublishRoutes, queue_in_turn
from rocketrio.producing.slow_brokers import LATENCIES_5X, SlowBrokers
from rocketrio.strategies import LATENCIES_4X, LatencyTable
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.message import Message, MessageQueue

QUEUES = [MessageQueue("t", name, number) for name in "abc" for number in range(2)]


@pytest.mark.parametrize(
    ("table", "latency", "pause"),
    [
        (LATENCIES_5X, 0.0, 0.0),
        (LATENCIES_5X, 0.549, 0.0),
        (LATENCIES_5X, 0.55, 2.0),
        (LATENCIES_5X, 1.8, 5.0),
        (LATENCIES_5X, 4.0, 6.0),
        (LATENCIES_5X, 5.0, 10.0),
        (LATENCIES_5X, 60.0, 30.0),
        (LATENCIES_4X, 0.55, 30.0),
        (LATENCIES_4X, 1.0, 60.0),
        (LATENCIES_4X, 2.5, 120.0),
        (LATENCIES_4X, 14.9, 180.0),
        (LATENCIES_4X, 15.0, 600.0),
    ],
)
def test_pause_follows_from_the_latency(table: LatencyTable, latency: float, pause: float) -> None:
    assert table.pause(latency) == pause


@pytest.mark.parametrize(("table", "pause"), [(LATENCIES_5X, 10.0), (LATENCIES_4X, 600.0)])
def test_failure_counts_as_a_long_latency(table: LatencyTable, pause: float) -> None:
    slow = SlowBrokers(table)
    slow.failed("a", now=100.0)
    assert slow.is_slow("a", now=100.0 + pause - 0.01)
    assert not slow.is_slow("a", now=100.0 + pause)


def test_quick_answer_makes_a_broker_fine_again() -> None:
    slow = SlowBrokers(LATENCIES_5X)
    slow.answered("a", latency=20.0, now=0.0)
    assert slow.is_slow("a", now=1.0)
    slow.answered("a", latency=0.001, now=1.0)
    assert not slow.is_slow("a", now=1.0)


def test_table_that_makes_no_sense_is_refused() -> None:
    for latencies, pauses in [((1.0, 0.5), (0.0, 1.0)), ((0.5,), ()), ((-1.0,), (0.0,))]:
        with pytest.raises(ConfigError):
            LatencyTable(latencies, pauses)


def test_latency_table_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(LATENCIES_4X)) == LATENCIES_4X


def chosen(
    turn: int = 0, *, last: str | None = None, avoided: str = "", slow: SlowBrokers | None = None
) -> MessageQueue:
    return queue_in_turn(
        QUEUES,
        turn,
        last_broker=last,
        is_avoided=lambda queue: queue.broker_name in avoided,
        slow=slow,
        now=10.0,
    )


def slow_until(**until: float) -> SlowBrokers:
    return SlowBrokers(LATENCIES_5X, dict(until))


def test_queues_are_taken_in_turn() -> None:
    assert [chosen(turn) for turn in range(8)] == [*QUEUES, *QUEUES[:2]]


def test_slow_broker_is_passed_over() -> None:
    slow = slow_until(a=20.0)
    assert [chosen(turn, slow=slow).broker_name for turn in range(6)] == list("bbbbcc")


def test_of_slow_brokers_the_first_to_be_fine_again_is_taken() -> None:
    slow = slow_until(a=30.0, b=12.0, c=20.0)
    assert {chosen(turn, slow=slow).broker_name for turn in range(6)} == {"b"}
    assert chosen(last="b", slow=slow).broker_name == "c"


def test_slow_broker_is_better_than_one_that_cannot_be_reached() -> None:
    slow = slow_until(a=30.0)
    assert chosen(slow=slow, avoided="bc").broker_name == "a"


def test_broker_that_just_failed_the_message_is_the_last_choice() -> None:
    assert chosen(last="a", avoided="bc", slow=slow_until(b=30.0)).broker_name == "b"
    assert chosen(last="a").broker_name == "b"
    only = QUEUES[:2]
    queue = queue_in_turn(
        only, 1, last_broker="a", is_avoided=lambda _: True, slow=slow_until(a=30.0), now=0.0
    )
    assert queue == only[1]


async def test_producer_leaves_a_broker_that_answered_late(client: ClientInstance) -> None:
    async with open_producer(client=client, avoid_slow_brokers=True) as producer:
        slow = producer._sender._slow_brokers
        assert slow is not None
        await producer.send(Message("orders", b""))
        assert not slow.is_slow("broker-a", now=trio.current_time())
        slow.answered("broker-a", latency=1.0, now=trio.current_time())
        routes = producer._sender.routes
        assert routes.cached("orders") is not None
        assert routes.next_cached("orders") is None
        assert (await producer.send(Message("orders", b""))).queue.broker_name == "broker-a"
        assert not slow.is_slow("broker-a", now=trio.current_time())


async def test_failed_send_makes_a_broker_slow(client: ClientInstance) -> None:
    async with open_producer(
        client=client, avoid_slow_brokers=LATENCIES_5X, retries=0, timeout=0.5
    ) as producer:
        sent = await producer.send(Message("orders", b""))
        assert producer._sender._slow_brokers is not None
        with pytest.raises(Exception, match="orders"):
            await producer.send(
                Message("orders", b""), queue=MessageQueue("orders", "broker-a", 99)
            )
        assert producer._sender._slow_brokers.is_slow(
            sent.queue.broker_name, now=trio.current_time()
        )


async def test_nothing_is_measured_unless_asked_for(client: ClientInstance) -> None:
    async with open_producer(client=client) as producer:
        assert producer._sender._slow_brokers is None
        assert PublishRoutes(client).slow_brokers is None
