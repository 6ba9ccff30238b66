"""Handlers: side by side, failing, and at the end."""

import asyncio
from collections import Counter
from datetime import timedelta

import pytest
import trio
from tests.support.clients import client_of
from tests.support.orders import (
    TOPIC,
    committed,
    receive,
    send,
    total_committed,
)

from rocketrio import (
    GIVE_UP,
    ClientInstance,
    ClosedError,
    ConsumeLater,
    Consumer,
    MessageExt,
    MessageQueue,
    open_admin,
    open_consumer,
)
from rocketrio.consuming.process_queue import CONSUME_MAX_SPAN
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.errors import BrokerError, ConfigError
from rocketrio_protocol.names import dead_letter_topic


class Handled:
    """A handler that notes what it is given."""

    def __init__(self, *, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.done: list[int] = []
        self.at_once = self.most_at_once = 0

    async def __call__(self, message: MessageExt) -> None:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await trio.sleep(self.seconds)
        finally:
            self.at_once -= 1
        self.done.append(int(message.body))


async def test_every_message_is_handled_some_at_a_time(client: ClientInstance) -> None:
    await send(client, 100)
    handled = Handled(seconds=0.1)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        with trio.move_on_after(3):
            await consumer.run(handled, concurrency=7)
        assert sorted(handled.done) == list(range(100))
        assert handled.most_at_once == 7
        await consumer.commit()
        assert await total_committed(consumer) == 100


async def test_handler_without_a_pause_of_its_own_can_be_stopped(client: ClientInstance) -> None:
    await send(client, 1000, queues=1)
    seen: list[int] = []

    async def handle(message: MessageExt) -> None:
        seen.append(int(message.body))
        if len(seen) == 200:
            scope.cancel()

    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        with trio.CancelScope() as scope:
            await consumer.run(handle, concurrency=2)
        assert 200 <= len(seen) < 400
        assert consumer.position(MessageQueue(TOPIC, "broker-a", 0)) == len(seen)


async def test_progress_is_the_lowest_unfinished_message(client: ClientInstance) -> None:
    await send(client, 20, queues=1)
    release = trio.Event()

    async def handle(message: MessageExt) -> None:
        if message.body == b"3":
            await release.wait()

    async with open_consumer(TOPIC, group="g", client=client) as consumer, trio.open_nursery() as n:
        n.start_soon(lambda: consumer.run(handle, concurrency=4))
        await trio.sleep(6)
        assert await committed(consumer) == {0: 3}
        await consumer.commit()
        assert await committed(consumer) == {0: 3}
        release.set()
        await trio.sleep(6)
        assert await committed(consumer) == {0: 20}
        n.cancel_scope.cancel()


@pytest.mark.slow
async def test_one_message_that_is_stuck_holds_up_its_queue_and_no_memory(
    client: ClientInstance,
) -> None:
    await send(client, 8000, queues=1)
    release = trio.Event()
    queue = MessageQueue(TOPIC, "broker-a", 0)

    async def handle(message: MessageExt) -> None:
        if message.body == b"3":
            await release.wait()

    async with open_consumer(TOPIC, group="g", client=client) as consumer, trio.open_nursery() as n:
        n.start_soon(consumer.run, handle)
        await trio.sleep(20)
        process_queue = consumer._assigned.queues[queue]
        position = consumer.position(queue)
        assert position is not None
        assert CONSUME_MAX_SPAN <= position < 2 * CONSUME_MAX_SPAN + 1100
        assert len([place for place in process_queue.in_work if place.work is not None]) == 1
        assert process_queue.budget.used < 300_000  # One chunk, and places.
        release.set()
        await trio.sleep(5)
        assert consumer.position(queue) == 8000
        n.cancel_scope.cancel()


async def test_paused_queue_keeps_what_a_cancelled_run_left(client: ClientInstance) -> None:
    await send(client, 10, queues=1)

    async def stuck(message: MessageExt) -> None:
        if message.body in (b"1", b"4"):
            await trio.sleep_forever()

    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        with trio.move_on_after(1):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: consumer.run(stuck, concurrency=4, drain_timeout=0))
                await trio.sleep(0.5)
                consumer.pause()
                await trio.sleep_forever()
        with trio.move_on_after(3):
            raise AssertionError(await consumer.receive())
        consumer.resume()
        assert await receive(consumer, 2) == [1, 4]


@pytest.mark.slow
async def test_failed_message_comes_again_later_with_its_own_topic(client: ClientInstance) -> None:
    await send(client, 8)
    seen: list[tuple[int, str, int, float]] = []
    start = trio.current_time()

    async def handle(message: MessageExt) -> None:
        seen.append(
            (int(message.body), message.topic, message.reconsume_times, trio.current_time() - start)
        )
        if message.body == b"5" and message.reconsume_times < 2:
            raise ValueError("not today")

    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        with trio.move_on_after(60):
            await consumer.run(handle)
        again = [(topic, times, round(at, -1)) for body, topic, times, at in seen if body == 5]
        assert again == [(TOPIC, 0, 0), (TOPIC, 1, 10), (TOPIC, 2, 40)]  # 10 s, then 30 s.
        assert len(seen) == 10
        assert len(consumer.assignment) == 4
        assert set(consumer.statistics().queues) == set(consumer.assignment)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        with trio.move_on_after(60):
            raise AssertionError(await consumer.receive())


