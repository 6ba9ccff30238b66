"""Receiving what messages mean: values, and messages that have none."""

import attrs
import pytest
import trio
from tests.support.orders import TOPIC, committed, send

from rocketrio import (
    BodyUnreadableError,
    ClientInstance,
    ClosedError,
    Message,
    MessageExt,
    open_consumer,
    open_producer,
)
from rocketrio.consuming.hand_out import Values


@attrs.define
class Order:
    """One order."""

    number: int


async def test_values_yields_what_the_deserializer_returns(client: ClientInstance) -> None:
    await send(client, 20, queues=1)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        seen = []
        async for value in consumer.values(lambda message: message.json(int)):
            seen.append(value)
            if value == 19:
                break
        assert seen == list(range(20))
        await consumer.commit()
        assert await committed(consumer) == {0: 20}


async def test_values_failed_message_stays_in_work_until_the_iteration_continues(
    client: ClientInstance,
) -> None:
    await send(client, 0)
    async with open_producer(client=client) as producer:
        for body in (b'{"number": 1}', b"{}", b'{"number": 3}'):
            await producer.send(Message(TOPIC, body), sharding_key="one queue")

    def read(message: MessageExt) -> Order:
        return message.json(Order)

    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        values: Values[Order] = consumer.values(read)
        assert await anext(values) == Order(1)
        with pytest.raises(BodyUnreadableError) as caught:
            await anext(values)
        assert values.message is not None
        assert values.message.body == b"{}"
        assert caught.value.__notes__ == [f"while reading {values.message!r}"]
        await consumer._commit_done()
        assert 1 in (await committed(consumer)).values()  # The second is in work.
        assert await anext(values) == Order(3)
        await consumer._commit_done()
        assert 2 in (await committed(consumer)).values()


async def test_values_block_left_by_the_exception_redelivers_the_message(
    client: ClientInstance,
) -> None:
    await send(client, 3, queues=1)

    def read(message: MessageExt) -> int:
        if message.body == b"1":
            raise LookupError("no such customer")
        return int(message.body)

    async def read_all() -> None:
        async with open_consumer(TOPIC, group="g", client=client) as consumer:
            async for value in consumer.values(read):
                assert value == 0

    with pytest.raises(LookupError, match="no such customer"):
        await read_all()
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        assert (await consumer.receive()).body == b"1"


async def test_values_of_a_closed_consumer_raise_closed_error(client: ClientInstance) -> None:
    await send(client, 2, queues=1)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        values = consumer.values(lambda message: message.body)
        with trio.CancelScope() as scope:
            scope.cancel()
            await anext(values)
        assert await anext(values) == b"0"
    with pytest.raises(ClosedError):
        await anext(values)
