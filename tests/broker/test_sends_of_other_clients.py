"""Sends as clients of other makes write them (RocketMQ reference, sections 1.2, 2.2 and 2.14), byte by byte.

Nothing here comes from our own encoder, and what was stored is read by the reference's table.
"""

import json
import struct
from typing import Any

import pytest
from tests.support.raw_client import (
    BORN_MS,
    CPP,
    PULL,
    RawClient,
    Record,
    batch_entry,
    broker_and_client,
    records,
    request,
    without,
)
from tests.support.raw_frames import framed
from trio.testing import MockClock

JAVA = {**{name: str(value) for name, value in CPP.items() if len(name) == 1}, "m": "false"}
LONG = {
    "producerGroup": "p", "topic": "orders", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "0",
    "sysFlag": "0", "bornTimestamp": str(BORN_MS), "flag": "0", "properties": CPP["i"], "reconsumeTimes": "0",
    "unitMode": "false",
}  # fmt: skip
STORED = b"KEYS\x01k\x02TAGS\x01t\x02CLUSTER\x01lab"
"""What 4.9 stores of these properties: WAIT is gone, CLUSTER in its place."""


def bare(**members: Any) -> bytes:
    """A header with these members and no other, but for the fields of a send."""
    return json.dumps({"code": 310, "opaque": 1, "extFields": CPP, **members}).encode()


async def stored(client: RawClient) -> list[Record]:
    return records((await client.ask(11, PULL)).body)


OF_5_X = {"bname": "elsewhere", "ns": "x", "nsd": "true", "oway": "false", "lo": "true"}
SINGLE_MESSAGES: dict[str, bytes] = {
    "Java": request(310, JAVA, b"body", language="JAVA", version=407),
    "C++": request(310, CPP, b"body"),
    "long names": request(10, LONG, b"body"),
    "long names, numbers and booleans": request(
        10, {**LONG, "queueId": 0, "sysFlag": 0, "bornTimestamp": BORN_MS, "unitMode": False, "batch": False}, b"body"
    ),
    "real numbers": request(310, {**CPP, "d": 4.0, "e": 0.0, "g": 1.7e12}, b"body"),
    "only what is required": request(310, without(CPP, "j", "k", "l", "m"), b"body"),
    "nulls": request(310, {**CPP, "j": None, "k": None, "l": None, "m": None, "n": None}, b"body"),
    "another broker's name": request(310, {**JAVA, "n": "elsewhere", **OF_5_X}, b"body"),
    "no version, no language, no flag": framed(bare(), b"body"),
    "nulls around the fields": framed(bare(flag=None, language=None, version=None, remark=None), b"body"),
    "texts around the fields": framed(bare(code="310", opaque="1", flag="0", version="0"), b"body"),
    "a language that no client has": request(310, CPP, b"body", language="KOTLIN", version=0),
    "a language as its number": request(310, CPP, b"body", language=9),
    "a version of the future": request(310, CPP, b"body", version=100_000),
    "objects among the fields": request(310, {**CPP, "z": {"a": [1]}, "y": []}, b"body"),
    "another order, blanks, a new line": framed(
        b' {"version" : 1,\n "extFields" : %b, "opaque":1,"code":310 }\r\n' % json.dumps(CPP).encode(), b"body"
    ),
    "a NUL behind the header": framed(bare() + b"\0", b"body"),
    "a byte order mark": framed(b"\xef\xbb\xbf" + bare(), b"body"),
    "a long header": request(310, {**CPP, "padding": "x" * (250 << 10)}, b"body"),
}  # fmt: skip


async def test_one_message_however_it_is_written(autojump_clock: MockClock) -> None:
    async with broker_and_client() as (_, client):
        for offset, (how, data) in enumerate(SINGLE_MESSAGES.items()):
            told = await client.asked(data)
            assert (told.code, told.opaque, told.header["flag"]) == (0, 1, 1), (how, told)
            assert told.fields["queueId"] == "0", how
            assert told.fields["queueOffset"] == str(offset), how
            assert (told.fields["MSG_REGION"], told.fields["TRACE_ON"]) == ("DefaultRegion", "true")
            assert len(told.fields["msgId"]) == 32
        for how, record in zip(SINGLE_MESSAGES, await stored(client), strict=True):
            assert (record.body, record.topic, record.born_ms) == (b"body", "orders", BORN_MS), how
            assert (record.flag, record.sys_flag, record.properties) == (0, 0, STORED), how


