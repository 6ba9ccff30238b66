"""Heartbeats, pulls, offsets, locks as clients of other makes write them (RocketMQ reference, sections 2.3 to 2.14)."""

import json
import struct
from contextlib import suppress
from typing import Any

import trio
from tests.support.raw_client import (
    CPP,
    PULL,
    RawClient,
    broker_and_client,
    raw_client,
    records,
    request,
    without,
)
from tests.support.raw_frames import framed
from trio.testing import MockClock

from rocketrio_protocol.errors import NotReachableError

PULL_FIELDS = {"suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset"}
QUEUE = {"topic": "orders", "queueId": 0}
GROUP_QUEUE = {"consumerGroup": "g", **QUEUE}


def beat(**members: object) -> bytes:
    """A heartbeat of one consumer, as librocketmq writes it: enums as numbers, no empty collections."""
    subscription = {"topic": "orders", "subString": "*", "subVersion": "1700000000000"}
    consumer = {
        "groupName": "g", "consumeType": 1, "messageModel": 1, "consumeFromWhere": 0,
        "subscriptionDataSet": [subscription], **members,
    }  # fmt: skip
    return json.dumps({"clientID": "10.0.0.100@cpp", "consumerDataSet": [consumer]}).encode()


def java_beat(group: str, **members: object) -> bytes:
    """One of Java's, 5.3.3's with the members that only it has."""
    subscription = {
        "classFilterMode": False, "codeSet": [], "expressionType": "TAG", "subString": "*",
        "subVersion": 1700000000000, "tagsSet": [], "topic": "orders",
    }  # fmt: skip
    consumer = {
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "consumeType": "CONSUME_PASSIVELY", "groupName": group,
        "messageModel": "CLUSTERING", "subscriptionDataSet": [subscription], "unitMode": False,
    }  # fmt: skip
    return json.dumps(
        {"clientID": "j", "consumerDataSet": [consumer], "heartbeatFingerprint": 0, "producerDataSet": [],
         "withoutSub": False, **members}
    ).encode()  # fmt: skip


HEARTBEATS: dict[str, bytes] = {
    "C++": beat(),
    "Java 5": java_beat("g"),
    "nulls for what is empty": beat(unitMode=None, subscriptionDataSet=None),
    "numbers as texts": beat(consumeType="1", messageModel="1", consumeFromWhere="4", unitMode="0"),
    "enums by their names, no subscription": beat(consumeType="CONSUME_ACTIVELY", subscriptionDataSet=[]),
    "only what is required": b'{"clientID":"c","consumerDataSet":[{"groupName":"g"}]}',
    "blanks, and a NUL behind it": beat().replace(b",", b" ,\n ") + b"\0",
    "tags without their hashes": beat(
        subscriptionDataSet=[{"topic": "orders", "subString": "a || b", "tagsSet": ["a", "b"]}]
    ),
}  # fmt: skip


async def test_a_heartbeat_however_it_is_written(autojump_clock: MockClock) -> None:
    async with broker_and_client() as (cluster, _):
        for how, body in HEARTBEATS.items():
            async with raw_client(cluster.dial, cluster.master.broker.address) as client:
                told = await client.ask(34, None, body)
                assert (told.code, told.body) == (0, b""), (how, told)
                members = await client.ask(38, {"consumerGroup": "g"})
                assert members.code == 0, how
                assert json.loads(members.body)["consumerIdList"], how
            await trio.testing.wait_all_tasks_blocked()


async def test_empty_heartbeat_is_refused_and_the_connection_stays_open(
    autojump_clock: MockClock,
) -> None:
    async with broker_and_client() as (_, client):
        for body in (b"", b"{}", b"null", b"[]", b"clientID=c", b'{"clientID":null}'):
            told = await client.ask(34, None, body)
            assert told.code == 1, body
            assert "heartbeat cannot be read" in told.header["remark"], body
        assert (await client.ask(34, None, b'{"clientID":"nobody yet"}')).code == 0


