"""Our client with credentials on Apache's secured brokers, by accounts with the least rights (docs/security.md)."""

import itertools
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

import pytest
import trio

from rocketrio import (
    ConfigError,
    ConsumeLater,
    Credentials,
    Message,
    MessageExt,
    MessageQueue,
    NotAuthenticatedError,
    NotAuthorizedError,
    RouteNotFoundError,
    SendStatus,
    TransactionState,
    open_admin,
    open_client,
    open_consumer,
    open_producer,
)
from rocketrio_protocol.names import TRACE_TOPIC
from tests.interop.secured import (
    ADMIN,
    BOTH,
    CONSUMER,
    DENIED,
    GROUP,
    OTHER,
    PRODUCER,
    TOPIC,
    Secured,
)

pytestmark = pytest.mark.interop

T = TypeVar("T")
PATIENCE = 60.0
_NUMBERS = itertools.count()


def at(secured: Secured, credentials: Any, **options: Any) -> dict[str, Any]:
    return {"name_servers": [secured.name_server], "credentials": credentials, **options}


def unique_body() -> bytes:
    return b"body-%d" % next(_NUMBERS)


async def until(look: Callable[[], Awaitable[T]]) -> T:
    """Return what `look` finds, once it finds something."""
    with trio.fail_after(PATIENCE):
        while True:
            if found := await look():
                return found
            await trio.sleep(0.2)


async def received(consumer: Any, bodies: set[bytes]) -> list[MessageExt]:
    """Receive until all of these were there."""
    found: list[MessageExt] = []
    with trio.fail_after(PATIENCE):
        async for message in consumer:
            if message.body in bodies:
                found.append(message)
            if {each.body for each in found} == bodies:
                return found
    raise AssertionError("the consumer ended")


@pytest.mark.parametrize("headers", ["JSON", "ROCKETMQ", "MSGPACK"])
async def test_producer_and_consumer_with_least_rights(secured: Secured, headers: str) -> None:
    single, other, *batch = bodies = [unique_body() for _ in range(4)]
    async with (
        open_producer(**at(secured, PRODUCER, serialize_type=headers)) as producer,
        open_consumer(
            TOPIC, group=GROUP, **at(secured, CONSUMER, serialize_type=headers)
        ) as consumer,
    ):
        sent = await producer.send(Message(TOPIC, single, tags="a", keys="k1"))
        assert sent.status is SendStatus.SEND_OK
        await producer.send(Message(TOPIC, other, properties={"nothing": "你好"}))
        await producer.send_batch([Message(TOPIC, body) for body in batch])
        await received(consumer, set(bodies))
        last = unique_body()

        async def send_again() -> None:
            """A broker that is busy may drop what it need not answer."""
            while True:
                await producer.send_oneway(Message(TOPIC, last))
                await trio.sleep(1)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_again)
            await received(consumer, {last})
            nursery.cancel_scope.cancel()
        await consumer.commit()


@pytest.mark.parametrize("headers", ["JSON", "ROCKETMQ", "MSGPACK"])
async def test_message_is_found_by_its_key_and_id(secured: Secured, headers: str) -> None:
    key = f"key-{next(_NUMBERS)}"
    async with (
        open_client(**at(secured, BOTH, serialize_type=headers)) as client,
        open_producer(client=client) as producer,
        open_admin(client=client) as admin,
    ):
        sent = await producer.send(Message(TOPIC, b"x", keys=key))
        found = await until(lambda: admin.query_message(TOPIC, key))
        assert [each.message_id for each in found] == [sent.message_id]
        [by_id] = await admin.query_message(TOPIC, sent.message_id, is_unique_id=True)
        assert by_id.body == b"x"
        assert (await admin.view_message(sent.offset_message_id)).body == b"x"


