"""How fast a consumer says it is: by topic, over the last minute, and failed messages over the last hour."""

from datetime import timedelta
from functools import partial

import pytest
import trio
from tests.support.orders import TOPIC, receive, send
from trio.testing import MockClock

from rocketrio import ClientInstance, ConsumeLater, MessageExt, MessageQueue, open_consumer
from rocketrio.consuming.consume_rates import HOUR, MINUTE, ConsumeRates
from rocketrio.consuming.consumer import Consumer
from rocketrio.consuming.process_queue import ProcessQueue
from rocketrio.consuming.running_info import RunningMember
from rocketrio_protocol.bodies.running_info import ConsumeStatus
from rocketrio_protocol.names import retry_topic

QUEUE = MessageQueue(TOPIC, "broker-a", 0)


def status(consumer: Consumer, topic: str = TOPIC) -> ConsumeStatus:
    answers = consumer.client.heartbeat.consumers[consumer.group].answers
    assert isinstance(answers, RunningMember)
    answers.rates.sample()
    return answers.rates.status(topic)


class Counted:
    """The rates of one queue, whose counts a test makes up; no cluster, so that an hour costs nothing."""

    def __init__(self) -> None:
        self.queue = ProcessQueue(QUEUE)
        self.queue.start(0)
        self.queues = {QUEUE: self.queue}
        self.rates = ConsumeRates(self.queues, lambda queue: queue.position)

    def status(self) -> ConsumeStatus:
        self.rates.sample()
        return self.rates.status(TOPIC)


async def test_without_messages_all_is_zero(autojump_clock: MockClock) -> None:
    counted = Counted()
    assert counted.status() == ConsumeStatus()
    await trio.sleep(MINUTE)
    assert counted.status() == ConsumeStatus()


@pytest.mark.parametrize("look_every", [1, 5, 10])
async def test_rates_are_those_of_the_last_minute(
    autojump_clock: MockClock, look_every: int
) -> None:
    counted = Counted()
    counts = counted.queue.counts
    for rate in (4, 2):
        for second in range(60):
            counts.pulls += 1
            counts.pull_seconds += 0.25
            counts.pulled += rate
            await trio.sleep(1)
            if second % look_every == look_every - 1:
                counted.rates.sample()
        told = counted.status()
        assert (told.pull_tps, told.consume_ok_tps, told.pull_rt) == (rate, rate, 250)
    await trio.sleep(MINUTE)
    assert counted.status() == ConsumeStatus()


async def test_failed_messages_are_those_of_the_last_hour(autojump_clock: MockClock) -> None:
    counted = Counted()
    for _ in range(24):
        counted.queue.counts.failed += 1
        for _ in range(30):
            await trio.sleep(10)
            counted.rates.sample()
    told = counted.status()
    assert told.consume_failed_msgs == 12
    assert told.consume_failed_tps == 0
    await trio.sleep(HOUR)
    assert counted.status().consume_failed_msgs == 0


@pytest.mark.slow
async def test_rate_of_a_minute_does_not_depend_on_how_often_it_is_read(
    autojump_clock: MockClock,
) -> None:
    counted = Counted()
    for _ in range(7000):
        counted.queue.counts.pulled += 1
        await trio.sleep(0.01)
        counted.rates.sample()
    assert counted.status().pull_tps == pytest.approx(100, rel=0.01)
    assert len(counted.rates._minute._samples) <= 62


async def test_what_a_lost_queue_counted_stays(autojump_clock: MockClock) -> None:
    counted = Counted()
    counted.queue.counts.pulled = 30
    await trio.sleep(10)
    counted.rates.sample()
    del counted.queues[QUEUE]
    assert counted.status().pull_tps == 3
    counted.queues[QUEUE] = ProcessQueue(QUEUE)  # Ours again, and counted from zero.
    assert counted.status().pull_tps == 3


