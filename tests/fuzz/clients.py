"""Targets that are whole clients: whatever a server answers or asks, calls end in a value or a documented error.

answers   the first line names a call, the rest is the frame that answers it (with the number of its request)
asks      a chunk that a broker sends by itself, to a client with a consumer and a producer
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import trio

from rocketrio import (
    ClientInstance,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    TransactionState,
    open_consumer,
    open_producer,
)
from rocketrio.admin.admin_calls import AdminCalls
from rocketrio_protocol.bodies.fastjson import dumps
from rocketrio_protocol.bodies.heartbeat import HeartbeatData
from rocketrio_protocol.bodies.topics import TopicConfig
from rocketrio_protocol.codes import RequestCode, ResponseCode
from rocketrio_protocol.commands.admin import (
    CheckLogRequestHeader,
    GetProducerConnectionListRequestHeader,
    HandOverRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
)
from rocketrio_protocol.commands.pull import PullMessageRequestHeader
from rocketrio_protocol.commands.query import QueryMessageRequestHeader, ViewMessageRequestHeader
from rocketrio_protocol.errors import Error
from rocketrio_protocol.headers import AnsweredWith
from rocketrio_protocol.message import decode_messages
from tests.fuzz import seeds
from tests.fuzz.lab import GROUP, PRODUCERS, TOPIC
from tests.fuzz.mutations import rebodied
from tests.fuzz.seeds import FRAME_WORDS, RECORD_WORDS
from tests.fuzz.target import Target, live, named, split_name
from tests.support.raw_client import request
from tests.support.raw_frames import is_answer
from tests.support.raw_server import ADDRESS, ROUTE, Answer, RawServer, server_and_client, told

_QUEUE: Final = MessageQueue(TOPIC, "broker-a", 0)
_OPAQUE: Final = re.compile(rb'"opaque":\s*-?\d+')
_PROBE_OPAQUE: Final = 1_234_567
_PATIENCE: Final = 120.0
"""Virtual seconds for one call with all that it tries again."""
_SETTLE: Final = 5.0
"""Virtual seconds until a consumer has its queues, or has done what it was asked."""

Call = Callable[[ClientInstance], Awaitable[object]]


def _read(header: AnsweredWith[object]) -> Call:
    return lambda client: client.api.read(ADDRESS, header, "asking")


def _admin(call: Callable[[AdminCalls], Awaitable[object]]) -> Call:
    return lambda client: call(AdminCalls(client.api))


async def _pull(client: ClientInstance) -> None:
    header = PullMessageRequestHeader(GROUP, TOPIC, 0, 0, 32, 4, 0, 0, 0, "*")
    decode_messages((await client.api.pull_message(ADDRESS, header, timeout=3)).body, "broker-a")


async def _send(client: ClientInstance) -> None:
    async with open_producer(client=client) as producer:
        await producer.send(Message(TOPIC, b"x"), queue=_QUEUE)


async def _send_batch(client: ClientInstance) -> None:
    async with open_producer(client=client) as producer:
        await producer.send_batch([Message(TOPIC, b"x"), Message(TOPIC, b"y")], queue=_QUEUE)


async def _send_by_route(client: ClientInstance) -> None:
    async with open_producer(client=client) as producer:
        await producer.send(Message(TOPIC, b"x"), timeout=3)


async def _receive_by_route(client: ClientInstance) -> None:
    async with open_consumer(TOPIC, group=GROUP, client=client) as consumer:
        with trio.move_on_after(_SETTLE):
            await consumer.receive()


async def _receive(client: ClientInstance) -> None:
    async with open_consumer(
        group=GROUP, queues=[_QUEUE], start_from="earliest", client=client
    ) as consumer:
        with trio.move_on_after(_SETTLE):
            for message in await consumer.receive_batch(4):
                assert message.body is not None
                assert message.properties is not None
        with trio.move_on_after(_SETTLE):
            await consumer.read_arrow()


_CALLS: Final[dict[str, tuple[int, Call]]] = {
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
    "offset": (14, lambda client: client.api.query_consumer_offset(ADDRESS, GROUP, _QUEUE)),
    "commit": (15, lambda client: client.api.update_consumer_offset(ADDRESS, GROUP, _QUEUE, 1)),
    "max_offset": (30, lambda client: client.api.queue_end(ADDRESS, _QUEUE, timeout=3)),
    "min_offset": (31, lambda client: client.api.min_offset(ADDRESS, _QUEUE)),
    "search_offset": (29, lambda client: client.api.search_offset(ADDRESS, _QUEUE, 1)),
    "earliest": (32, lambda client: client.api.earliest_store_time(ADDRESS, _QUEUE)),
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


def take_answers(data: bytes) -> None:
    """Answer a call with this."""
    name, frame = split_name(data)
    if name in _CALLS:
        live(_call, *_CALLS[name], frame)


async def _call(code: int, call: Call, frame: bytes) -> None:
    async with server_and_client() as (server, client):
        _be_ordinary(server, client)
        ordinary = dict(server.answers)
        server.answers[code] = [_as_answer(frame)]
        with suppress(Error), trio.fail_after(_PATIENCE):
            await call(client)
        server.answers = ordinary
        with trio.fail_after(_PATIENCE):
            await _wait_well(client)


async def _wait_well(client: ClientInstance) -> None:
    """Ask until there is an answer: what came may have begun a long frame, or have ended the connection."""
    while True:
        with suppress(Error):
            await client.api.min_offset(ADDRESS, _QUEUE)
            return
        await trio.sleep(1)


def _as_answer(frame: bytes) -> Answer:
    def answer(asked: dict[str, Any]) -> bytes:
        before = len(frame)
        changed = _OPAQUE.sub(b'"opaque":%d' % asked["opaque"], frame, 1)
        added = len(changed) - before
        if not added or len(changed) < 8:
            return changed
        head = bytearray(changed)
        for at, size in ((0, 4), (5, 3)):  # The number may be longer than the one that was there.
            length = int.from_bytes(head[at : at + size]) + added
            head[at : at + size] = (length % (1 << 8 * size)).to_bytes(size)
        return bytes(head)

    return answer


def _be_ordinary(server: RawServer, client: ClientInstance) -> None:
    """Answer as a broker with nothing to read does."""
    nothing = {
        "nextBeginOffset": "0",
        "minOffset": "0",
        "maxOffset": "0",
        "suggestWhichBrokerId": "0",
    }
    members = dumps({"consumerIdList": [client.client_id]})
    server.answers |= {
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: [told(body=members)],
        RequestCode.QUERY_CONSUMER_OFFSET: [told(fields={"offset": "0"})],
        RequestCode.UPDATE_CONSUMER_OFFSET: [told()],
        RequestCode.GET_MAX_OFFSET: [told(fields={"offset": "0"})],
        RequestCode.GET_MIN_OFFSET: [told(fields={"offset": "0"})],
        RequestCode.CONSUMER_SEND_MSG_BACK: [told()],
        RequestCode.SEND_MESSAGE_V2: [
            told(fields={"msgId": "0A", "queueId": "0", "queueOffset": "0"})
        ],
        RequestCode.PULL_MESSAGE: [told(ResponseCode.PULL_NOT_FOUND, nothing)],
    }
    server.held[RequestCode.PULL_MESSAGE] = 1.0


def take_asks(data: bytes) -> None:
    """Be a broker that asks its client this."""
    live(_be_asked, data)


async def _be_asked(data: bytes) -> None:
    async with server_and_client() as (server, client):
        _be_ordinary(server, client)
        async with (
            open_producer(client=client, group=PRODUCERS, check_transaction=_check) as producer,
            open_consumer(TOPIC, group=GROUP, client=client, start_from="earliest") as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(consumer.run, _handle)
            nursery.start_soon(_request, producer)
            await trio.sleep(_SETTLE)
            for transport in list(server.connections):
                nursery.start_soon(server.send, transport, data)
            await trio.sleep(_SETTLE)
            with trio.fail_after(_PATIENCE):
                await _wait_answered(server)
            nursery.cancel_scope.cancel()


async def _wait_answered(server: RawServer) -> None:
    """Ask the client how it is doing, over each of its connections, until it has answered."""
    probe = request(307, {"consumerGroup": GROUP, "clientId": "c"}, opaque=_PROBE_OPAQUE)
    while not any(
        header["opaque"] == _PROBE_OPAQUE and header["flag"] & 1 for header, _ in server.asked
    ):
        for transport in list(server.connections):
            await server.send(transport, probe)
        await trio.sleep(1)


async def _request(producer: Producer) -> None:
    """Wait for a reply, which makes the producer's group known as well."""
    with suppress(Error):
        await producer.request(Message(TOPIC, b"x"), queue=_QUEUE, timeout=_PATIENCE)


