"""Many queues at once, and one that stands still among others."""

import pytest
import trio
from tests.support.orders import TOPIC, send
from tests.support.steps import counted_steps

from rocketrio import ClientInstance, MessageExt, Prefetch, open_consumer
from rocketrio.cluster.api import ClientAPI
from rocketrio.consuming.fetch import STARTS_AT_ONCE


@pytest.mark.slow
async def test_queues_that_wait_for_room_cost_nothing(client: ClientInstance) -> None:
    await send(client, 400, queues=200)
    async with open_consumer(
        TOPIC, group="g", client=client, prefetch=Prefetch(total_bytes=1)
    ) as consumer:
        await trio.sleep(5)  # The first message has used up the budget.
        with counted_steps() as steps:
            await trio.sleep(20)
        assert steps.total < 2000  # A tenth of a look a second for each.
        with trio.fail_after(60):
            assert len({(await consumer.receive()).body for _ in range(400)}) == 400


@pytest.mark.slow
async def test_few_of_many_queues_ask_for_their_start_at_once(
    client: ClientInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send(client, 200, queues=200)
    asked = most = 0
    claim = ClientAPI.claim_queue

    async def counted(*args: object, **kwargs: object) -> object:
        nonlocal asked, most
        asked += 1
        most = max(most, asked)
        try:
            await trio.sleep(0.01)
            return await claim(*args, **kwargs)  # type: ignore[arg-type]
        finally:
            asked -= 1

    monkeypatch.setattr(ClientAPI, "claim_queue", counted)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        with trio.fail_after(30):
            for _ in range(200):
                await consumer.receive()
    assert most == STARTS_AT_ONCE


@pytest.mark.slow
async def test_queue_whose_handler_hangs_keeps_no_other_from_room(
    client: ClientInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketrio.consuming.process_queue.CONSUME_MAX_SPAN", 8)
    await send(client, 200, queues=2)
    seen: set[int] = set()

    async def handle(message: MessageExt) -> None:
        if message.body == b"0":
            await trio.sleep_forever()
        await trio.sleep(0.1)
        seen.add(int(message.body))

    async with open_consumer(
        TOPIC, group="g", client=client, prefetch=Prefetch(batch_size=6, total_bytes=4000)
    ) as consumer:
        with trio.move_on_after(120):
            await consumer.run(handle, concurrency=3, drain_timeout=0)
    assert seen >= set(range(1, 200, 2))
