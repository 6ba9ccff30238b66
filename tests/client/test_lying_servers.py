"""Every public call of producers, consumers and admins at servers that lie: a value or a documented error, in time.

The cluster is real, and what it answers is changed on the way (liar.py). What was promised of a call is not looked at:
a lie may make it send twice or miss a topic. It must not end in an error that no documentation names, nor never end.
"""

import logging
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import attrs
import pytest
import trio
from tests.client.liar import Liar, lying
from tests.support.clients import client_of, open_client
from tests.support.orders import make_topic
from trio.testing import MockClock

from rocketrio import (
    GIVE_UP,
    ClientInstance,
    Consumer,
    Message,
    MessageExt,
    MessagesNotStoredError,
    Producer,
    TransactionState,
    open_admin,
    open_consumer,
    open_producer,
)
from rocketrio.admin import Admin
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.errors import Error

TOPIC, GROUP = "orders", "g"
SEEDS, MORE_SEEDS, LONG_SEEDS = range(4), range(4, 8), range(8, 150)
PATIENCE = 2000.0
"""Virtual seconds for one call: a lie may make it wait for each of its timeouts in turn, and the clock jumps while a
busy machine works on something in a thread."""


@attrs.frozen
class Truth:
    """What there was before anybody lied."""

    cluster: EmbeddedCluster
    message: MessageExt

    @property
    def addr(self) -> str:
        return self.cluster.master.broker.address


@asynccontextmanager
async def true_cluster() -> AsyncGenerator[Truth]:
    """With a topic, messages, a group with progress and a dead letter."""
    async with EmbeddedCluster(slaves=1, slave_read_enable=True) as cluster:
        async with client_of(cluster) as client:
            await make_topic(client, TOPIC, queues=2)
            async with open_producer(client=client) as producer, producer.pipeline() as pipeline:
                for number in range(40):
                    await pipeline.send(Message(TOPIC, b"%d" % number, keys="k", tags="t"))
            async with open_consumer(TOPIC, group=GROUP, client=client) as consumer:
                with trio.fail_after(PATIENCE):
                    message = await consumer.receive()
                    await consumer.retry(message, GIVE_UP)
                    await consumer.commit()
        await trio.sleep(5)
        yield Truth(cluster, message.copy())


async def check(message: MessageExt) -> TransactionState:
    return TransactionState.COMMIT


async def produce(producer: Producer, truth: Truth) -> AsyncGenerator[Awaitable[object]]:
    message = Message(TOPIC, b"x", keys="k")

    async def pipelined() -> None:
        async with producer.pipeline() as pipeline:
            for _ in range(5):
                await pipeline.send(message, sharding_key="s")

    async def transacted() -> None:
        async with producer.transaction(message):
            pass

    yield producer.send(message)
    yield producer.send(message, sharding_key="s")
    yield producer.send_batch([message, message])
    yield producer.send_oneway(message)
    yield pipelined()
    yield transacted()
    yield producer.request(message, timeout=3)
    yield producer.reply(truth.message, b"y")
    yield producer.queues(TOPIC)


async def administer(admin: Admin, truth: Truth) -> AsyncGenerator[Awaitable[object]]:
    letters = admin.dead_letters(GROUP)

    async def checked() -> None:
        async for _ in admin.check_log(truth.addr):
            pass

    yield admin.topics(include_system=True)
    yield admin.topic(TOPIC)
    yield admin.create_topic("another", queues=3)
    yield admin.delete_topic("another")
    yield admin.view_message(truth.message.offset_message_id)
    yield admin.query_message(TOPIC, "k")
    yield admin.groups(include_system=True)
    yield admin.group(GROUP)
    yield admin.create_group("another", retry_max_times=3)
    yield admin.delete_group("another")
    yield admin.offsets(TOPIC, GROUP)
    yield admin.reset_to_time(TOPIC, GROUP, datetime(2020, 1, 1, tzinfo=UTC))
    yield admin.consume_stats(GROUP)
    yield admin.consume_stats(GROUP, TOPIC)
    yield admin.groups_of(TOPIC)
    yield admin.consumer_connections(GROUP)
    yield admin.producer_connections("p")
    yield admin.cluster_info()
    yield admin.brokers()
    yield admin.status()
    yield admin.broker_addresses("broker-a")
    yield admin.change_settings(truth.addr, {"brokerPermission": "6"})
    yield admin.hand_over("broker-a", dry_run=True)
    yield checked()
    yield letters.messages(since=datetime(2020, 1, 1, tzinfo=UTC))
    yield letters.resend([truth.message])


