"""Requests and replies over a cluster in memory: who gets which reply, and what happens without one."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from tests.support.clients import client_of
from tests.support.orders import make_topic

from rocketrio import (
    BrokerError,
    ClientInstance,
    Message,
    MessageExt,
    Producer,
    RequestTimeoutError,
    open_admin,
    open_consumer,
    open_producer,
)
from rocketrio.producing.request_reply import Replies
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.codes import RequestCode, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.send import PushReplyMessageRequestHeader
from rocketrio_protocol.errors import LocalProtocolError
from rocketrio_protocol.names import SELF_TEST_TOPIC

TOPIC = "questions"
Answerer = Callable[[Producer, MessageExt], Awaitable[None]]


async def in_capitals(producer: Producer, message: MessageExt) -> None:
    await producer.reply(message, message.body.upper(), properties={"by": "replier"})


@asynccontextmanager
async def replier(
    cluster: EmbeddedCluster, answer: Answerer = in_capitals
) -> AsyncIterator[trio.Nursery]:
    """A service of its own that consumes the topic and answers."""
    async with client_of(cluster) as client, open_admin(client=client) as admin:
        await admin.create_topic(TOPIC, queues=2)
        async with (
            open_producer(client=client, group="repliers") as producer,
            open_consumer(
                TOPIC, group="repliers", start_from="earliest", client=client
            ) as consumer,
            trio.open_nursery() as nursery,
        ):

            async def serve() -> None:
                async for message in consumer:
                    nursery.start_soon(answer, producer, message.copy())

            nursery.start_soon(serve)
            yield nursery
            nursery.cancel_scope.cancel()


async def test_reply_goes_to_the_requester(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async with replier(cluster), open_producer(client=client, group="askers") as producer:
        reply = await producer.request(Message(TOPIC, b"hello", tags="t", keys="k"))
    assert reply.body == b"HELLO"
    assert reply.topic == "DefaultCluster_REPLY_TOPIC"
    properties = reply.properties
    assert properties["by"] == "replier"
    assert properties["MSG_TYPE"] == "reply"
    assert int(properties["ARRIVE_TIME"]) >= int(properties["PUSH_REPLY_TIME"]) > 0
    assert reply.born_time_ms <= reply.store_time_ms


async def test_each_of_many_requests_gets_its_own_reply(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async def late_ones_first(producer: Producer, message: MessageExt) -> None:
        await trio.sleep(1 / (int(message.body) + 1))
        await producer.reply(message, b"re: " + message.body)

    replies: dict[int, bytes] = {}
    async with replier(cluster, late_ones_first), open_producer(client=client) as producer:

        async def ask(number: int) -> None:
            replies[number] = (await producer.request(Message(TOPIC, b"%d" % number))).body

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(ask, number)
    assert replies == {number: b"re: %d" % number for number in range(20)}


async def test_large_reply_travels_compressed(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async def at_length(producer: Producer, message: MessageExt) -> None:
        await producer.reply(message, b"at length " * 10_000)

    async with replier(cluster, at_length), open_producer(client=client) as producer:
        reply = await producer.request(Message(TOPIC, b"?"))
    assert reply.body == b"at length " * 10_000
    assert len(reply.stored_body) < 10_000


async def test_request_without_reply_ends_in_time(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async def never(producer: Producer, message: MessageExt) -> None:
        await trio.lowlevel.checkpoint()

    async with replier(cluster, never), open_producer(client=client) as producer:
        started = trio.current_time()
        with pytest.raises(
            RequestTimeoutError, match=r"no reply to message \w+ within 2 s"
        ) as caught:
            await producer.request(Message(TOPIC, b"?"), timeout=2)
        assert trio.current_time() - started == pytest.approx(2, abs=0.1)
    assert caught.value.topic == TOPIC


async def test_late_or_repeated_reply_is_ignored(
    client: ClientInstance, cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async def late_and_twice(producer: Producer, message: MessageExt) -> None:
        if message.body == b"late":
            await trio.sleep(3)
        for number in range(2):
            await producer.reply(message, b"%d" % number)

    with caplog.at_level(logging.INFO, "rocketrio.producer"):
        async with replier(cluster, late_and_twice), open_producer(client=client) as producer:
            with pytest.raises(RequestTimeoutError):
                await producer.request(Message(TOPIC, b"late"), timeout=1)
            assert (await producer.request(Message(TOPIC, b"twice"))).body == b"0"
            await trio.sleep(5)
    assert caplog.text.count("unexpected reply") == 3


async def test_cancelled_request_is_forgotten(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async with replier(cluster), open_producer(client=client) as producer:
        with trio.CancelScope() as scope:
            scope.cancel()
            await producer.request(Message(TOPIC, b"?"))
        assert client.shared(Replies)._expected == {}
        assert (await producer.request(Message(TOPIC, b"again"))).body == b"AGAIN"


async def test_reply_to_a_requester_that_is_gone_is_an_error(cluster: EmbeddedCluster) -> None:
    failures: list[Exception] = []

    async def too_late(producer: Producer, message: MessageExt) -> None:
        await trio.sleep(10)
        try:
            await producer.reply(message, b"")
        except BrokerError as error:
            failures.append(error)

    async with replier(cluster, too_late):
        async with client_of(cluster) as asker, open_producer(client=asker) as producer:
            with pytest.raises(RequestTimeoutError):
                await producer.request(Message(TOPIC, b"?"), timeout=1)
        await trio.sleep(30)
    assert "not pushed" in str(failures[0])


async def test_message_without_a_request_gets_no_reply(client: ClientInstance) -> None:
    await make_topic(client, TOPIC, queues=1)
    async with open_producer(client=client) as producer:
        sent = await producer.send(Message(TOPIC, b"x"))
        async with open_consumer(
            TOPIC, group="g", queues=[sent.queue], start_from="earliest", client=client
        ) as consumer:
            message = await consumer.receive()
        with pytest.raises(LocalProtocolError, match="does not request a reply"):
            await producer.reply(message, b"")


async def test_requester_makes_itself_known_to_all_masters(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    # The broker that gets the reply need not be the one that got the request.
    async with replier(cluster), open_producer(client=client) as producer:
        await producer.request(Message(TOPIC, b"?"))
    assert SELF_TEST_TOPIC in client.routing.topic_route_table  # Every broker is in its route.


async def test_client_can_be_known_before_it_sends_anything(cluster: EmbeddedCluster) -> None:
    async with (
        client_of(cluster) as client,
        open_producer(client=client, group="askers"),
    ):
        await client.announce_producer("askers")
        broker = cluster.master.broker
        assert client.heartbeat.acknowledged_by == {broker.address}


async def test_push_with_an_unreadable_host_is_taken(client: ClientInstance) -> None:
    async with open_producer(client=client) as producer:
        with trio.move_on_after(0.1):
            await producer.request(Message(TOPIC, b""))
        header = PushReplyMessageRequestHeader(
            "g", "lab_REPLY_TOPIC", "TBW102", 4, 0, 0, 1, 0, "nowhere", "/10.0.0.1:5", 2,
            properties="CORRELATION_ID\x01mine\x02",
        )  # fmt: skip
        processor = client.processors[int(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)]
        with client.shared(Replies).expecting("mine") as expected:
            for body in (b"body", b"second"):
                answer = processor(None, RemotingCommand.request(header, body))  # type: ignore[arg-type]
        assert isinstance(answer, RemotingCommand)
        assert answer.code == ResponseCode.SUCCESS
        assert expected.reply is not None
        assert expected.reply.body == b"body"  # The first one counts.
        assert expected.reply.born_host == ("0.0.0.0", 0)
        assert expected.reply.store_host == ("10.0.0.1", 5)
