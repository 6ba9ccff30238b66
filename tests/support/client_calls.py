"""Calls of a client at one server, by a name, each with the code of the request that it depends on."""

from collections.abc import Awaitable, Callable
from typing import Final

import trio
from tests.support.raw_server import ADDRESS

from rocketrio import ClientInstance, Message, MessageQueue, open_consumer, open_producer
from rocketrio.admin.admin_calls import AdminCalls
from rocketrio_protocol.bodies.heartbeat import HeartbeatData
from rocketrio_protocol.bodies.topics import TopicConfig
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.commands.admin import (
    CheckLogRequestHeader,
    GetProducerConnectionListRequestHeader,
    HandOverRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
)
from rocketrio_protocol.commands.pull import PullMessageRequestHeader
from rocketrio_protocol.commands.query import QueryMessageRequestHeader, ViewMessageRequestHeader
from rocketrio_protocol.headers import AnsweredWith
from rocketrio_protocol.message import decode_messages

TOPIC, GROUP, PRODUCERS = "orders", "g", "p"
QUEUE: Final = MessageQueue(TOPIC, "broker-a", 0)
SETTLE: Final = 5.0
"""Virtual seconds until a consumer has its queues, or has done what it was asked."""

Call = Callable[[ClientInstance], Awaitable[object]]


def _read(header: AnsweredWith[object]) -> Call:
    return lambda client: client.api.read(ADDRESS, header, "asking")


def _admin(call: Callable[[AdminCalls], Awaitable[object]]) -> Call:
    return lambda client: call(AdminCalls(client.api))


async def _pull(client: ClientInstance) -> None:
    header = PullMessageRequestHeader(GROUP, TOPIC, 0, 0, 32, 4, 0, 0, 0, "*")
    result = await client.api.pull_message(ADDRESS, header, timeout=3)
    for message in decode_messages(result.body, "broker-a"):
        assert message.body is not None
        assert message.properties is not None
        assert message.message_id is not None


async def _send(client: ClientInstance) -> None:
    async with open_producer(client=client) as producer:
        await producer.send(Message(TOPIC, b"x"), queue=QUEUE)


async def _send_batch(client: ClientInstance) -> None:
    async with open_producer(client=client) as producer:
        await producer.send_batch([Message(TOPIC, b"x"), Message(TOPIC, b"y")], queue=QUEUE)


async def _send_by_route(client: ClientInstance) -> None:
    async with open_producer(client=client) as producer:
        await producer.send(Message(TOPIC, b"x"), timeout=3)


async def _receive_by_route(client: ClientInstance) -> None:
    async with open_consumer(TOPIC, group=GROUP, client=client) as consumer:
        with trio.move_on_after(SETTLE):
            await consumer.receive()


async def _receive(client: ClientInstance) -> None:
    async with open_consumer(
        group=GROUP, queues=[QUEUE], start_from="earliest", client=client
    ) as consumer:
        with trio.move_on_after(SETTLE):
            for message in await consumer.receive_batch(4):
                assert message.body is not None
                assert message.properties is not None
        with trio.move_on_after(SETTLE):
            await consumer.read_arrow()


CALLS: Final[dict[str, tuple[int, Call]]] = {
    "send": (310, _send),
    "send_batch": (320, _send_batch),
    "pull": (11, _pull),
    "receive": (11, _receive),
    "send_by_route": (105, _send_by_route),
    "receive_by_route": (105, _receive_by_route),
    "route": (105, lambda client: client.name_servers.topic_route(TOPIC)),
    "cluster": (106, lambda client: client.name_servers.cluster_info()),
    "all_topics": (206, lambda client: client.name_servers.topics()),
    "heartbeat": (34, lambda client: client.api.heartbeat(ADDRESS, HeartbeatData("c"))),
    "consumers": (38, lambda client: client.api.consumer_ids(ADDRESS, GROUP)),
    "offset": (14, lambda client: client.api.query_consumer_offset(ADDRESS, GROUP, QUEUE)),
    "commit": (15, lambda client: client.api.update_consumer_offset(ADDRESS, GROUP, QUEUE, 1)),
    "max_offset": (30, lambda client: client.api.queue_end(ADDRESS, QUEUE, timeout=3)),
    "min_offset": (31, lambda client: client.api.min_offset(ADDRESS, QUEUE)),
    "search_offset": (29, lambda client: client.api.search_offset(ADDRESS, QUEUE, 1)),
    "earliest": (32, lambda client: client.api.earliest_store_time(ADDRESS, QUEUE)),
    "topics": (21, _admin(lambda calls: calls.topics(ADDRESS))),
    "topic": (351, _admin(lambda calls: calls.topic(ADDRESS, TOPIC))),
    "new_topic": (17, _admin(lambda calls: calls.update_topic(ADDRESS, TopicConfig(TOPIC)))),
    "topic_stats": (202, _admin(lambda calls: calls.topic_stats(ADDRESS, TOPIC))),
    "groups": (201, _admin(lambda calls: calls.groups(ADDRESS))),
    "groups_of": (300, _read(QueryTopicConsumeByWhoRequestHeader(TOPIC))),
    "producers": (204, _read(GetProducerConnectionListRequestHeader(PRODUCERS))),
    "members": (203, _admin(lambda calls: calls.consumer_connections(ADDRESS, GROUP))),
    "runtime_info": (28, _admin(lambda calls: calls.runtime_info(ADDRESS))),
    "settings": (26, _admin(lambda calls: calls.broker_config(ADDRESS))),
    "ha_status": (907, _admin(lambda calls: calls.ha_status(ADDRESS))),
    "check_log": (RequestCode.CHECK_LOG, _read(CheckLogRequestHeader())),
    "events": (
        RequestCode.GET_EVENTS,
        _admin(lambda calls: calls.events(ADDRESS, after=0, since_ms=0, kinds=())),
    ),
    "hand_over": (
        RequestCode.HAND_OVER,
        _admin(lambda calls: calls.ask(ADDRESS, HandOverRequestHeader(1, dry_run=True), "asking")),
    ),
    "consume_stats": (208, _admin(lambda calls: calls.consume_stats(ADDRESS, GROUP, TOPIC))),
    "view": (33, _read(ViewMessageRequestHeader(0))),
    "query": (12, _read(QueryMessageRequestHeader(TOPIC, "k", 9, 0, 1))),
}
