"""What type checkers refuse, on the lines that are marked and on no others: read by test_types.py, never run."""

from pyspark.sql import SparkSession

from rocketrio import (
    ConsumeLater,
    Consumer,
    Message,
    MessageExt,
    Producer,
    SendStatus,
    TransactionState,
    open_client,
    open_consumer,
    open_producer,
)
from rocketrio.aio import TrioSide
from rocketrio.spark import from_rocketmq, stream_from_rocketmq


def messages() -> None:
    Message("orders", "a text")  # wrong: bytes
    Message("orders", b"", "order-1")  # wrong: keys= by name
    Message("orders")  # wrong: no body
    Message("orders", b"", delay_level="1m")  # wrong: a number


def opening() -> None:
    open_consumer("orders")  # wrong: no group
    open_consumer("orders", "billing")  # wrong: group= by name
    open_consumer("orders", group="billing", start_from="frist")  # wrong
    open_consumer("orders", group="billing", read_from="slave")  # wrong
    open_consumer("orders", group="billing", mode="broadcast")  # wrong
    open_consumer("orders", group="billing", name_server="10.0.0.1:9876")  # wrong: name_servers
    open_producer("shop")  # wrong: group= by name
    open_producer(timeout="3s")  # wrong
    open_client(serialise_type="JSON")  # wrong


async def consuming(consumer: Consumer, message: MessageExt) -> None:
    for _ in consumer:  # wrong: async for
        pass
    consumer.receive()  # wrong: no await
    consumer.commit()  # wrong: no await
    consumer.seek(0, 0)  # wrong: a MessageQueue
    number: int = message.json(str)  # wrong
    async for value in consumer.values(lambda one: one.body):
        value.decoded()  # wrong: bytes have no such method
    consumer.values("json")  # wrong
    await consumer.read_arrow(columns=[1, 2])  # wrong
    message.body = b""  # wrong: messages are read, not written
    print(number)


def bill(message: MessageExt) -> None:
    if message.reconsume_times > 3:
        raise ConsumeLater("soon")  # wrong


async def running(consumer: Consumer) -> None:
    await consumer.run(bill)  # wrong: not async
    await consumer.run(concurrency=8)  # wrong: no handler


async def became(message: MessageExt) -> bool:
    return bool(message.keys)


async def producing(producer: Producer, message: Message) -> None:
    result = await producer.send(message)
    if result.status == "SEND_OK":  # wrong: SendStatus.SEND_OK
        return
    if result.status is SendStatus.SEND_OK:
        print(result.offset)  # wrong: queue_offset
    await producer.send(b"body")  # wrong: a Message
    await producer.send(message, "customer-7")  # wrong: sharding_key= by name
    producer.transaction(message).commit()  # wrong: its block says so
    open_producer(check_transaction=became)  # wrong: a TransactionState
    print(TransactionState.COMMITTED)  # wrong


async def on_asyncio(side: TrioSide, producer: Producer, message: Message) -> None:
    await side.run(producer.send)  # wrong: no message
    await side.run(producer.send, message, 3.0)  # wrong
    await side.open(open_producer())  # wrong: async with


def frames(spark: SparkSession) -> None:
    from_rocketmq("orders")  # wrong: no session
    from_rocketmq(spark, "orders", "10.0.0.1:9876")  # wrong: name_servers= by name
    from_rocketmq(spark, "orders", startingOffsets="latest")  # wrong: starting_offsets
    from_rocketmq(spark, "orders", starting_offsets="frist")  # wrong
    from_rocketmq(spark, "orders", starting_offsets={"orders": 3})  # wrong: by broker and queue
    from_rocketmq(spark, "orders", starting_timestamp="2026-01-02")  # wrong: a datetime
    from_rocketmq(spark, "orders", fail_on_data_loss="false")  # wrong: False
    from_rocketmq(spark, "orders", pull_timeout="3s")  # wrong: seconds
    from_rocketmq(spark, "orders", max_offsets_per_trigger=5)  # wrong: of a stream
    stream_from_rocketmq(spark, "orders", ending_offsets="latest")  # wrong: of a batch