async def test_failed_message_is_retried_and_ends_as_a_dead_letter(secured: Secured) -> None:
    bad = unique_body()
    times: list[int] = []

    async def handle(message: MessageExt) -> None:
        if message.body == bad:
            times.append(message.reconsume_times)
            raise ConsumeLater(timedelta(seconds=1))

    async def letters() -> list[MessageExt]:
        try:
            # Apache makes the topic of dead letters writable only; an operator opens it.
            async with open_admin(**at(secured, ADMIN)) as operator:
                await operator.create_topic(f"%DLQ%{GROUP}", perm=6)
            return await admin.dead_letters(GROUP).messages()
        except (RouteNotFoundError, ConfigError):
            return []

    async with (
        open_client(**at(secured, BOTH)) as client,
        open_admin(client=client) as admin,
        open_consumer(TOPIC, group=GROUP, client=client, max_reconsume_times=1) as consumer,
        open_producer(client=client) as producer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(consumer.run, handle)
        await producer.send(Message(TOPIC, bad))
        found = await until(letters)
        assert [each.body for each in found] == [bad]
        assert times == [0, 1]
        nursery.cancel_scope.cancel()


async def test_ordered_consumer_locks_its_queues(secured: Secured) -> None:
    bodies = [unique_body() for _ in range(5)]
    async with (
        open_producer(**at(secured, PRODUCER)) as producer,
        open_consumer(TOPIC, group=GROUP, orderly=True, **at(secured, CONSUMER)) as consumer,
    ):
        for body in bodies:
            await producer.send(Message(TOPIC, body), sharding_key="one")
        found = await received(consumer, set(bodies))
        assert [each.body for each in found] == bodies


async def test_transactions_are_committed_and_rolled_back(secured: Secured) -> None:
    good, bad = unique_body(), unique_body()

    async def check(message: MessageExt) -> TransactionState:
        return TransactionState.COMMIT

    async with (
        open_producer(group="paying", check_transaction=check, **at(secured, PRODUCER)) as producer,
        open_consumer(TOPIC, group=GROUP, **at(secured, CONSUMER)) as consumer,
    ):
        async with producer.transaction(Message(TOPIC, bad)) as transaction:
            transaction.rollback()
        async with producer.transaction(Message(TOPIC, good)):
            pass
        found = await received(consumer, {good})
        assert [each.body for each in found] == [good]


async def test_request_is_replied_to(secured: Secured) -> None:
    async with (
        open_client(**at(secured, BOTH)) as asking,
        open_client(**at(secured, BOTH)) as answering,
    ):
        body = unique_body()
        async with (
            open_producer(client=asking) as producer,
            open_producer(client=answering, group="answers") as replies,
            open_consumer(OTHER, group=GROUP, client=answering) as consumer,
            trio.open_nursery() as nursery,
        ):

            async def answer() -> None:
                [request] = await received(consumer, {body})
                await replies.reply(request, b"answer")

            nursery.start_soon(answer)
            with trio.fail_after(PATIENCE):
                reply = await producer.request(Message(OTHER, body), timeout=30)
            assert reply.body == b"answer"


async def test_traces_are_stored(secured: Secured) -> None:
    async with open_producer(**at(secured, PRODUCER, trace=True)) as producer:
        sent = await producer.send(Message(TOPIC, unique_body()))
    async with open_client(**at(secured, ADMIN)) as client, open_admin(client=client) as admin:
        assert await until(lambda: admin.query_message(TRACE_TOPIC, sent.message_id))


async def test_consumer_with_rights_receives_by_sql92(secured: Secured) -> None:
    wanted = unique_body()
    async with (
        open_producer(**at(secured, PRODUCER)) as producer,
        open_consumer(TOPIC, group=GROUP, where="size > 5", **at(secured, CONSUMER)) as consumer,
    ):
        await producer.send(Message(TOPIC, unique_body(), properties={"size": "4"}))
        await producer.send(Message(TOPIC, wanted, properties={"size": "6"}))
        [found] = await received(consumer, {wanted})
        assert found.properties["size"] == "6"


# --------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("credentials", "who"),
    [
        (Credentials(PRODUCER.access_key, "wrong-secret-1"), PRODUCER.access_key),
        (Credentials("nobody-knows", "wrong-secret-1"), "nobody-knows"),
        (None, "no credentials"),
    ],
)
async def test_unknown_account_is_refused_within_one_round_trip(
    secured: Secured, credentials: Credentials | None, who: str
) -> None:
    async with open_producer(**at(secured, credentials)) as producer:
        with pytest.raises(NotAuthenticatedError) as caught:
            await producer.send(Message(TOPIC, b"x"))
    for shown in (who, secured.master.address, TOPIC):
        assert shown in str(caught.value)
    assert "wrong-secret-1" not in str(caught.value)
    with pytest.raises(NotAuthenticatedError):
        async with open_consumer(TOPIC, group=GROUP, **at(secured, credentials)):
            raise AssertionError("It was opened")


async def test_denied_topic_is_refused_and_named(secured: Secured) -> None:
    async with open_producer(**at(secured, PRODUCER)) as producer:
        with pytest.raises(NotAuthorizedError, match=DENIED) as caught:
            await producer.send(Message(DENIED, b"x"))
        assert PRODUCER.access_key in str(caught.value)
        assert caught.value.topic == DENIED


async def test_consumer_with_one_denied_topic_of_two_names_it(secured: Secured) -> None:
    with pytest.raises(NotAuthorizedError, match=DENIED) as caught:
        async with open_consumer([TOPIC, DENIED], group=GROUP, **at(secured, CONSUMER)):
            raise AssertionError("It was opened")
    assert caught.value.topic == DENIED


async def test_reader_of_named_queues_without_the_right_is_refused(secured: Secured) -> None:
    queue = MessageQueue(DENIED, "broker-a", 0)

    async def read() -> None:
        async with open_consumer(
            DENIED, group=GROUP, queues=[queue], **at(secured, CONSUMER)
        ) as consumer:
            async for _ in consumer:
                raise AssertionError("It read")

    with trio.fail_after(PATIENCE), pytest.raises(NotAuthorizedError, match=DENIED):
        await read()


async def test_ordinary_account_creates_no_topic(secured: Secured) -> None:
    async with open_admin(**at(secured, PRODUCER)) as admin:
        with pytest.raises(NotAuthorizedError, match=PRODUCER.access_key):
            await admin.create_topic("of-nobody")


async def test_provider_gives_the_right_credentials_after_a_refusal(secured: Secured) -> None:
    given = iter([Credentials(PRODUCER.access_key, "wrong-secret-1"), PRODUCER])

    async def provider() -> Credentials:
        return next(given)

    async with open_producer(**at(secured, provider)) as producer:
        assert (await producer.send(Message(TOPIC, b"x"))).status is SendStatus.SEND_OK
