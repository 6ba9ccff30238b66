"""What lives in one process stays there; settings, messages and queues travel."""

import copy
import os
import pickle
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from functools import partial
from typing import Any

import attrs
import pytest
import trio
from tests.support.orders import TOPIC, send

from rocketrio import (
    ClientInstance,
    Consumer,
    Error,
    Message,
    MessageExt,
    MessageQueue,
    MessagesNotStoredError,
    Producer,
    SendPipeline,
    SendResult,
    SendStatus,
    Transaction,
    TransactionState,
    open_admin,
    open_consumer,
    open_producer,
)
from rocketrio.admin import Admin
from rocketrio.cluster.namespace import Namespace
from rocketrio.connect import ClientOptions
from rocketrio.live import WrongProcessError
from rocketrio.producing.delays import DELAY_LEVELS
from rocketrio.producing.pipeline import SendFailure
from rocketrio.producing.slow_brokers import LATENCIES_5X
from rocketrio.routing import ReadPolicy
from rocketrio.strategies import allocate_by_config, allocate_sticky
from rocketrio_protocol.errors import SystemBusyError
from rocketrio_protocol.remoting.tcp import dial_tcp

QUEUE = MessageQueue("orders", "broker-a", 0)
OPTIONS: ClientOptions = {"name_servers": ["10.0.0.1:9876"], "dial": dial_tcp, "namespace": "ns"}


@attrs.frozen
class Opened:
    """One of each."""

    client: ClientInstance
    producer: Producer
    pipeline: SendPipeline
    consumer: Consumer
    admin: Admin
    transaction: Transaction


async def unknown(message: MessageExt) -> TransactionState:
    await trio.lowlevel.checkpoint()
    return TransactionState.UNKNOWN


@pytest.fixture
async def opened(client: ClientInstance) -> AsyncIterator[Opened]:
    await send(client, 8)
    async with (
        open_producer(client=client, group="g", check_transaction=unknown) as producer,
        producer.pipeline() as pipeline,
        producer.transaction(Message(TOPIC, b"half")) as transaction,
        open_consumer(TOPIC, group="g", start_from="earliest", client=client) as consumer,
        open_admin(client=client) as admin,
    ):
        await consumer.receive()
        yield Opened(client, producer, pipeline, consumer, admin, transaction)


def in_child(work: Callable[[], object]) -> str:
    """What `work` says in a forked process: its result, or its error."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = repr(work())
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writing, said.encode())
        os._exit(0)  # Nothing of the parent is unwound here.
    os.close(writing)
    with open(reading, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(child, 0)
    return said


def begun(work: Any) -> object:
    """The first step of a coroutine, outside any loop."""
    try:
        return work.send(None)
    except StopIteration as ended:
        return ended.value
    finally:
        work.close()


@pytest.mark.parametrize(
    "name", ["client", "producer", "pipeline", "consumer", "admin", "transaction"]
)
async def test_what_is_open_cannot_be_pickled(opened: Opened, name: str) -> None:
    living = getattr(opened, name)
    for work in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(WrongProcessError, match=f"{type(living).__name__} cannot be pickled"):
            work(living)
    assert issubclass(WrongProcessError, Error)
    assert issubclass(WrongProcessError, TypeError)  # What others catch who try to pickle.


@pytest.mark.slow
async def test_everything_refuses_to_work_after_a_fork(opened: Opened) -> None:
    producer, consumer, message = opened.producer, opened.consumer, Message(TOPIC, b"")
    iterator = aiter(consumer)
    uses: list[tuple[str, Callable[[], object]]] = [
        ("Producer", lambda: begun(producer.send(message))),
        ("Producer", lambda: producer.delayed(message, timedelta(1))),
        ("SendPipeline", lambda: begun(opened.pipeline.send(message))),
        ("Transaction", lambda: opened.transaction.rollback()),
        ("Consumer", lambda: begun(consumer.receive())),
        ("Consumer", lambda: aiter(consumer)),
        ("HandOut", lambda: begun(anext(iterator))),
        ("Consumer", lambda: consumer.statistics()),
        ("Admin", lambda: begun(opened.admin.topics())),
        ("ClientInstance", lambda: begun(opened.client.topic_route(TOPIC))),
    ]
    for name, use in uses:
        assert in_child(use).startswith(f"WrongProcessError: this {name} was opened before a fork")
    for name in ("client", "producer", "consumer", "admin"):
        assert "of the parent process>" in in_child(partial(getattr, opened, name))


async def test_parent_notices_nothing_of_a_child(opened: Opened) -> None:
    in_child(lambda: None)
    assert (await opened.producer.send(Message(TOPIC, b"9"))).status is SendStatus.SEND_OK
    assert int((await opened.consumer.receive()).body) >= 0
    assert repr(opened.client).startswith("<ClientInstance ")


async def test_copied_message_can_be_read_in_a_child(opened: Opened) -> None:
    message = (await opened.consumer.receive()).copy()
    assert in_child(lambda: (message.topic, len(message.body))) == repr((TOPIC, len(message.body)))


@pytest.mark.parametrize(
    "value",
    [
        OPTIONS,
        LATENCIES_5X,
        DELAY_LEVELS,
        ReadPolicy("replica", 3.0),
        Namespace("ns"),
        QUEUE,
        Message("orders", b"x", keys="k", properties={"a": "b"}),
        SendResult(SendStatus.SEND_OK, QUEUE, 1, ("ID",), ("OFF",)),
        TransactionState.COMMIT,
        allocate_sticky,
        allocate_by_config([QUEUE]),
    ],
)
def test_settings_and_values_travel(value: object) -> None:
    assert pickle.loads(pickle.dumps(value)) == value


def test_errors_travel_with_all_they_know() -> None:
    refused = SystemBusyError(
        "refused", broker_addr="10.0.0.1:1", topic="orders", code=2, remedy="Wait"
    )
    again = pickle.loads(pickle.dumps(refused))
    assert (str(again), again.code, again.topic) == (str(refused), 2, "orders")
    failed = MessagesNotStoredError([SendFailure(Message("orders", b"x"), refused)])
    again = pickle.loads(pickle.dumps(failed))
    assert (str(again), again.failures[0].message) == (str(failed), Message("orders", b"x"))