async def test_handler_may_choose_the_delay(client: ClientInstance) -> None:
    await send(client, 1, queues=1)
    at: list[float] = []

    async def handle(message: MessageExt) -> None:
        at.append(trio.current_time())
        if len(at) == 1:
            raise ConsumeLater(timedelta(seconds=5))

    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        with trio.move_on_after(30):
            await consumer.run(handle)
    assert at[1] - at[0] == pytest.approx(5.0, abs=1.5)


async def test_message_that_fails_too_often_is_a_dead_letter(client: ClientInstance) -> None:
    await send(client, 3, queues=1)
    attempts: Counter[int] = Counter()

    async def handle(message: MessageExt) -> None:
        attempts[int(message.body)] += 1
        if message.body == b"1":
            raise ConsumeLater(timedelta(seconds=1))
        if message.body == b"2":
            raise ConsumeLater(GIVE_UP)

    async with open_consumer(TOPIC, group="g", client=client, max_reconsume_times=3) as consumer:
        with trio.move_on_after(60):
            await consumer.run(handle)
    assert attempts == {0: 1, 1: 4, 2: 1}
    async with open_admin(client=client) as admin:
        (dead,) = (await admin.topic(dead_letter_topic("g"))).queues
    assert dead.max_offset == 2


async def test_other_members_get_what_one_handed_back(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 1, queues=1)
    async with (
        client_of(cluster) as other,
        open_consumer(TOPIC, group="g", client=client) as one,
        open_consumer(TOPIC, group="g", client=other) as two,
    ):
        await trio.sleep(1)
        seen: list[bytes] = []

        async def take(consumer: Consumer) -> None:
            async for message in consumer:
                seen.append(message.body)
                if len(seen) == 1:
                    await consumer.retry(message, timedelta(seconds=1))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(take, one)
            nursery.start_soon(take, two)
            await trio.sleep(30)
            nursery.cancel_scope.cancel()
        assert seen == [b"0", b"0"]


@pytest.mark.parametrize("namespace", ["", "n" * 60])
async def test_group_whose_messages_cannot_be_stored_again_is_refused_when_it_opens(
    cluster: EmbeddedCluster, namespace: str
) -> None:
    async with client_of(cluster, namespace=namespace) as client:
        await send(client, 1, queues=1)
        longest = 120 - len(namespace) - bool(namespace)
        with pytest.raises(BrokerError, match=r"121 characters.*120 are allowed.*shorter name"):
            async with open_consumer(TOPIC, group="g" * (longest + 1), client=client):
                pass
        attempts: list[bytes] = []

        async def handle(message: MessageExt) -> None:
            attempts.append(message.body)
            if len(attempts) == 1:
                raise ConsumeLater(timedelta(seconds=1))

        async with open_consumer(TOPIC, group="g" * longest, client=client) as consumer:
            with trio.move_on_after(30):
                await consumer.run(handle)
        assert attempts == [b"0", b"0"]


# ------------------------------------------------------------------------------------------- the end


async def test_handlers_may_finish_when_run_is_cancelled(client: ClientInstance) -> None:
    await send(client, 40, queues=2)
    handled = Handled(seconds=2)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        with trio.move_on_after(1):
            await consumer.run(handled, concurrency=5)
        assert len(handled.done) == 5
        rest = await receive(consumer, 35)
    assert sorted(handled.done + rest) == list(range(40))


async def test_handler_that_exceeds_its_time_is_cancelled_and_not_committed(
    client: ClientInstance,
) -> None:
    await send(client, 10, queues=1)
    handled = Handled(seconds=60)

    async def handle(message: MessageExt) -> None:
        if message.body != b"1":
            handled.done.append(int(message.body))
            return
        await handled(message)

    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        before = trio.current_time()
        with trio.move_on_after(1):
            await consumer.run(handle, concurrency=3, drain_timeout=4)
        assert trio.current_time() - before == pytest.approx(5, abs=0.1)
        assert sorted(handled.done) == [0, 2, 3, 4, 5, 6, 7, 8, 9]
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        assert await receive(consumer, 1) == [1]


