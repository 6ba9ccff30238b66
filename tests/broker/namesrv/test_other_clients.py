"""The name server asked by clients and brokers of other makes (RocketMQ reference, sections 1.5 and 2.12).

Nothing here comes from our own encoder.
"""

import json
import struct
import zlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.support.raw_client import RawClient, raw_client, request, without
from tests.support.raw_frames import framed
from trio.testing import MockClock

from rocketrio_broker.embedded import CLIENT_HOST, EmbeddedCluster

BROKER_ADDR = f"{CLIENT_HOST}:40911"
REGISTRATION = {
    "brokerName": "other", "brokerAddr": BROKER_ADDR, "clusterName": "c", "haServerAddr": f"{CLIENT_HOST}:40912",
    "brokerId": 0,
}  # fmt: skip
TOPIC = {
    "topicName": "orders", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0, "order": False,
}  # fmt: skip
WRAPPER = {"dataVersion": {"counter": 1, "timestamp": 5}, "topicConfigTable": {"orders": TOPIC}}
BODY = json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": WRAPPER}).encode()
CHECKSUM = zlib.crc32(BODY) & 0x7FFFFFFF
CLASSIC = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"%b"},"brokerName":"other","cluster":"c","enableActingMaster":false}],'
    b'"filterServerTable":{},'
    b'"queueDatas":[{"brokerName":"other","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
) % BROKER_ADDR.encode()
STANDARD = CLASSIC.replace(b"{0:", b'{"0":')


@asynccontextmanager
async def name_server() -> AsyncGenerator[tuple[RawClient, RawClient]]:
    """Two connections: one that registers, one that asks."""
    async with EmbeddedCluster(cluster_name="lab") as cluster:
        address = cluster.name_server.addr
        async with (
            raw_client(cluster.dial, address) as broker,
            raw_client(cluster.dial, address) as client,
        ):
            yield broker, client


def compressed(topics: bytes) -> bytes:
    """The compressed form of section 2.12, for one topic."""
    parts = [b'{"counter":1,"timestamp":5}', topics, b"[]"]
    sized = [struct.pack(">i", len(part)) + part for part in parts]
    return zlib.compress(sized[0] + struct.pack(">i", 1) + sized[1] + sized[2], 9)


REGISTRATIONS: dict[str, tuple[dict[str, Any], bytes, int]] = {
    "4.9": ({"compressed": "false", "bodyCrc32": "0"}, BODY, 407),
    "only what is required": ({}, BODY, 333),
    "its checksum, as a number": ({"bodyCrc32": CHECKSUM}, BODY, 407),
    "5.x": (
        {"compressed": "false", "bodyCrc32": "0", "enableActingMaster": "false", "heartbeatTimeoutMillis": "10000"},
        json.dumps(
            {
                "filterServerList": [],
                "topicConfigSerializeWrapper": {
                    "dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": 5},
                    "mappingDataVersion": {"counter": 0, "stateVersion": 0, "timestamp": 5},
                    "topicConfigTable": {"orders": {**TOPIC, "attributes": {}}},
                    "topicQueueMappingDetailMap": {},
                    "topicQueueMappingInfoMap": {},
                },
            }
        ).encode(),
        479,
    ),
    "compressed": ({"compressed": "true"}, compressed(b"orders 4 4 6 SINGLE_TAG"), 407),
    "compressed, as a boolean": ({"compressed": True, "bodyCrc32": None}, compressed(b"orders 4 4 6 SINGLE_TAG"), 407),
    "before 3.0.11: the table alone": ({}, json.dumps(WRAPPER).encode(), 36),
    "nulls, and numbers as texts": (
        {"brokerId": "0"},
        json.dumps(
            {
                "filterServerList": None,
                "topicConfigSerializeWrapper": {
                    "dataVersion": {"counter": "1", "timestamp": "5"},
                    "topicConfigTable": {"orders": {**TOPIC, "readQueueNums": "4", "perm": "6", "order": None}},
                },
            }
        ).encode(),
        407,
    ),
}  # fmt: skip


@pytest.mark.slow
async def test_a_broker_registers_however_it_writes(autojump_clock: MockClock) -> None:
    for how, (fields, body, version) in REGISTRATIONS.items():
        async with name_server() as (broker, client):
            told = await broker.ask(103, {**REGISTRATION, **fields}, body, version=version)
            # A master gets no address of a master, and without a configuration of orders there is no body.
            assert (told.code, told.fields, told.body) == (0, {}, b""), (how, told)
            assert (await client.ask(105, {"topic": "orders"})).body == CLASSIC, how


async def test_registrations_that_are_damaged_change_nothing(autojump_clock: MockClock) -> None:
    damaged: dict[str, tuple[dict[str, Any], bytes]] = {
        "crc32 not match": ({"bodyCrc32": 1}, BODY),
        "'brokerId' is missing": ({"brokerId": None}, BODY),
        "registration cannot be read": ({}, BODY[:-2]),
        "registration cannot be read: Object missing required field": ({}, b"{}"),
        f"a ZLIB body of {len(BODY)} stored bytes is damaged": ({"compressed": "true"}, BODY),
    }
    async with name_server() as (broker, client):
        for remark, (fields, sent) in damaged.items():
            told = await broker.ask(103, {**REGISTRATION, **fields}, sent, version=407)
            assert (told.code, remark in told.header["remark"]) == (1, True), told
        assert (await client.ask(105, {"topic": "orders"})).code == 17


