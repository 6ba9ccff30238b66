"""SQL92 subscriptions: announced, checked, and applied by the broker."""

import pytest
import trio
from tests.support.clients import client_of
from tests.support.orders import TOPIC, make_topic, receive

from rocketrio import (
    BrokerError,
    ClientInstance,
    Message,
    MessageQueue,
    open_consumer,
    open_producer,
)
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.errors import ConfigError


async def send_amounts(client: ClientInstance, count: int) -> None:
    await make_topic(client, TOPIC, queues=2)
    async with open_producer(client=client) as producer:
        for number in range(count):
            region = "EU" if number % 2 else "US"
            await producer.send(
                Message(
                    TOPIC, b"%d" % number, properties={"amount": str(number), "region": region}
                ),
                queue=MessageQueue(TOPIC, "broker-a", number % 2),
            )


async def test_only_what_fits_the_expression_is_received(client: ClientInstance) -> None:
    await send_amounts(client, 20)
    async with open_consumer(
        TOPIC, group="g", where="amount >= 10 AND region = 'EU'", client=client
    ) as consumer:
        with trio.fail_after(10):
            assert sorted(await receive(consumer, 5)) == [11, 13, 15, 17, 19]
        with trio.move_on_after(5):
            raise AssertionError(await consumer.receive())
        assert await consumer.lag() == dict.fromkeys(consumer.assignment, 0)
        (announced,) = (
            data
            for data in client.heartbeat.data().consumer_data_set[0].subscription_data_set
            if data.topic == TOPIC
        )
    assert (announced.expression_type, announced.sub_string) == (
        "SQL92",
        "amount >= 10 AND region = 'EU'",
    )
    assert announced.tags_set == []


async def test_expression_that_the_broker_does_not_take_is_an_error_at_once(
    client: ClientInstance,
) -> None:
    await send_amounts(client, 1)
    with pytest.raises(BrokerError, match="amount >>> 1"):
        async with open_consumer(TOPIC, group="g", where="amount >>> 1", client=client):
            pass
    assert client.heartbeat.consumers == {}


async def test_broker_that_may_not_filter_names_the_setting_in_its_error() -> None:
    async with (
        EmbeddedCluster(enable_property_filter=False) as cluster,
        client_of(cluster) as client,
    ):
        await send_amounts(client, 1)
        with pytest.raises(BrokerError, match="Set enablePropertyFilter=true") as told:
            async with open_consumer(TOPIC, group="g", where="amount > 1", client=client):
                pass
        assert (
            told.value.remark == "The broker does not support consumer to filter message by SQL92"
        )
        async with open_consumer(TOPIC, group="g", client=client) as consumer:
            assert await receive(consumer, 1) == [0]


async def test_topics_may_have_expressions_of_their_own(client: ClientInstance) -> None:
    await send_amounts(client, 4)
    async with open_consumer(TOPIC, group="g", where={TOPIC: "amount = 3"}, client=client) as own:
        with trio.fail_after(10):
            assert await receive(own, 1) == [3]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"where": " "}, "blank"),
        ({"where": {"other": "a = 1"}}, "not consumed: other"),
        ({"where": "a = 1", "tags": "b"}, "tags= and where="),
    ],
)
async def test_wrong_use_is_refused(
    client: ClientInstance, arguments: dict[str, object], what: str
) -> None:
    with pytest.raises(ConfigError, match=what):
        async with open_consumer(TOPIC, group="g", client=client, **arguments):  # type: ignore[arg-type]
            pass