BATCH = batch_entry(b"one", b"KEYS\x01a") + batch_entry(b"two", b"KEYS\x01b\x02", flag=7)
BATCHES: dict[str, bytes] = {
    "Java": request(320, {**JAVA, "m": "true"}, BATCH),
    "C++": request(310, {**CPP, "m": "1"}, BATCH),
    "by its code alone": request(320, without(CPP, "m"), BATCH),
    "by its code, denied by its field": request(320, {**JAVA, "m": "false"}, BATCH),
    "a boolean": request(310, {**CPP, "m": True}, BATCH),
    "a number": request(310, {**CPP, "m": 1}, BATCH),
    "capitals": request(310, {**CPP, "m": "TRUE"}, BATCH),
    "long names": request(10, {**LONG, "batch": "true"}, BATCH),
    "without properties of its own": request(320, without(CPP, "i", "m"), BATCH),
}


async def test_a_batch_however_it_is_marked(autojump_clock: MockClock) -> None:
    async with broker_and_client() as (_, client):
        for count, (how, data) in enumerate(BATCHES.items()):
            told = await client.asked(data)
            assert told.code == 0, (how, told)
            assert told.fields["queueOffset"] == str(2 * count), how
            assert [len(each) for each in told.fields["msgId"].split(",")] == [32, 32], how
        found = await stored(client)
        assert [(each.body, each.flag) for each in found] == [(b"one", 0), (b"two", 7)] * len(
            BATCHES
        )
        assert all(each.properties.startswith(b"KEYS\x01") for each in found)


PROPERTIES: dict[str, tuple[str | None, bytes]] = {
    "none": (None, b"CLUSTER\x01lab"),
    "empty": ("", b"CLUSTER\x01lab"),
    "a separator at the end": ("KEYS\x01k\x02", b"CLUSTER\x01lab\x02KEYS\x01k"),
    "none at the end": ("KEYS\x01k", b"CLUSTER\x01lab\x02KEYS\x01k"),
    "nothing between two": ("KEYS\x01k\x02\x02", b"CLUSTER\x01lab\x02KEYS\x01k\x02"),
    "one before the first": ("\x02KEYS\x01k", b"CLUSTER\x01lab\x02\x02KEYS\x01k"),
    "a name without a value": (
        "KEYS\x01k\x02lonely\x02a\x01",
        b"CLUSTER\x01lab\x02KEYS\x01k\x02lonely\x02a\x01",
    ),
    "text beyond ASCII": (
        "KEYS\x01\u8ba2\u5355",
        "CLUSTER\x01lab\x02KEYS\x01\u8ba2\u5355".encode(),
    ),
    "names that no client defines": ("my.own-1\x01v", b"CLUSTER\x01lab\x02my.own-1\x01v"),
}


async def test_properties_with_odd_separators_are_kept(autojump_clock: MockClock) -> None:
    async with broker_and_client() as (_, client):
        for how, (text, _) in PROPERTIES.items():
            told = await client.ask(310, {**CPP, "i": text}, how.encode())
            assert told.code == 0, (how, told)
        for record, (how, (_, expected)) in zip(
            await stored(client), PROPERTIES.items(), strict=True
        ):
            assert (record.body, record.properties) == (how.encode(), expected)


async def test_properties_saved_in_another_encoding_are_stored_with_replacements(
    autojump_clock: MockClock,
) -> None:
    header = b'{"code":310,"opaque":1,"extFields":%b}' % json.dumps({**CPP, "i": "X"}).encode()
    async with broker_and_client() as (_, client):
        told = await client.asked(framed(header.replace(b'"X"', b'"KEYS\\u0001\xb6\xa9"'), b"body"))
        assert told.code == 0
        (record,) = await stored(client)
        assert record.properties == "CLUSTER\x01lab\x02KEYS\x01\ufffd\ufffd".encode()


REFUSED: dict[str, tuple[bytes, str]] = {
    "a required field is missing": (request(310, without(CPP, "g"), b"x"), "'g' is missing"),
    "it is null": (request(310, {**CPP, "g": None}, b"x"), "'g' is missing"),
    "no fields": (request(310, None, b"x"), "'a' is missing"),
    "an empty list of fields": (request(310, [], b"x"), "'a' is missing"),
    "short names under the code of long ones": (request(10, CPP, b"x"), "'producerGroup' is missing"),
    "long names under the code of short ones": (request(310, LONG, b"x"), "'a' is missing"),
    "a number that is none": (request(310, {**CPP, "e": "first"}, b"x"), "'e' is 'first', which is not a number"),
    "an empty number": (request(310, {**CPP, "j": ""}, b"x"), "'j' is '', which is not a number"),
    "more than 32 bits": (request(310, {**CPP, "e": 1 << 31}, b"x"), "which does not fit in 32 bits"),
    "half a number": (request(310, {**CPP, "f": 0.5}, b"x"), "'f' is '0.5', which is not a number"),
}  # fmt: skip