async def consume(consumer: Consumer, truth: Truth) -> AsyncGenerator[Awaitable[object]]:
    async def handle(message: Any) -> None:
        if len(message.body) % 2:
            raise ValueError(message.properties)

    async def run() -> None:
        with trio.move_on_after(20):
            await consumer.run(handle, drain_timeout=1)

    async def receive() -> None:
        with trio.move_on_after(20):
            message = await consumer.receive()
            for name in ("body", "properties", "born_time", "born_host", "message_id", "tags"):
                with suppress(Error):
                    getattr(message, name)
            await consumer.retry(message)

    async def table() -> None:
        with trio.move_on_after(20):
            await consumer.read_arrow()

    yield receive()
    yield table()
    yield receive()
    yield consumer.commit()
    yield consumer.lag()
    yield consumer.min_offsets()
    yield consumer.max_offsets()
    yield consumer.seek_to_time(datetime(2020, 1, 1, tzinfo=UTC))
    for queue in consumer.assignment:
        yield consumer.committed_offset(queue)
    yield run()


@attrs.define
class Calls:
    """Makes them one after the other, and remembers what came out that should not have."""

    liar: Liar
    wrong: list[str] = attrs.Factory(list)

    async def make(self, calls: AsyncGenerator[Awaitable[object]]) -> None:
        async for call in calls:
            name = getattr(call, "__qualname__", str(call))
            told = len(self.liar.told)
            try:
                with trio.fail_after(PATIENCE):
                    await call
            except (Error, MessagesNotStoredError):
                pass
            except Exception as error:
                self.wrong.append(f"{name}: {error!r} after {self.liar.told[told:][-5:]}")


async def story(seed: int, kind: str) -> list[str]:
    liar = Liar(seed, lies=(0.5, 0.15)[seed % 2])
    calls = Calls(liar)
    async with true_cluster() as truth:
        cluster = truth.cluster
        dial = lying(cluster.dial, liar)
        client: ClientInstance
        with suppress(Error):
            async with open_client(
                name_servers=cluster.name_servers, dial=dial, wall_clock=cluster.wall_clock
            ) as client:
                match kind:
                    case "producer":
                        async with open_producer(
                            client=client, group="p", check_transaction=check
                        ) as producer:
                            await calls.make(produce(producer, truth))
                    case "admin":
                        async with open_admin(client=client) as admin:
                            await calls.make(administer(admin, truth))
                    case _:
                        async with open_consumer(
                            TOPIC, group=GROUP, client=client, orderly=kind == "orderly"
                        ) as consumer:
                            await trio.sleep(30)
                            await calls.make(consume(consumer, truth))
    return calls.wrong


@pytest.mark.parametrize(
    "seeds",
    [
        SEEDS,
        pytest.param(MORE_SEEDS, marks=[pytest.mark.slow, pytest.mark.long]),
        pytest.param(LONG_SEEDS, marks=[pytest.mark.slow, pytest.mark.long]),
    ],
)
@pytest.mark.parametrize("kind", ["producer", "admin", "consumer", "orderly"])
def test_false_answer_raises_a_documented_error(
    kind: str, seeds: range, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    for seed in seeds:
        wrong = trio.run(story, seed, kind, clock=MockClock(autojump_threshold=0))
        assert wrong == [], f"seed {seed}"
