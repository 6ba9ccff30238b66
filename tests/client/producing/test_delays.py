"""Which level a delay becomes: the shortest that is not too short."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from rocketrio import ClientInstance, Message, SendResult, open_consumer, open_producer
from rocketrio.producing.delays import DELAY_LEVELS, check_levels, level_for, level_until
from rocketrio_protocol.errors import ConfigError, LocalProtocolError
from rocketrio_protocol.record.properties import PROPERTY_DELAY_TIME_LEVEL

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)


def test_default_levels_are_those_of_a_broker_without_settings() -> None:
    text = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    units = {"s": 1, "m": 60, "h": 3600}
    assert [int(length.total_seconds()) for length in DELAY_LEVELS] == [
        int(word[:-1]) * units[word[-1]] for word in text.split()
    ]


@pytest.mark.parametrize(
    ("delay", "level"),
    [
        (timedelta(0), 0),
        (timedelta(milliseconds=1), 1),
        (timedelta(seconds=1), 1),
        (timedelta(seconds=1, microseconds=1), 2),
        (timedelta(minutes=10, seconds=1), 15),
        (timedelta(hours=2), 18),
    ],
)
def test_delay_becomes_the_shortest_level_that_is_long_enough(delay: timedelta, level: int) -> None:
    assert level_for(delay) == level


@pytest.mark.parametrize("delay", [timedelta(seconds=-5), 5, "5 s", None])
def test_what_is_no_delay_is_refused(delay: Any) -> None:
    with pytest.raises(ConfigError, match=r"negative|neither a timedelta nor a datetime"):
        level_for(delay)


def test_delay_beyond_the_longest_level_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="longest, 2:00:00"):
        level_for(timedelta(hours=2, microseconds=1))


def test_levels_need_not_be_in_order() -> None:
    levels = [timedelta(minutes=10), timedelta(seconds=5)]
    assert level_for(timedelta(seconds=3), levels) == 2
    assert level_for(timedelta(seconds=30), levels) == 1


def test_time_counts_from_now_in_any_zone() -> None:
    in_tokyo = (NOON + timedelta(seconds=20)).astimezone(timezone(timedelta(hours=9)))
    assert level_until(in_tokyo, NOON_MS) == 4
    assert level_until(NOON, NOON_MS) == 0
    assert level_until(NOON - timedelta(hours=3), NOON_MS) == 0
    with pytest.raises(ConfigError, match="no time zone"):
        level_until(NOON.replace(tzinfo=None), NOON_MS)


def test_list_of_levels_that_no_broker_has_is_refused() -> None:
    for levels in ([], [timedelta(0)], [timedelta(seconds=-1)]):
        with pytest.raises(ConfigError, match="delay_levels"):
            check_levels(levels)


@pytest.mark.parametrize("level", [-1, 19, 30_000, 1.5, "3", True])
async def test_level_that_brokers_lack_is_not_sent(client: ClientInstance, level: object) -> None:
    message = Message("orders", b"", delay_level=level)  # type: ignore[arg-type]
    async with open_producer(client=client) as producer:
        with pytest.raises(LocalProtocolError, match="must be 0 to 18"):
            await producer.send(message)
        with pytest.raises(LocalProtocolError, match="must be 0 to 18"):
            await producer.send_oneway(message)
        async with producer.pipeline() as pipeline:
            with pytest.raises(LocalProtocolError, match="must be 0 to 18"):
                await pipeline.send(message)


async def test_producer_uses_the_given_delay_levels(client: ClientInstance) -> None:
    levels = [timedelta(days=days) for days in range(1, 31)]
    async with open_producer(client=client, delay_levels=levels) as producer:
        assert producer.delayed(Message("t", b""), timedelta(days=20)).delay_level == 20
        in_a_week = producer.client.wall_clock.now_ms() / 1000 + 7 * 86_400
        when = datetime.fromtimestamp(in_a_week, UTC)
        assert producer.delayed(Message("t", b""), when).delay_level == 7


async def test_delayed_copy_is_the_same_message_otherwise(client: ClientInstance) -> None:
    message = Message("t", b"body", keys="k", tags="a", properties={"x": "y"}, flag=3)
    async with open_producer(client=client) as producer:
        delayed = producer.delayed(message, timedelta(seconds=4))
    assert message.delay_level == 0
    assert delayed == Message(
        "t", b"body", keys="k", tags="a", properties={"x": "y"}, flag=3, delay_level=2
    )


async def test_delayed_message_carries_its_level(client: ClientInstance) -> None:
    result: SendResult
    async with open_producer(client=client) as producer:
        result = await producer.send(
            producer.delayed(Message("orders", b"x"), timedelta(seconds=1))
        )
    async with open_consumer(
        "orders", group="late", queues=[result.queue], start_from="earliest", client=client
    ) as consumer:
        message = await consumer.receive()
    assert message.body == b"x"
    assert message.properties[PROPERTY_DELAY_TIME_LEVEL] == "1"