async def test_only_slaves_get_the_address_of_their_master(autojump_clock: MockClock) -> None:
    async with name_server() as (broker, client):
        slave = {**REGISTRATION, "brokerId": "1", "brokerAddr": f"{CLIENT_HOST}:40921"}
        assert (
            await client.ask(103, slave, BODY, version=407)
        ).fields == {}  # there is no broker 0 yet
        assert (await broker.ask(103, REGISTRATION, BODY, version=407)).fields == {}
        told = await client.ask(103, slave, BODY, version=407)
        assert told.fields == {
            "haServerAddr": REGISTRATION["haServerAddr"],
            "masterAddr": BROKER_ADDR,
        }


ROUTE_QUESTIONS: dict[str, tuple[bytes, bytes]] = {
    "C++, and all before 4.9.4": (request(105, {"topic": "orders"}, version=400), CLASSIC),
    "4.9.4": (request(105, {"topic": "orders"}, version=401), STANDARD),
    "5.x": (request(105, {"topic": "orders", "ns": "x", "lo": "true"}, version=479), STANDARD),
    "an older one that knows only JSON": (
        request(105, {"topic": "orders", "acceptStandardJsonOnly": "true"}, version=333), STANDARD
    ),
    "the same as a boolean": (request(105, {"topic": "orders", "acceptStandardJsonOnly": True}, version=0), STANDARD),
    "the same as a number": (request(105, {"topic": "orders", "acceptStandardJsonOnly": 1}, version=0), STANDARD),
    "it does not know": (request(105, {"topic": "orders", "acceptStandardJsonOnly": None}, version=0), CLASSIC),
    "no version": (framed(b'{"code":105,"opaque":1,"extFields":{"topic":"orders"}}'), CLASSIC),
    "a body that no broker reads": (request(105, {"topic": "orders"}, b"orders\0", version=0), CLASSIC),
}  # fmt: skip


async def test_routes_are_answered_in_the_form_that_their_reader_knows(
    autojump_clock: MockClock,
) -> None:
    async with name_server() as (broker, client):
        await broker.ask(103, REGISTRATION, BODY, version=407)
        for how, (data, body) in ROUTE_QUESTIONS.items():
            told = await client.asked(data)
            assert (told.code, told.fields, told.body) == (0, {}, body), how
        unknown = await client.ask(105, {"topic": "none"})
        assert (unknown.code, unknown.fields, unknown.body) == (17, {}, b"")
        assert unknown.header["remark"].startswith(
            "No topic route info in name server for the topic: none"
        )
        assert (await client.ask(105, None)).code == 1


async def test_lists_have_the_classic_form_for_all_clients(autojump_clock: MockClock) -> None:
    async with name_server() as (broker, client):
        await broker.ask(103, REGISTRATION, BODY, version=407)
        for version in (333, 479):
            cluster = await client.ask(106, None, version=version)
            assert b'"other":{"brokerAddrs":{0:"%b"}' % BROKER_ADDR.encode() in cluster.body
        assert "orders" in json.loads((await client.ask(206)).body)["topicList"]
        assert json.loads((await client.ask(224, {"cluster": "c"})).body)["topicList"] == ["orders"]


async def test_versions_of_topics_are_compared(autojump_clock: MockClock) -> None:
    async with name_server() as (broker, _):
        asked = without(REGISTRATION, "haServerAddr")
        await broker.ask(103, REGISTRATION, BODY, version=407)
        for body, changed in {
            b'{"counter":1,"timestamp":5}': "false",
            b'{"counter":"1","timestamp":"5"}': "false",
            b'{"counter":1,"stateVersion":0,"timestamp":5}': "false",
            b'{"counter":2,"timestamp":5}': "true",
            b"": "true",
        }.items():
            told = await broker.ask(322, asked, body)
            assert (told.code, told.fields) == (0, {"changed": changed}), body
            assert json.loads(told.body) == {"counter": 1, "stateVersion": 0, "timestamp": 5}


async def test_broker_that_unregisters_is_forgotten(autojump_clock: MockClock) -> None:
    async with name_server() as (broker, client):
        await broker.ask(103, REGISTRATION, BODY, version=407)
        leaving = {**without(REGISTRATION, "haServerAddr"), "brokerId": "0"}
        assert (await client.ask(104, leaving)).code == 1  # It is not the one who registered.
        assert (await client.ask(105, {"topic": "orders"})).code == 0
        assert (await broker.ask(104, leaving)).code == 0
        assert (await client.ask(105, {"topic": "orders"})).code == 17


async def test_configurations_are_kept_by_name(autojump_clock: MockClock) -> None:
    entry = {"namespace": "ORDER_TOPIC_CONFIG", "key": "orders", "value": "other:4"}
    async with name_server() as (broker, client):
        assert (await client.ask(101, entry)).code == 22
        assert (await client.ask(100, entry)).code == 0
        assert (await client.ask(101, entry)).fields == {"value": "other:4"}
        assert json.loads((await client.ask(219, entry)).body) == {"table": {"orders": "other:4"}}
        told = await broker.ask(103, REGISTRATION, BODY, version=407)
        assert json.loads(told.body) == {"table": {"orders": "other:4"}}
        assert (await client.ask(102, entry)).code == 0
        assert (await client.ask(101, entry)).code == 22


async def test_unknown_codes_are_answered(autojump_clock: MockClock) -> None:
    """4.x's name server leaves them without an answer, and their senders to their timeouts."""
    async with name_server() as (_, client):
        for code in (-1, 10, 11, 34, 217, 901, 904, 9999, 2**31 - 1):
            told = await client.ask(code, {"whatever": 1}, b"body")
            assert (told.code, told.fields) == (3, {}), code
        await client.send(request(9999, flag=2))  # oneway
        assert (await client.ask(206, opaque=8)).opaque == 8