async def test_heartbeat_routes_the_retry_topic_and_notifies_the_group(
    autojump_clock: MockClock,
) -> None:
    async with broker_and_client() as (cluster, client):
        await client.send(request(34, None, beat(), opaque=9))
        notified = await client.told()
        assert notified is not None
        # Oneway, and before the answer, as recorded traffic has it.
        assert (notified.code, notified.header["flag"], notified.fields) == (
            40,
            2,
            {"consumerGroup": "g"},
        )
        answered = await client.told()
        assert answered is not None
        assert (answered.code, answered.opaque, answered.is_answer) == (0, 9, True)
        await trio.sleep(1)
        async with raw_client(cluster.dial, cluster.name_server.addr) as asker:
            route = await asker.ask(105, {"topic": "%RETRY%g"})
            assert route.code == 0


async def test_slaves_take_heartbeats_and_know_members(autojump_clock: MockClock) -> None:
    async with (
        broker_and_client(slaves=1) as (cluster, _),
        raw_client(cluster.dial, cluster.slaves[0].broker.address) as client,
    ):
        assert (await client.ask(34, None, beat())).code == 0
        members = await client.ask(38, {"consumerGroup": "g"})
        assert json.loads(members.body) == {"consumerIdList": ["10.0.0.100@cpp"]}
        # Sends, decisions and what comes back are the master's.
        assert (await client.ask(310, CPP, b"x")).code == 14
        decision = {
            "producerGroup": "p",
            "tranStateTableOffset": 0,
            "commitLogOffset": 0,
            "commitOrRollback": 8,
            "msgId": "M",
        }
        assert (await client.ask(37, decision)).code == 11
        assert (await client.ask(36, {"offset": 0, "group": "g", "delayLevel": 0})).code == 1


async def send(client: RawClient, count: int) -> None:
    for number in range(count):
        assert (await client.ask(310, CPP, b"%d" % number)).code == 0


async def test_a_pull_however_it_is_written(autojump_clock: MockClock) -> None:
    texts = {name: str(value) for name, value in PULL.items()}
    forms: dict[str, tuple[int, dict[str, Any]]] = {
        "C++": (11, PULL),
        "Java": (11, {**texts, "expressionType": "TAG", "bname": "broker-a"}),
        "Java 5": (11, {**texts, "maxMsgBytes": "2147483647", "lo": "true", "ns": "x"}),
        "Java 5, lite pull": (361, {**texts, "sysFlag": "20", "expressionType": "TAG"}),
        "its stream": (11, {**texts, "ReqT": "0"}),
        "without an expression": (11, without(PULL, "subscription")),
        "with an empty one": (11, {**PULL, "subscription": "", "expressionType": ""}),
        "with a null for one": (11, {**PULL, "subscription": None, "expressionType": None}),
        "of real numbers": (11, {**PULL, "queueOffset": 0.0, "maxMsgNums": 32.0}),
    }
    async with broker_and_client() as (_, client):
        await send(client, 3)
        for how, (code, fields) in forms.items():
            told = await client.ask(code, fields)
            assert told.code == 0, (how, told)
            assert told.header["remark"] == "FOUND"
            assert told.fields.keys() >= PULL_FIELDS
            assert [each.body for each in records(told.body)] == [b"0", b"1", b"2"], how


async def test_all_four_fields_come_with_every_answer_that_has_a_place_to_go_on(
    autojump_clock: MockClock,
) -> None:
    async with broker_and_client() as (_, client):
        await send(client, 3)
        answers: dict[int, dict[str, Any]] = {
            0: {"queueOffset": 0},
            19: {"queueOffset": 3},
            20: {"subscription": "no-such-tag"},
            21: {"queueOffset": 99},
        }
        for code, fields in answers.items():
            told = await client.ask(11, {**PULL, **fields})
            assert told.code == code
            assert told.fields == {
                "suggestWhichBrokerId": "0",
                "nextBeginOffset": "3",
                "minOffset": "0",
                "maxOffset": "3",
            }


