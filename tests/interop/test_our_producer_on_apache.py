"""What our producer can do beyond sending, on Apache's broker and with Apache's client on the other side."""

import itertools
import time
from collections.abc import Iterator
from datetime import timedelta

import attrs
import pytest
import trio

from rocketrio import (
    Message,
    MessageExt,
    TransactionState,
    open_consumer,
    open_producer,
)
from tests.interop.apache import ApacheBroker, ApacheNameServer
from tests.interop.java_client import JavaClient

pytestmark = pytest.mark.interop

NUMBERS = itertools.count()
PATIENCE = 40.0
"""Seconds until a Java group has its queues, and until a broker has asked for a transaction."""
TRANSACTIONS = {"transactionTimeOut": "2000", "transactionCheckInterval": "3000"}


@attrs.frozen
class Cluster:
    """Apache's name server and master, and its client."""

    name_server: str
    master: ApacheBroker
    java: JavaClient

    def new_topic(self) -> str:
        topic = f"producing-{next(NUMBERS)}"
        self.java.call("create_topic", address=self.master.address, topic=topic, queues=1)
        self.java.until("publish_queues", topic=topic)
        return topic


@pytest.fixture(scope="module")
def cluster(version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp(f"producing-{version}")
    with ApacheNameServer(version, folder / "names") as names:
        names.wait_ready()
        with (
            ApacheBroker(
                version, folder / "master", names.address, settings=TRANSACTIONS
            ) as master,
            JavaClient(version, names.address, folder / "java") as java,
        ):
            yield Cluster(names.address, master, java)


async def test_transactions_are_committed_rolled_back_and_asked_for(cluster: Cluster) -> None:
    topic = await trio.to_thread.run_sync(cluster.new_topic)
    group = f"{topic}-shop"
    asked: list[str] = []
    truth = {b"left open": TransactionState.COMMIT, b"committed": TransactionState.COMMIT}

    async def check(message: MessageExt) -> TransactionState:
        await trio.lowlevel.checkpoint()
        asked.append(message.body.decode())
        return truth.get(message.body, TransactionState.ROLLBACK)

    bodies: list[str] = []
    async with open_producer(
        name_servers=[cluster.name_server], group=group, check_transaction=check
    ) as producer:
        async with producer.transaction(Message(topic, b"committed", keys="k")) as committed:
            pass
        async with producer.transaction(Message(topic, b"rolled back")) as rolled_back:
            rolled_back.rollback()
        async with producer.transaction(Message(topic, b"left open")) as left_open:
            left_open.leave_open()
        with trio.move_on_after(0.1):
            async with producer.transaction(Message(topic, b"cancelled")):
                await trio.sleep_forever()
        assert committed.is_told
        assert rolled_back.is_told
        async with open_consumer(
            topic, group=f"{group}-g", start_from="first", client=producer.client
        ) as consumer:
            with trio.fail_after(PATIENCE):
                while not {"committed", "left open"} <= set(bodies) or "cancelled" not in asked:
                    with trio.move_on_after(0.5):
                        bodies.append((await consumer.receive()).body.decode())
            with trio.move_on_after(3):  # What was rolled back would be here by now.
                async for message in consumer:
                    bodies.append(message.body.decode())
    assert {"left open", "cancelled"} <= set(asked)
    assert set(bodies) == {"committed", "left open"}


async def test_decision_is_refused_by_apache_where_it_names_no_half_message(
    cluster: Cluster,
) -> None:
    topic = await trio.to_thread.run_sync(cluster.new_topic)

    async def check(message: MessageExt) -> TransactionState:
        await trio.lowlevel.checkpoint()
        return TransactionState.ROLLBACK

    async with open_producer(
        name_servers=[cluster.name_server], group=f"{topic}-shop", check_transaction=check
    ) as producer:
        with pytest.raises(Exception, match="commit of transaction"):
            async with producer.transaction(Message(topic, b"x")) as transaction:
                transaction.sent.queue_offset += 1000


async def test_java_answers_our_requests(cluster: Cluster) -> None:
    topic = await trio.to_thread.run_sync(cluster.new_topic)
    java = cluster.java
    await java.acall("answer_start", topic=topic, group=f"{topic}-answering")
    try:
        async with open_producer(
            name_servers=[cluster.name_server], group=f"{topic}-asking"
        ) as producer:
            reply = await producer.request(Message(topic, b"hello", tags="t"), timeout=PATIENCE)
            assert reply.body == b"HELLO"
            again = await producer.request(Message(topic, "größer ".encode() * 1000), timeout=10)
            assert again.body.decode() == "GRÖSSER " * 1000
    finally:
        await java.acall("answer_stop", group=f"{topic}-answering")


async def test_we_answer_javas_requests(cluster: Cluster) -> None:
    topic = await trio.to_thread.run_sync(cluster.new_topic)
    async with (
        open_producer(name_servers=[cluster.name_server], group=f"{topic}-answering") as producer,
        open_consumer(
            topic, group=f"{topic}-g", start_from="first", client=producer.client
        ) as consumer,
        trio.open_nursery() as nursery,
    ):

        async def answer() -> None:
            async for message in consumer:
                await producer.reply(message, b"re: " + message.body, properties={"by": "us"})

        nursery.start_soon(answer)
        reply = await cluster.java.acall(
            "ask", topic=topic, group=f"{topic}-asking", body="hello", timeout_ms=20_000
        )
        nursery.cancel_scope.cancel()
    assert reply["body"] == "re: hello"
    assert reply["properties"]["by"] == "us"


async def test_delayed_message_is_delivered_by_apache_not_too_soon(cluster: Cluster) -> None:
    topic = await trio.to_thread.run_sync(cluster.new_topic)
    async with open_producer(name_servers=[cluster.name_server]) as producer:
        sent_at = time.time()
        await producer.send(producer.delayed(Message(topic, b"later"), timedelta(seconds=3)))
        async with open_consumer(
            topic, group=f"{topic}-g", start_from="first", client=producer.client
        ) as consumer:
            with trio.fail_after(PATIENCE):
                message = await consumer.receive()
    assert message.body == b"later"
    assert message.store_timestamp_ms / 1000 - sent_at >= 4.9  # Level 2: five seconds.