async def test_what_java_refuses_is_refused_by_name(autojump_clock: MockClock) -> None:
    async with broker_and_client() as (cluster, client):
        for how, (data, expected) in REFUSED.items():
            told = await client.asked(data)
            assert told.code == 1, (how, told)
            assert expected in told.header["remark"], how
            assert told.fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}, how
        assert cluster.master.broker.store.max_physical_offset == 0


BROKEN: dict[str, bytes] = {
    "an opaque beyond 32 bits": request(310, CPP, b"x", opaque=1 << 32),
    "no code": framed(b'{"extFields":{},"opaque":1}'),
    "a code that is none": framed(b'{"code":"send","opaque":1}'),
    "fields in a list": request(310, [CPP], b"x"),
    "half a header": framed(b'{"code":310,"opa'),
    "an unknown encoding": framed(b"{}", serialize_type=9),
    "a header that is longer than its frame": struct.pack(">iI", 10, 100) + b"{}4567",
    "a frame of 16 MiB and more": struct.pack(">iI", (16 << 20) - 3, 2) + b"{}",
    "a negative length": struct.pack(">iI", -5, 2) + b"{}",
}


@pytest.mark.parametrize("how", BROKEN)
async def test_what_cannot_be_answered_ends_its_connection_after_what_came_before(
    autojump_clock: MockClock, how: str
) -> None:
    async with broker_and_client() as (_, client):
        await client.send(request(310, CPP, b"before") + BROKEN[how])
        told = await client.told()
        assert told is not None
        assert told.code == 0
        assert await client.is_closed()


@pytest.mark.parametrize("size", [1, 7, 4096])
async def test_requests_in_pieces_and_in_one_go_are_answered_in_order(
    autojump_clock: MockClock, size: int
) -> None:
    opaques = [0, -1, 2**31 - 1, -(2**31), 5]
    data = b"".join(
        request(310, {**CPP, "e": number % 4}, b"%d" % number, opaque=opaque)
        for number, opaque in enumerate(opaques)
    )
    async with broker_and_client() as (_, client):
        for at in range(0, len(data), size):
            await client.send(data[at : at + size])
        told = [await client.told() for _ in opaques]
        assert [(each.opaque, each.code) for each in told if each] == [
            (opaque, 0) for opaque in opaques
        ]


async def test_binary_headers_are_answered_in_kind(autojump_clock: MockClock) -> None:
    """Section 1.3: i16 code, i8 language, i16 version, i32 opaque, i32 flag, remark, fields."""
    fields = {"queueId": "0", **JAVA, "l": ""}  # a value of no bytes is an absent one
    block = b"".join(
        struct.pack(">h", len(name))
        + name.encode()
        + struct.pack(">i", len(value))
        + value.encode()
        for name, value in fields.items()
    )
    header = struct.pack(">hbhiii", 310, 120, 407, 7, 0, 0) + struct.pack(">i", len(block)) + block
    async with broker_and_client() as (_, client):
        told = await client.asked(framed(header, b"binary", serialize_type=1))
        code, _, version, opaque, flag, _ = struct.unpack_from(">hbhiii", told.binary_header)
        assert (told.serialize_type, code, opaque, flag) == (1, 0, 7, 1)
        assert version >= 232  # below, Java clients use no SQL92
        assert b"\x00\x05msgId\x00\x00\x00\x20" in told.binary_header
        assert [each.body for each in await stored(client)] == [b"binary"]


async def test_oneway_sends_are_stored_and_answered_nothing(autojump_clock: MockClock) -> None:
    async with broker_and_client() as (_, client):
        refused = request(310, without(CPP, "a"), b"x", flag=2)
        await client.send(request(310, CPP, b"oneway", flag="2") + refused + request(9999, flag=2))
        (record,) = await stored(client)  # The first answer of all is that of the pull.
        assert record.body == b"oneway"


async def test_answers_without_a_request_are_skipped(autojump_clock: MockClock) -> None:
    async with broker_and_client() as (_, client):
        for flag in (1, 3):
            await client.send(request(0, {"x": "y"}, b"answer", flag=flag, opaque=77))
        assert (await client.ask(310, CPP, b"x", opaque=77)).code == 0