async def test_before_the_first_heartbeat(autojump_clock: MockClock) -> None:
    """Who brings its expression is served; who relies on a heartbeat gets the request to send one first (24)."""
    async with broker_and_client() as (_, client):
        await send(client, 1)
        assert (await client.ask(11, PULL)).code == 0
        refused = await client.ask(11, {**PULL, "sysFlag": 2, "subscription": None})
        assert (refused.code, refused.fields) == (24, {})
        assert (await client.ask(15, {**GROUP_QUEUE, "commitOffset": "1"})).code == 0
        assert (await client.ask(14, GROUP_QUEUE)).fields == {"offset": "1"}
        # as Apache: no member is there
        assert (await client.ask(38, {"consumerGroup": "g"})).code == 1
        assert (await client.ask(34, None, java_beat("g"))).code == 0
        late = await client.ask(11, {**PULL, "sysFlag": 2, "subVersion": 1700000000001})
        # a newer subscription than is known is served: clients choose by tag themselves
        assert late.code == 0


async def test_held_pull_is_answered_under_its_number_between_other_answers(
    autojump_clock: MockClock,
) -> None:
    async with broker_and_client() as (_, client):
        await send(client, 1)
        held = {**PULL, "queueOffset": 1, "sysFlag": 6, "suspendTimeoutMillis": 15_000}
        await client.send(request(11, held, opaque=41))
        assert (await client.ask(310, CPP, b"new", opaque=42)).opaque == 42
        told = await client.told()
        assert told is not None
        assert (told.code, told.opaque) == (0, 41)
        assert [each.body for each in records(told.body)] == [b"new"]


QUESTIONS: dict[str, tuple[int, dict[str, Any], int, dict[str, str]]] = {
    "committed offset of a young queue": (14, GROUP_QUEUE, 0, {"offset": "0"}),
    "the truth, as 5.x asks": (14, {**GROUP_QUEUE, "setZeroIfNotFound": "false"}, 22, {}),
    "the truth, as a boolean": (14, {**GROUP_QUEUE, "setZeroIfNotFound": False}, 22, {}),
    "max offset": (30, QUEUE, 0, {"offset": "3"}),
    "max offset, as 5.x asks": (30, {**QUEUE, "committed": "true"}, 0, {"offset": "3"}),
    "max offset of an unknown queue": (30, {"topic": "none", "queueId": "0"}, 0, {"offset": "0"}),
    "min offset": (31, QUEUE, 0, {"offset": "0"}),
    "min offset of an unknown queue": (31, {"topic": "none", "queueId": 0}, 0, {"offset": "-1"}),
    "offset by time": (29, {**QUEUE, "timestamp": 0}, 0, {"offset": "0"}),
    "offset by time, as 5.x asks": (29, {**QUEUE, "timestamp": "0", "boundaryType": "LOWER"}, 0, {"offset": "0"}),
    "offset by time of an unknown queue": (29, {"topic": "none", "queueId": 0, "timestamp": 5}, 0, {"offset": "0"}),
    "earliest time of an unknown queue": (32, {"topic": "none", "queueId": 0}, 0, {"timestamp": "-1"}),
}  # fmt: skip


async def test_offsets_are_answered_as_apache_answers_them(autojump_clock: MockClock) -> None:
    async with broker_and_client() as (_, client):
        await send(client, 3)
        for how, (code, fields, answer, told_fields) in QUESTIONS.items():
            told = await client.ask(code, fields)
            assert (told.code, told.fields) == (answer, told_fields), how


async def test_broker_that_ends_answers_no_query_of_an_offset_with_an_error(
    autojump_clock: MockClock,
) -> None:
    """4.x clients take every error for "no offset" and begin elsewhere: a broker that ends is silent instead."""
    async with broker_and_client() as (cluster, client):
        assert (await client.ask(310, CPP, b"x")).code == 0
        assert (await client.ask(15, {**GROUP_QUEUE, "commitOffset": 1})).code == 0
        answers: list[tuple[int, dict[str, str]]] = []
        some_came = trio.Event()

        async def ask_on() -> None:
            with suppress(NotReachableError):
                while True:
                    await client.send(request(14, GROUP_QUEUE))
                    told = await client.told()
                    if told is None:
                        return
                    answers.append((told.code, told.fields))
                    if len(answers) == 3:
                        some_came.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask_on)
            with trio.fail_after(5):
                await some_came.wait()
            await cluster.master.stop()
        assert all(answer == (0, {"offset": "1"}) for answer in answers)


