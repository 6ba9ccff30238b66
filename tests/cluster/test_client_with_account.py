"""Our client on our brokers with access control: lost rights, keys that change; test_least_rights.py has each use."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from tests.support.clients import open_admin, open_client, open_consumer, open_producer
from tests.support.secured_broker import INNER, SECRET, Secured, secured

from rocketrio import (
    Credentials,
    Message,
    MessageExt,
    MessageQueue,
    NotAuthenticatedError,
    NotAuthorizedError,
    SendStatus,
    TransactionState,
)
from rocketrio.consuming.pull import PullAPIWrapper

SENDER = Credentials("sender", SECRET)
READER = Credentials("reader", SECRET)
BOTH = Credentials("both", SECRET)
TOPIC, OTHER, GROUP = "orders", "invoices", "billing"

RIGHTS = {
    SENDER: {f"Topic:{TOPIC}": ["Pub"]},
    READER: {f"Topic:{TOPIC}": ["Sub", "Get"], f"Group:{GROUP}": ["Sub"]},
    BOTH: {
        f"Topic:{TOPIC}": ["Pub", "Sub", "Get"],
        f"Group:{GROUP}": ["Sub", "Get"],
    },
}


@asynccontextmanager
async def running(folder: Path, **settings: Any) -> AsyncIterator[Secured]:
    async with secured(folder, **settings) as here:
        await trio.sleep(1)
        async with open_admin(**here.options(INNER)) as admin:
            for topic in (TOPIC, OTHER):
                await admin.create_topic(topic, queues=2)
        for user, rights in RIGHTS.items():
            await here.add_user(user.access_key, rights)
        yield here


async def received(consumer: Any, count: int) -> list[MessageExt]:
    return [await consumer.receive() for _ in range(count)]


@pytest.mark.parametrize("headers", ["JSON", "ROCKETMQ", "MSGPACK"])
async def test_sender_and_reader_need_no_more_than_their_rights(
    tmp_path: Path, headers: str
) -> None:
    async def check(message: MessageExt) -> TransactionState:
        return TransactionState.COMMIT

    async with (
        running(tmp_path) as here,
        open_producer(
            group="paying",
            check_transaction=check,
            **here.options(SENDER, serialize_type=headers, trace=True),
        ) as producer,
        open_consumer(
            TOPIC, group=GROUP, **here.options(READER, serialize_type=headers)
        ) as consumer,
    ):
        sent = await producer.send(Message(TOPIC, b"0", keys="k", properties={"a": "你好"}))
        assert sent.status is SendStatus.SEND_OK
        await producer.send_batch([Message(TOPIC, b"1"), Message(TOPIC, b"2")])
        await producer.send_oneway(Message(TOPIC, b"3"))
        async with producer.pipeline() as pipeline:
            await pipeline.send(Message(TOPIC, b"4"))
        async with producer.transaction(Message(TOPIC, b"5")):
            pass
        found = await received(consumer, 6)
        assert sorted(message.body for message in found) == [b"%d" % n for n in range(6)]
        await consumer.commit()
        async with open_admin(client=consumer.client) as admin:
            [by_key] = await admin.query_message(TOPIC, "k")
            assert by_key.message_id == sent.message_id


async def test_consumer_that_loses_its_right_ends_and_names_it(tmp_path: Path) -> None:
    async with running(tmp_path) as here:

        async def consume() -> None:
            async with open_consumer(TOPIC, group=GROUP, **here.options(READER)) as consumer:
                await here.revoke(READER.access_key, f"Topic:{TOPIC}")
                async for _ in consumer:
                    pass

        with pytest.raises(NotAuthorizedError, match=rf"reader.*{TOPIC}"):
            await consume()


async def test_consumer_of_a_denied_topic_beside_a_permitted_one_is_not_opened(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as here:
        with pytest.raises(NotAuthorizedError, match=OTHER) as caught:
            async with open_consumer([TOPIC, OTHER], group=GROUP, **here.options(READER)):
                raise AssertionError("It was opened")
        assert caught.value.topic == OTHER
        async with open_consumer(TOPIC, group=GROUP, **here.options(READER)):
            pass  # The refused consumer left nothing behind.


async def test_deleted_account_is_refused_with_its_next_request(tmp_path: Path) -> None:
    async with running(tmp_path) as here, open_producer(**here.options(SENDER)) as producer:
        await producer.send(Message(TOPIC, b"x"))
        async with open_admin(**here.options(INNER)) as admin:
            await admin.access().delete_user(SENDER.access_key)
        with pytest.raises(NotAuthenticatedError, match="sender"):
            await producer.send(Message(TOPIC, b"x"))


def provider_of(box: list[Credentials]) -> Callable[[], Awaitable[Credentials]]:
    async def provider() -> Credentials:
        return box[-1]

    return provider


@pytest.mark.slow
@pytest.mark.parametrize("slaves", [0, 1])
async def test_key_is_rotated_under_load_without_a_lost_or_doubled_message(
    tmp_path: Path, slaves: int
) -> None:
    """The file gets the new key a while after the broker; then the former key is removed."""
    secrets = [BOTH]
    sent: list[bytes] = []
    found: list[bytes] = []
    is_over = False

    async with running(tmp_path, slaves=slaves) as here, open_admin(**here.options(INNER)) as admin:
        access = admin.access(plain_passwords=True)

        async def send(producer: Any) -> None:
            while not is_over:
                body = b"%d" % len(sent)
                sent.append(body)
                await producer.send(Message(TOPIC, body))
                await trio.sleep(0.5)

        async def receive(consumer: Any) -> None:
            async for message in consumer:
                found.append(message.body)

        async with (
            open_client(**here.options(provider_of(secrets))) as client,
            open_producer(client=client) as producer,
            open_consumer(TOPIC, group=GROUP, client=client) as consumer,
            open_producer(**here.options(BOTH)) as late,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(receive, consumer)
            nursery.start_soon(send, producer)
            await trio.sleep(5)
            await access.update_user(BOTH.access_key, password="the-new-secret")
            await trio.sleep(20)
            await late.send(Message(TOPIC, b"late"))
            secrets.append(Credentials(BOTH.access_key, "the-new-secret"))
            await trio.sleep(20)
            await access.update_user(BOTH.access_key, password="the-new-secret")
            await trio.sleep(20)
            with pytest.raises(NotAuthenticatedError):
                await late.send(Message(TOPIC, b"too late"))
            is_over = True
            await trio.sleep(10)
            assert client.account is not None
            assert client.account.credentials == secrets[-1]
            nursery.cancel_scope.cancel()
    assert sorted(found) == sorted([*sent, b"late"])
    assert len(sent) > 100


@pytest.mark.slow
async def test_slave_that_does_not_know_the_account_yet_is_left_for_its_master(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queue = MessageQueue(TOPIC, "broker-a", 0)
    async with running(tmp_path, slaves=1, slave_read_enable=True) as here:
        await trio.sleep(20)  # The slave has the topics and the users that there are.
        cluster = here.cluster
        cluster.memory_network.partition(cluster.master.host, cluster.slaves[0].host)
        newcomer = Credentials("newcomer", SECRET)
        await here.add_user("newcomer", {**RIGHTS[BOTH]})
        async with open_client(
            **here.options(newcomer, connect_broker_by_user=True, default_broker_id=1)
        ) as client:
            async with open_producer(client=client) as producer:
                await producer.send(Message(TOPIC, b"x"), queue=queue)
            await client.topic_route(TOPIC)
            result = await PullAPIWrapper(client, GROUP).pull_kernel(queue, 0)
            assert (result.broker_id, len(result.messages())) == (0, 1)
            assert "pull tries another broker" in caplog.text
            async with open_consumer(TOPIC, group=GROUP, client=client):
                pass  # Only the master's answer to the heartbeat counts.
