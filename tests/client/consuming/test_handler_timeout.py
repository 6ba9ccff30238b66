"""Handlers that take too long, and those that are none."""

import functools
from typing import Any

import pytest
import trio
from tests.support.orders import TOPIC, committed, receive, send

from rocketrio import ClientInstance, MessageExt, MessageQueue, open_consumer
from rocketrio.callables import NotAwaitableError
from rocketrio_protocol.errors import ConfigError


async def test_handler_over_its_timeout_is_cancelled_and_its_message_redelivered(
    client: ClientInstance, caplog: pytest.LogCaptureFixture
) -> None:
    await send(client, 6, queues=1)
    begun: list[tuple[int, float]] = []
    start = trio.current_time()

    async def handle(message: MessageExt) -> None:
        begun.append((int(message.body), trio.current_time() - start))
        if message.body == b"2" and message.reconsume_times == 0:
            try:
                await trio.sleep_forever()
            finally:
                begun.append((-2, trio.current_time() - start))

    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        with trio.move_on_after(70):
            await consumer.run(handle, concurrency=1, handler_timeout=20)
        assert await committed(consumer) == {0: 6}
    assert [number for number, _ in begun] == [0, 1, 2, -2, 3, 4, 5, 2]
    assert begun[3][1] - begun[2][1] == pytest.approx(21, abs=1.1)
    assert "it took over 20 s" in caplog.text


@pytest.mark.slow
async def test_handler_timeout_counts_for_each_message_separately(client: ClientInstance) -> None:
    await send(client, 30, queues=1)
    done: list[int] = []

    async def handle(message: MessageExt) -> None:
        await trio.sleep(9)
        done.append(int(message.body))

    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        with trio.move_on_after(300):
            await consumer.run(handle, concurrency=1, handler_timeout=10)
    assert done == list(range(30))


@pytest.mark.slow
@pytest.mark.parametrize(("outcome", "times"), [("returns", [0]), ("fails", [0, 1])])
async def test_handler_that_finishes_despite_its_cancel_counts_as_done(
    client: ClientInstance, outcome: str, times: list[int]
) -> None:
    await send(client, 3, queues=1)
    done: list[int] = []
    tried: list[int] = []

    async def handle(message: MessageExt) -> None:
        if message.body == b"1":
            tried.append(message.reconsume_times)
            with trio.CancelScope(shield=True):
                await trio.sleep(30)
            if outcome == "fails" and message.reconsume_times == 0:
                raise ValueError("not today")
        done.append(int(message.body))

    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        with trio.move_on_after(100):
            await consumer.run(handle, concurrency=1, handler_timeout=10)
        assert await committed(consumer) == {0: 3}
    assert sorted(done) == [0, 1, 2]
    assert tried == times


async def test_orderly_handler_over_its_timeout_gets_the_same_message_again(
    client: ClientInstance,
) -> None:
    await send(client, 3, queues=1)
    seen: list[tuple[int, int]] = []

    async def handle(message: MessageExt) -> None:
        seen.append((int(message.body), message.reconsume_times))
        if message.body == b"1" and message.reconsume_times < 2:
            await trio.sleep_forever()

    async with open_consumer(TOPIC, group="g", orderly=True, client=client) as consumer:
        with trio.move_on_after(60):
            await consumer.run(handle, handler_timeout=10)
        assert await committed(consumer) == {0: 3}
    assert seen == [(0, 0), (1, 0), (1, 1), (1, 2), (2, 0)]


async def test_handler_timeout_without_a_group_ends_the_run(client: ClientInstance) -> None:
    await send(client, 2, queues=1)

    async def handle(message: MessageExt) -> None:
        await trio.sleep_forever()

    queues = [MessageQueue(TOPIC, "broker-a", 0)]
    async with open_consumer(group="g", queues=queues, client=client) as consumer:
        with pytest.raises(TimeoutError, match="it took over 5 s"):
            await consumer.run(handle, concurrency=1, handler_timeout=5)
        assert await receive(consumer, 2) == [0, 1]


@pytest.mark.parametrize("timeout", [None, True, "900", 0, -1])
async def test_handler_timeout_out_of_range_raises_config_error(
    client: ClientInstance, timeout: Any
) -> None:
    await send(client, 1, queues=1)

    async def handle(message: MessageExt) -> None:
        raise AssertionError

    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        with pytest.raises(ConfigError, match="handler_timeout="):
            await consumer.run(handle, handler_timeout=timeout)


# ------------------------------------------------------------------------------------------ none at all


async def test_run_with_a_plain_function_raises_config_error(client: ClientInstance) -> None:
    await send(client, 2, queues=1)
    met: list[MessageExt] = []

    def handle(message: MessageExt) -> None:
        met.append(message)

    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        await trio.sleep(1)
        for wrong in (handle, functools.partial(handle), met):
            with pytest.raises(ConfigError, match="handler"):
                await consumer.run(wrong)  # type: ignore[arg-type]
            with pytest.raises(ConfigError, match="handler"):
                await consumer.run_batches(wrong)  # type: ignore[arg-type]
        assert met == []
        assert await receive(consumer, 2) == [0, 1]


@pytest.mark.parametrize("orderly", [False, True])
async def test_run_with_a_lambda_that_is_not_async_ends_and_hands_nothing_back(
    client: ClientInstance, orderly: bool
) -> None:
    await send(client, 3, queues=1)
    met: list[MessageExt] = []
    async with open_consumer(TOPIC, group="g", orderly=orderly, client=client) as consumer:
        with trio.fail_after(5), pytest.raises(NotAwaitableError, match="must be async def"):
            await consumer.run(lambda message: met.append(message), concurrency=1)  # type: ignore
        assert [message.body for message in met] == [b"0"]
        assert await receive(consumer, 3) == [0, 1, 2]


async def test_values_with_an_async_deserializer_raises_config_error(
    client: ClientInstance,
) -> None:
    await send(client, 1, queues=1)

    async def read(message: MessageExt) -> bytes:
        return message.body

    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        with pytest.raises(ConfigError, match="deserializer must be a plain def"):
            consumer.values(read)