async def test_what_was_cancelled_is_handled_first_by_the_next_run(client: ClientInstance) -> None:
    await send(client, 10, queues=1)
    seen: list[int] = []

    async def stuck(message: MessageExt) -> None:
        seen.append(int(message.body))
        if message.body in (b"1", b"4"):
            await trio.sleep_forever()

    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        with trio.move_on_after(1):
            await consumer.run(stuck, concurrency=4, drain_timeout=0)
        assert sorted(seen) == list(range(10))
        assert consumer.position(consumer.assignment[0]) == 1
        await consumer.commit()
        assert await committed(consumer) == {0: 1}
        handled = Handled()
        with trio.move_on_after(1):
            await consumer.run(handled)
        assert sorted(handled.done) == [1, 4]
        await consumer.commit()
        assert await committed(consumer) == {0: 10}


async def test_leaving_the_block_waits_for_handlers_in_another_task(client: ClientInstance) -> None:
    await send(client, 3, queues=1)
    handled = Handled(seconds=2)
    async with (
        trio.open_nursery() as nursery,
        open_consumer(TOPIC, group="g", client=client) as consumer,
    ):
        nursery.start_soon(consumer.run, handled)
        await trio.sleep(1)
    assert sorted(handled.done) == [0, 1, 2]
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        assert await consumer.committed_offset(MessageQueue(TOPIC, "broker-a", 0)) == 3
    with pytest.raises(ClosedError):
        await consumer.run(handled)


async def test_interrupt_in_a_handler_ends_the_run_when_others_are_done(
    client: ClientInstance,
) -> None:
    await send(client, 8, queues=1)
    handled = Handled(seconds=3)

    async def handle(message: MessageExt) -> None:
        if message.body == b"2":
            await trio.sleep(1)
            raise KeyboardInterrupt
        await handled(message)

    with pytest.raises(KeyboardInterrupt):
        async with open_consumer(TOPIC, group="g", client=client) as consumer:
            await consumer.run(handle, concurrency=4)
    assert sorted(handled.done) == [0, 1, 3]
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        assert await receive(consumer, 1) == [2]


async def test_second_interrupt_ends_without_waiting(client: ClientInstance) -> None:
    await send(client, 8, queues=1)
    task = trio.lowlevel.current_task()

    async def interrupt_twice() -> None:
        # As trio does it for the main task: an exception where it waits, whatever shields are around it.
        for _ in range(2):
            await trio.sleep(1)
            task._attempt_abort(_raise_interrupt)

    def _raise_interrupt() -> None:
        raise KeyboardInterrupt

    async def block() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(interrupt_twice)
            async with open_consumer(TOPIC, group="g", client=client) as consumer:
                await consumer.run(Handled(seconds=60), drain_timeout=30)

    before = trio.current_time()
    with pytest.raises(BaseExceptionGroup) as raised:
        await block()
    assert raised.group_contains(KeyboardInterrupt)
    assert trio.current_time() - before == pytest.approx(2, abs=0.5)


async def test_failure_without_a_group_ends_the_run(client: ClientInstance) -> None:
    await send(client, 8, queues=1)

    async def handle(message: MessageExt) -> None:
        if message.body == b"3":
            raise KeyError("three")

    queues = [MessageQueue(TOPIC, "broker-a", 0)]
    async with open_consumer(group="g", queues=queues, client=client) as consumer:
        with pytest.raises(KeyError, match="three"):
            await consumer.run(handle, concurrency=1)
        assert await receive(consumer, 2) == [3, 4]
        with pytest.raises(ConfigError, match="member of a group"):
            await consumer.retry(await consumer.receive())


async def test_wrong_use_of_run_is_refused(client: ClientInstance) -> None:
    await send(client, 1)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        with pytest.raises(ConfigError, match="concurrency=0"):
            await consumer.run(Handled(), concurrency=0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.run, Handled())
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(trio.BusyResourceError):
                await consumer.receive()
            with pytest.raises(trio.BusyResourceError):
                await consumer.run(Handled())
            nursery.cancel_scope.cancel()
    with pytest.raises(ConfigError, match="max_reconsume_times=-1"):
        async with open_consumer(TOPIC, group="h", client=client, max_reconsume_times=-1):
            pass


async def test_refused_run_takes_nothing_from_the_one_under_way(client: ClientInstance) -> None:
    await send(client, 1)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.run, Handled())
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(trio.BusyResourceError):
                await consumer.run(Handled())
            assert consumer._handlers.current is not None
            nursery.cancel_scope.cancel()
        assert consumer._handlers.current is None
        left_at = trio.current_time()
    assert trio.current_time() - left_at < 1  # There are no handlers to wait for.


async def test_handler_that_calls_asyncio_is_an_error_that_names_the_bridge(
    client: ClientInstance, caplog: pytest.LogCaptureFixture
) -> None:
    await send(client, 1, queues=1)

    async def handle(message: MessageExt) -> None:
        scope.cancel()
        await asyncio.sleep(1)

    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        with trio.CancelScope() as scope:
            await consumer.run(handle)
    assert "no running event loop" in caplog.text
    assert "rocketrio.aio" in caplog.text