async def _check(message: MessageExt) -> TransactionState:
    return TransactionState.COMMIT


async def _handle(message: MessageExt) -> None:
    message.body  # noqa: B018
    message.properties  # noqa: B018


# --- good inputs -----------------------------------------------------------------------------


def _answer_seeds() -> Sequence[bytes]:
    recorded = [
        data for data in seeds.frames() if data[4] == 0 and is_answer(seeds.command_of(data))
    ]
    bodies = [*seeds.json_bodies()[:12], *seeds.records()[:3], ROUTE, b""]
    fields = {"offset": "1", "nextBeginOffset": "1", "minOffset": "0", "maxOffset": "9", "queueId": "0",
              "suggestWhichBrokerId": "0", "msgId": "7F00000100002A9F00000000000000FF", "queueOffset": "1",
              "timestamp": "1"}  # fmt: skip
    made = [told(fields=fields, body=body)({"opaque": 0}) for body in bodies]
    return [named(name, frame) for name in _CALLS for frame in (*made, *recorded[:4])]


CLIENTS: Final = (
    Target(
        "answers",
        take_answers,
        (*FRAME_WORDS, *RECORD_WORDS),
        _answer_seeds,
        is_framed=True,
        is_named=True,
        is_program=True,
    ),
    Target(
        "asks",
        take_asks,
        (*FRAME_WORDS, *RECORD_WORDS),
        lambda: [*seeds.pushes(), *(rebodied(push, 0) for push in seeds.pushes())],
        is_framed=True,
        is_program=True,
    ),
)