async def test_locks_that_go_back_and_check_ups_in_their_least_form(
    autojump_clock: MockClock,
) -> None:
    mq_set = [{"topic": "orders", "brokerName": "broker-a", "queueId": "0"}]
    lock = {"consumerGroup": "g", "clientId": "c", "mqSet": mq_set, "namespace": None}
    async with broker_and_client() as (_, client):
        told = await client.ask(41, None, json.dumps(lock).encode())
        assert told.code == 0
        assert json.loads(told.body)["lockOKMQSet"][0]["queueId"] == 0
        assert (await client.ask(42, None, json.dumps(lock).encode())).code == 0
        nothing = await client.ask(41, None, b'{"consumerGroup":"g","clientId":"c","mqSet":null}')
        assert (nothing.code, json.loads(nothing.body)) == (0, {"lockOKMQSet": []})
        # A subscription to check, with nothing in it: Java's for tags.
        assert (
            await client.ask(46, None, b'{"clientId":"c","group":"g","subscriptionData":null}')
        ).code == 0
        sent = await client.ask(310, CPP, b"x")
        offset = int(sent.fields["msgId"][16:], 16)
        back = {
            "offset": offset,
            "group": "g",
            "delayLevel": "3",
            "originMsgId": "",
            "originTopic": "orders",
            "unitMode": "0",
        }
        assert (await client.ask(36, back)).code == 0
        for fields in (
            {"clientID": "c"},
            {"clientID": "c", "producerGroup": "", "consumerGroup": None},
        ):
            assert (await client.ask(35, fields)).code == 0


async def test_messages_are_found_by_key_and_place(autojump_clock: MockClock) -> None:
    times = {"maxNum": 32, "beginTimestamp": 0, "endTimestamp": 2**63 - 1}
    async with broker_and_client() as (_, client):
        sent = await client.ask(310, {**CPP, "i": "KEYS\x01k1 k2\x02UNIQ_KEY\x01U1"}, b"x")
        await trio.sleep(1)
        for key, extra in (
            ("k1", {}),
            ("k2", {"_UNIQUE_KEY_QUERY": "false"}),
            ("U1", {"_UNIQUE_KEY_QUERY": "true"}),
        ):
            told = await client.ask(12, {"topic": "orders", "key": key, **times, **extra})
            assert [each.body for each in records(told.body)] == [b"x"], key
        assert (await client.ask(12, {"topic": "orders", "key": "no", **times})).code == 22
        host, port, offset = struct.unpack(">4siq", bytes.fromhex(sent.fields["msgId"]))
        assert (host, port) == (bytes([10, 0, 0, 10]), 10911)
        told = await client.ask(33, {"offset": offset, "topic": "orders"})
        assert [each.body for each in records(told.body)] == [b"x"]
        assert (await client.ask(33, {"offset": str(offset + 1)})).code == 1


async def test_unknown_codes_are_answered_on_both_ports(autojump_clock: MockClock) -> None:
    async with (
        broker_and_client() as (cluster, client),
        raw_client(cluster.dial, "10.0.0.10:10909") as fast,
    ):
        for asker in (client, fast):
            for code in (-5, 0, 13, 400, 9999, 200_050, 2**31 - 1):
                told = await asker.ask(code, {"whatever": 1}, b"body")
                assert (told.code, told.header["remark"]) == (
                    3,
                    f" request type {code} not supported",
                )
        assert (await fast.ask(11, PULL)).code == 3  # pulls are for the other port
        assert (await fast.ask(310, CPP, b"x")).code == 0


async def test_request_with_any_form_of_ext_fields_is_answered(autojump_clock: MockClock) -> None:
    async with broker_and_client() as (_, client):
        for header in (
            b'"extFields":null,',
            b'"extFields":{},',
            b'"extFields":[],',
            b'"extFields":{"a":null},',
            b"",
        ):
            raw = b'{"code":28,%b"flag":0,"language":"GO","opaque":3,"version":0}' % header
            told = await client.asked(framed(raw))
            assert (told.code, told.opaque) == (0, 3), header
            assert "brokerVersionDesc" in json.loads(told.body)["table"]