async def test_queue_has_moved_if_a_sample_saw_it_move(autojump_clock: MockClock) -> None:
    counted = Counted()
    begin = trio.current_time()
    await trio.sleep(10)
    counted.rates.sample()
    assert counted.rates.moved_at(counted.queue) == begin
    counted.queue.counts.pulled += 1
    await trio.sleep(10)
    counted.rates.sample()
    await trio.sleep(10)
    counted.rates.sample()
    assert counted.rates.moved_at(counted.queue) == begin + 20
    assert counted.rates.owned_since(counted.queue) == begin


async def test_rates_have_pulled_and_received_messages(client: ClientInstance) -> None:
    await send(client, 120)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        await trio.sleep(10)
        told = status(consumer)
        assert told.pull_tps == pytest.approx(12, rel=0.1)
        assert told.consume_ok_tps == 0
        assert told.pull_rt < 1000
        await receive(consumer, 60)
        told = status(consumer)
        assert told.consume_ok_tps == pytest.approx(6, rel=0.1)
        assert (told.consume_rt, told.consume_failed_msgs) == (0, 0)


async def test_time_of_a_message_is_that_of_its_handler(client: ClientInstance) -> None:
    await send(client, 200)

    async def handle(message: MessageExt) -> None:
        await trio.sleep(0.7)

    async with (
        open_consumer(TOPIC, group="g", client=client) as consumer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(partial(consumer.run, handle, concurrency=4))
        await trio.sleep(20)
        told = status(consumer)
        nursery.cancel_scope.cancel()
    assert told.consume_ok_tps == pytest.approx(4 / 0.7, rel=0.1)
    assert told.consume_rt == pytest.approx(700, rel=0.1)


async def test_failed_messages_are_no_done_ones(client: ClientInstance) -> None:
    await send(client, 30, queues=1)

    async def handle(message: MessageExt) -> None:
        if int(message.body) % 3 == 0:
            raise (
                ConsumeLater(timedelta(hours=2)) if int(message.body) % 2 else ValueError("no good")
            )

    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        with trio.move_on_after(10):
            await consumer.run(handle)
        told = status(consumer)
        assert told.consume_ok_tps == pytest.approx(20 / 10, rel=0.1)
        assert told.consume_failed_tps == pytest.approx(10 / 10, rel=0.1)
        assert told.consume_failed_msgs == 10


async def test_rates_of_an_orderly_consumer_count_each_failed_try(client: ClientInstance) -> None:
    await send(client, 5, queues=1)
    tries = 0

    async def handle(message: MessageExt) -> None:
        nonlocal tries
        if message.body == b"2" and (tries := tries + 1) <= 4:
            raise ConsumeLater

    async with open_consumer(TOPIC, group="g", orderly=True, client=client) as consumer:
        with trio.move_on_after(10):
            await consumer.run(handle)
        told = status(consumer)
    assert told.consume_failed_msgs == 4
    assert told.consume_ok_tps == pytest.approx(5 / 10, rel=0.1)


async def test_what_a_loop_hands_back_has_failed(client: ClientInstance) -> None:
    await send(client, 4, queues=1)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        message = await consumer.receive()
        await consumer.retry(message, timedelta(seconds=1))
        await receive(consumer, 3)
        await trio.sleep(10)
        told = status(consumer)
        assert told.consume_failed_msgs == 1
        assert told.consume_ok_tps == pytest.approx(3 / 10, rel=0.2)
        with trio.fail_after(60):
            again = await consumer.receive()  # By way of the retry topic.
        await consumer.retry(again)
        assert status(consumer).consume_failed_msgs == 1
        assert status(consumer, retry_topic("g")).consume_failed_msgs == 1


async def test_messages_pulled_but_dropped_count_as_not_consumed(client: ClientInstance) -> None:
    await send(client, 60, queues=1)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        await receive(consumer, 10)
        consumer._settle()
        consumer.pause()
        consumer.resume()
        await receive(consumer, 10)
        consumer.seek(QUEUE, 50)
        await receive(consumer, 10)
        await trio.sleep(10)
        told = status(consumer)
    assert told.consume_ok_tps == pytest.approx(30 / 10, rel=0.15)
    assert told.pull_tps > 8
