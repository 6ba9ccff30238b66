"""Recorded answers with faults in them: each call has a value or an error of its own, in time; the next one works."""

import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import trio
from hypothesis import given
from hypothesis import strategies as st
from tests.golden.golden import VERSIONS, remoting_frames
from tests.golden.mutations import Fault, damaged, faults, same_faults_each_run
from tests.support.raw_server import ADDRESS, ROUTE, Answer, server_and_client, told
from tests.support.request_headers import COMMANDS
from trio.testing import MockClock

from rocketrio import ClientInstance, Message, NotReachableError, open_producer
from rocketrio.cluster.connections import TIMEOUTS_IN_A_ROW
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.heartbeat import HeartbeatData
from rocketrio_protocol.bodies.route import KVTable
from rocketrio_protocol.bodies.stats import ConsumerConnection, ConsumeStats, TopicStatsTable
from rocketrio_protocol.bodies.topics import SubscriptionGroupWrapper, TopicConfigSerializeWrapper
from rocketrio_protocol.commands.pull import PullMessageRequestHeader
from rocketrio_protocol.errors import Error
from rocketrio_protocol.message import MessageQueue, decode_messages

PATIENCE = 20.0
"""Virtual seconds for one call, whatever its own timeout."""
QUEUE = MessageQueue("orders", "broker-a", 0)
OPAQUE = re.compile(rb'"opaque":-?\d+')


async def pull(client: ClientInstance) -> None:
    header = PullMessageRequestHeader("g", "orders", 0, 0, 32, 4, 0, 0, 0, "*")
    result = await client.api.pull_message(ADDRESS, header, timeout=3)
    for message in decode_messages(result.body, "broker-a"):
        assert message.body is not None
        assert message.properties is not None
        assert message.message_id


async def send(client: ClientInstance) -> None:
    async with open_producer(client=client) as producer:
        await producer.send(Message("orders", b"x"), queue=QUEUE)


def body_of(code: int, kind: Any) -> Callable[[ClientInstance], Awaitable[object]]:
    """A question of an admin, whose answer's body is read."""

    async def ask(client: ClientInstance) -> object:
        header_class = COMMANDS[code][0]  # type: ignore[index]
        fields = {"topic": "orders", "consumerGroup": "g", "group": "g"}
        header = header_class.from_ext_fields(fields)
        answer = await client.api.call(ADDRESS, header, what="asking")
        if hasattr(kind, "from_json"):
            return kind.from_json(answer.body)
        return fastjson.loads(answer.body, kind)

    return ask


CALLS: dict[int, Callable[[ClientInstance], Awaitable[object]]] = {
    11: pull,
    14: lambda client: client.api.query_consumer_offset(ADDRESS, "g", QUEUE),
    21: body_of(21, TopicConfigSerializeWrapper),
    28: body_of(28, KVTable),
    29: lambda client: client.api.search_offset(ADDRESS, QUEUE, 1),
    30: lambda client: client.api.max_offset(ADDRESS, QUEUE),
    31: lambda client: client.api.min_offset(ADDRESS, QUEUE),
    32: lambda client: client.api.earliest_store_time(ADDRESS, QUEUE),
    34: lambda client: client.api.heartbeat(ADDRESS, HeartbeatData("c")),
    38: lambda client: client.api.consumer_ids(ADDRESS, "g"),
    105: lambda client: client.name_servers.topic_route("orders"),
    106: lambda client: client.name_servers.cluster_info(),
    201: body_of(201, SubscriptionGroupWrapper),
    202: body_of(202, TopicStatsTable),
    203: body_of(203, ConsumerConnection),
    206: lambda client: client.name_servers.topics(),
    208: body_of(208, ConsumeStats),
    310: send,
}


def recorded_answers() -> dict[int, bytes]:
    """The longest answer to each code that a rocketrio client asks."""
    asked: dict[tuple[str, int, bytes], int] = {}
    found: dict[int, list[bytes]] = {code: [] for code in CALLS}
    for version in VERSIONS:
        for frame in remoting_frames(version):
            code, opaque = (
                re.search(rb'"%b":(-?\d+)' % name, frame.data) for name in (b"code", b"opaque")
            )
            if code is None or opaque is None:
                continue
            where = version, frame.connection, opaque[1]
            if frame.from_dialer:
                asked[where] = int(code[1])
            elif asked.get(where) in found and code[1] == b"0":
                found[asked[where]].append(frame.data)
    return {code: max(frames, key=len) for code, frames in found.items()}


ANSWERS = recorded_answers()
FAULTS = st.lists(faults, min_size=len(ANSWERS), max_size=len(ANSWERS))


def with_faults(frame: bytes, changes: list[Fault]) -> Answer:
    """The recorded answer to this request, damaged."""

    def answer(asked: dict[str, Any]) -> bytes:
        opaque = b'"opaque":%d' % asked["opaque"]
        added = len(opaque) - len(OPAQUE.search(frame)[0])  # type: ignore[index]
        head = int.from_bytes(frame[:4]) + added, int.from_bytes(frame[4:8]) + added
        whole = b"".join(number.to_bytes(4) for number in head) + OPAQUE.sub(opaque, frame[8:], 1)
        return damaged(whole, changes)

    return answer


def test_each_call_is_recorded() -> None:
    assert ANSWERS.keys() == CALLS.keys()

    async def main() -> None:
        async with server_and_client() as (server, client):
            for code, call in CALLS.items():
                server.answers[code] = [with_faults(ANSWERS[code], [])]
                await call(client)  # Undamaged, each is read.
                server.answers[105] = [told(body=ROUTE)]

    trio.run(main, clock=MockClock(autojump_threshold=0))


@same_faults_each_run(3)
@given(FAULTS)
def test_a_client_survives_damaged_answers(seen: list[list[Fault]]) -> None:
    async def main() -> None:
        async with server_and_client() as (server, client):
            for (code, frame), changes in zip(ANSWERS.items(), seen, strict=True):
                before = server.answers.get(code, [])
                server.answers[code] = [with_faults(frame, changes)]
                with trio.fail_after(PATIENCE), suppress(Error):
                    await CALLS[code](client)
                server.answers[code] = before
                with trio.fail_after(PATIENCE):
                    # A frame that claims more takes the answer behind it along: two timeouts end the connection.
                    for _ in range(TIMEOUTS_IN_A_ROW):
                        with suppress(NotReachableError):
                            await client.name_servers.topic_route("orders")
                    assert await client.name_servers.topic_route("orders") is not None

    trio.run(main, clock=MockClock(autojump_threshold=0))
