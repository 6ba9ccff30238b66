"""Servers of other makes and versions, whose answers lack members or have more (RocketMQ reference, section 2).

Every answer is written by hand.
"""

import json
import struct
from typing import Any

import pytest
import trio
from tests.support.raw_frames import framed
from tests.support.raw_server import (
    ADDRESS,
    ROUTE,
    Answer,
    RawServer,
    server_and_client,
    told,
)
from trio.testing import MockClock

from rocketrio import (
    BrokerError,
    ClientInstance,
    Message,
    NotReachableError,
    RouteNotFoundError,
    SendStatus,
    open_admin,
    open_consumer,
    open_producer,
)
from rocketrio.cluster.api import NOT_FOUND
from rocketrio.routing import subscribe_queues
from rocketrio_protocol.commands.pull import PullMessageRequestHeader
from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.message import MessageQueue

QUEUE = MessageQueue("orders", "broker-a", 0)
STANDARD = ROUTE.replace(b"{0:", b'{"0":')
SENT = {"msgId": "0A00000100002A9F0000000000000000", "queueId": "0", "queueOffset": "5"}
PULLED = {"suggestWhichBrokerId": "0", "nextBeginOffset": "1", "minOffset": "0", "maxOffset": "1"}

ROUTES: dict[str, bytes] = {
    "4.9": ROUTE,
    "4.9.4 and later": STANDARD,
    "5.3.3": b'{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911"},"brokerName":"broker-a","cluster":"c",'
    b'"enableActingMaster":false,"zoneName":"z"}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a",'
    b'"perm":6,"readQueueNums":2,"topicSysFlag":0,"writeQueueNums":2}],"topicQueueMappingByBroker":{}}',
    "4.4": ROUTE.replace(b"topicSysFlag", b"topicSynFlag"),
    "nulls for what is not there": STANDARD.replace(
        b'"filterServerTable":{}', b'"filterServerTable":null'
    )[:-1]
    + b',"orderTopicConf":null,"topicQueueMappingByBroker":null}',
    "numbers as texts": ROUTE.replace(b":6,", b':"6",')
    .replace(b":2,", b':"2",')
    .replace(b"{0:", b'{"0" :'),
    "no table of filter servers": ROUTE.replace(b'"filterServerTable":{},', b""),
    "blanks and lines": ROUTE.replace(b",", b" ,\r\n ").replace(b"{0:", b"{ 0 : "),
    "a NUL behind it": ROUTE + b"\0",
    "a byte order mark": b"\xef\xbb\xbf" + STANDARD,
}


@pytest.mark.parametrize("how", ROUTES)
async def test_a_route_of_any_version_is_read(autojump_clock: MockClock, how: str) -> None:
    async with server_and_client() as (server, client):
        server.answers[105] = [told(body=ROUTES[how])]
        route = await client.topic_route("orders")
        assert subscribe_queues("orders", route) == [QUEUE, MessageQueue("orders", "broker-a", 1)]
        assert client.routing.find_broker_address_in_publish("broker-a") == ADDRESS
        (asked, body) = server.of(105)[0]
        # What is sent is strict: texts in the fields, a number for the rest.
        assert asked["extFields"] == {"topic": "orders", "acceptStandardJsonOnly": "true"}
        assert (asked["flag"], asked["language"], asked["version"], body) == (0, "PYTHON", 407, b"")


HEADERS: dict[str, bytes] = {
    "the least there can be": b'{"code":0,"flag":1,"opaque":%d}',
    "nulls": b'{"code":0,"flag":1,"opaque":%d,"extFields":null,"remark":null,"version":null}',
    "no fields, no remark": b'{"code":0,"flag":1,"language":"JAVA","opaque":%d,"version":0}',
    "a remark of a success": b'{"code":0,"flag":1,"opaque":%d,"remark":"not set any response code"}',
    "texts for numbers": b'{"code":"0","flag":"1","opaque":"%d"}',
    "an unknown language": b'{"code":0,"flag":1,"opaque":%d,"language":"ZIG"}',
    "members of the future": b'{"a":[{}],"code":0,"flag":1,"opaque":%d,"z":null}',
}


def with_header(header: bytes, body: bytes) -> Answer:
    return lambda asked: framed(header % asked["opaque"], body)


async def test_an_answers_header_may_be_bare(autojump_clock: MockClock) -> None:
    async with server_and_client() as (server, client):
        for how, header in HEADERS.items():
            server.answers[105] = [with_header(header, ROUTE)]
            assert await client.name_servers.topic_route("orders") is not None, how


async def test_every_answer_without_a_route_means_an_unknown_topic(
    autojump_clock: MockClock,
) -> None:
    async with server_and_client() as (server, client):
        for answer in (
            told(17, remark="No topic route info"),
            told(17),
            told(0),
            told(17, {}, b"null"),
        ):
            server.answers[105] = [answer]
            with pytest.raises(RouteNotFoundError, match="orders"):
                await client.topic_route("orders")
        server.answers[105] = [told(1)]
        with pytest.raises(BrokerError, match="the name server gave no route"):
            await client.topic_route("orders")
        for body in (b"{", b"[]", b"route", b'{"queueDatas":[{"perm":6}]}', b'{"brokerDatas":3}'):
            server.answers[105] = [told(body=body)]
            with pytest.raises(RemoteProtocolError, match="TopicRouteData"):
                await client.topic_route("orders")


