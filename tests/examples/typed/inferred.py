"""What type checkers know without being told: read by test_types.py, never run."""

import asyncio
from datetime import UTC, datetime
from typing import Any, assert_type

import attrs
from pyspark.sql import DataFrame, SparkSession

from rocketrio import (
    Consumer,
    Message,
    MessageExt,
    Producer,
    SendResult,
    Transaction,
    open_consumer,
    open_producer,
)
from rocketrio.aio import TrioSide
from rocketrio.consuming.hand_out import Values
from rocketrio.spark import from_rocketmq, stream_from_rocketmq


@attrs.define
class Order:
    """One order."""

    number: int


def read(message: MessageExt) -> Order:
    return message.json(Order)


async def receives() -> None:
    async with open_consumer("orders", group="billing", start_from="earliest") as consumer:
        assert_type(consumer, Consumer)
        async for message in consumer:
            assert_type(message, MessageExt)
            assert_type(message.body, bytes)
            assert_type(message.tags, str | None)
            assert_type(message.json(), Any)
            assert_type(message.json(list[int]), list[int])
        async for batch in consumer.batches(max_messages=100):
            assert_type(batch, list[MessageExt])
        values = consumer.values(read)
        assert_type(values, Values[Order])
        async for order in values:
            assert_type(order, Order)
        assert_type(await anext(consumer.values(lambda message: message.born_time_ms)), int)
        frame = await consumer.read_polars(columns=("body",))
        assert_type(frame.height, int)


async def sends() -> None:
    async with open_producer(group="shop", retries=3) as producer:
        assert_type(producer, Producer)
        assert_type(await producer.send(Message("orders", b"", keys=["a", "b"])), SendResult)
        async with producer.transaction(Message("orders", b"")) as transaction:
            assert_type(transaction, Transaction)


async def from_asyncio(side: TrioSide, producer: Producer) -> None:
    assert_type(await side.run(producer.send, Message("orders", b"")), SendResult)
    async with side.open(open_consumer("orders", group="billing")) as consumer:
        assert_type(consumer, Consumer)
    assert_type(await side.on_asyncio(asyncio.sleep, 1.0, "value"), str)


def frames(spark: SparkSession) -> None:
    assert_type(from_rocketmq(spark, "orders"), DataFrame)
    since = datetime(2026, 1, 2, tzinfo=UTC)
    assert_type(
        from_rocketmq(
            spark,
            ["orders", "returns"],
            schema="body binary",
            starting_timestamp=since,
            ending_offsets={"orders": {"broker-a": {0: 17}}},
            filter_pushdown=None,
            pull_timeout=2.5,
        ),
        DataFrame,
    )
    orders = stream_from_rocketmq(spark, assign={"orders": {"broker-a": [0, 1]}}, read_from="slave")
    assert_type(orders, DataFrame)