@pytest.mark.parametrize("addr", ["", "host", ":1", "host:x", "host:65536", "10.0.0.1"])
async def test_an_address_that_cannot_be_dialled_is_the_name_servers_fault(
    autojump_clock: MockClock, addr: str
) -> None:
    """No setting of the client is wrong, as ConfigError would say."""
    async with server_and_client() as (server, client), open_admin(client=client) as admin:
        server.answers[105] = [told(body=ROUTE.replace(b"10.0.0.1:10911", addr.encode()))]
        server.answers[106] = [
            told(body=BODIES["brokers"][1].replace(b'0:"h:1"', b'0:"%b"' % addr.encode()))
        ]
        for ask in (client.topic_route("orders"), admin.status(), admin.brokers()):
            with pytest.raises(RemoteProtocolError, match="as an address of b"):
                await ask


SENDS: dict[str, tuple[int, object, SendStatus]] = {
    "4.9": (0, {**SENT, "MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}, SendStatus.SEND_OK),
    "5.3.3": (
        0, {**SENT, "MSG_REGION": "r", "TRACE_ON": "true", "transactionId": "T", "recallHandle": "h"},
        SendStatus.SEND_OK,
    ),
    "only what there must be": (0, SENT, SendStatus.SEND_OK),
    "numbers and booleans": (0, {**SENT, "queueId": 0, "queueOffset": 5, "TRACE_ON": True}, SendStatus.SEND_OK),
    "nulls": (0, {**SENT, "transactionId": None, "MSG_REGION": None}, SendStatus.SEND_OK),
    "a late disk": (10, SENT, SendStatus.FLUSH_DISK_TIMEOUT),
    "no slave": (11, SENT, SendStatus.SLAVE_NOT_AVAILABLE),
    "a late slave": (12, SENT, SendStatus.FLUSH_SLAVE_TIMEOUT),
}  # fmt: skip


async def test_answers_to_sends_are_read(autojump_clock: MockClock) -> None:
    async with server_and_client() as (server, client), open_producer(client=client) as producer:
        for how, (code, fields, status) in SENDS.items():
            server.answers[310] = [told(code, fields)]
            result = await producer.send(Message("orders", b"x"), queue=QUEUE)
            assert (result.status, result.queue_offset, result.queue) == (status, 5, QUEUE), how
            assert result.offset_message_id == SENT["msgId"]
        server.answers[310] = [told(2, None)]  # without a remark, and without fields
        with pytest.raises(BrokerError, match="SYSTEM_BUSY"):
            await producer.send(Message("orders", b"x"), queue=QUEUE)
        server.answers[310] = [told(0, {"msgId": "x"})]
        with pytest.raises(RemoteProtocolError, match="'queueId' is missing"):
            await producer.send(Message("orders", b"x"), queue=QUEUE)


async def pulled(client: ClientInstance) -> tuple[str, int, int]:
    header = PullMessageRequestHeader("g", "orders", 0, 0, 32, 4, 0, 0, 0, "*")
    result = await client.api.pull_message(ADDRESS, header, timeout=3)
    return result.status.name, result.next_begin_offset, result.suggest_which_broker_id


async def test_answers_to_pulls_are_read(autojump_clock: MockClock) -> None:
    of_5_x = {
        **PULLED,
        "topicSysFlag": "0",
        "groupSysFlag": "0",
        "offsetDelta": "0",
        "forbiddenType": None,
    }
    async with server_and_client() as (server, client):
        for code, status in {
            0: "FOUND",
            19: "NO_NEW_MSG",
            20: "NO_MATCHED_MSG",
            21: "OFFSET_ILLEGAL",
        }.items():
            for fields in (PULLED, of_5_x, {name: int(value) for name, value in PULLED.items()}):
                server.answers[11] = [told(code, fields)]
                assert await pulled(client) == (status, 1, 0)
        for code in (1, 2, 16, 24, 25, 26, 29, 215, 1500):
            server.answers[11] = [told(code, {} if code % 2 else None)]
            with pytest.raises(BrokerError) as caught:
                await pulled(client)
            assert caught.value.code == code
        server.answers[11] = [told(19)]
        with pytest.raises(RemoteProtocolError, match="'suggestWhichBrokerId' is missing"):
            await pulled(client)


async def test_answers_about_offsets_of_other_servers_are_distinguished(
    autojump_clock: MockClock,
) -> None:
    async with server_and_client() as (server, client):
        for answer, offset in (
            (told(0, {"offset": "7"}), 7),
            (told(0, {"offset": 7}), 7),
            (told(0, {"offset": "-1"}), NOT_FOUND),
            (
                told(
                    22, {}, remark="Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
                ),
                NOT_FOUND,
            ),
            (told(22), NOT_FOUND),
        ):
            server.answers[14] = [answer]
            assert await client.api.query_consumer_offset(ADDRESS, "g", QUEUE) == offset
        for code in (1, 2, 3, 17):
            server.answers[14] = [told(code)]
            with pytest.raises(BrokerError):
                await client.api.query_consumer_offset(ADDRESS, "g", QUEUE)
        server.answers[14] = [told(0)]
        with pytest.raises(RemoteProtocolError, match="'offset' is missing"):
            await client.api.query_consumer_offset(ADDRESS, "g", QUEUE)


BODIES: dict[str, tuple[int, bytes]] = {
    "members": (38, b'{"consumerIdList":["a","b"],"future":{0:1}}'),
    "no member": (38, b'{"consumerIdList":null}'),
    "a list of topics": (206, b'{"topicList":["T"],"brokerAddr":null}'),
    "brokers": (106, b'{"brokerAddrTable":{"b":{"brokerAddrs":{0:"h:1",1:"h:2"},"brokerName":"b","cluster":"c",'
                b'"enableActingMaster":false}},"clusterAddrTable":{"c":["b"]}}'),
}  # fmt: skip


async def test_bodies_of_answers_are_read(autojump_clock: MockClock) -> None:
    async with server_and_client() as (server, client):
        server.answers |= {code: [told(body=body)] for code, body in BODIES.values()}
        assert await client.api.consumer_ids(ADDRESS, "g") == []
        server.answers[38] = [told(body=BODIES["members"][1])]
        assert await client.api.consumer_ids(ADDRESS, "g") == ["a", "b"]
        async with open_admin(client=client) as admin:
            assert await admin.topics() == ["T"]
            assert (await admin.cluster_info()).broker_addr_table["b"].broker_addrs == {
                0: "h:1",
                1: "h:2",
            }


async def ask_client(server: RawServer, data: bytes) -> dict[str, Any] | None:
    """Ask a consumer over its own connection; its answer's header, if it gives one within a second."""
    before = len(server.asked)
    await server.send(server.connections[-1], data)
    await trio.sleep(1)
    answers = [header for header, _ in server.asked[before:] if header["flag"] & 1]
    return answers[0] if answers else None


def question(code: int, fields: object = None, body: bytes = b"", flag: object = 0) -> bytes:
    header = {
        "code": code,
        "extFields": fields,
        "flag": flag,
        "language": "JAVA",
        "opaque": 99,
        "version": 407,
    }
    return framed(json.dumps(header).encode(), body)


async def test_request_of_a_broker_is_answered_in_any_encoding(
    autojump_clock: MockClock,
) -> None:
    async with server_and_client() as (server, client):
        server.serve_idle(client)
        async with open_consumer("orders", group="g", client=client):
            await trio.sleep(1)
            for code in (3, 9999, -1, 2**31 - 1):
                unknown = await ask_client(server, question(code, {"a": 1}, b"?"))
                assert unknown is not None
                assert (unknown["code"], unknown["opaque"]) == (3, 99)
            # The members changed: oneway, also where the flag is a text or the field a number.
            for flag in (2, "2"):
                before = len(server.of(38))
                asked = question(40, {"consumerGroup": "g"}, flag=flag)
                assert await ask_client(server, asked) is None
                assert len(server.of(38)) > before
            for fields in ({"consumerGroup": 7}, {}, None):
                assert await ask_client(server, question(40, fields, flag=2)) is None
            # The flag may be missing, or no text; what else a tool writes is read past.
            for fields in ({}, {"jstackEnable": False}, {"jstackEnable": "false", "bname": "b"}):
                about = {"consumerGroup": "g", "clientId": client.client_id, **fields}
                info = await ask_client(server, question(307, about))
                assert info is not None
                assert (info["code"], info["opaque"]) == (0, 99)
            nobody = await ask_client(server, question(309, {"consumerGroup": "g"}, b""))
            assert nobody is not None
            assert (nobody["code"], "0 messages" in nobody["remark"]) == (1, True)
            wrong = await ask_client(server, question(220, {"topic": "orders"}, b"nothing"))
            assert wrong is not None
            assert (wrong["code"], "is missing" in wrong["remark"]) == (1, True)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        struct.pack(">ii", 1 << 30, 2) + b"{}",
        framed(b"{"),
        framed(b'{"flag":1}'),
        struct.pack(">ii", 10, 100) + b"{}{}{}",
    ],
)
async def test_a_server_that_makes_no_sense_is_not_reachable_and_named(
    autojump_clock: MockClock, data: bytes
) -> None:
    async with server_and_client() as (server, client):
        server.answers[105] = [lambda asked: data]
        with trio.fail_after(10), pytest.raises(NotReachableError, match=ADDRESS):
            await client.topic_route("orders")
        server.answers[105] = [told(body=ROUTE)]
        assert (await client.topic_route("orders")).queue_datas  # on a new connection
