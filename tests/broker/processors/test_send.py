"""Sends against a broker in memory: what is stored, what is refused, and with which code."""

import re

import pytest
import trio
from tests.support.caller import Caller, bodies, caller_of, messages
from trio.testing import MockClock

from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_broker.processors import send
from rocketrio_broker.processors.send import IN_STEPS_LIMIT
from rocketrio_broker.store import put_batch
from rocketrio_broker.store.refusals import Refuser
from rocketrio_protocol.codes import ResponseCode, SerializeType
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.admin import CreateTopicRequestHeader
from rocketrio_protocol.commands.send import (
    SendBatchMessageRequestHeader,
    SendMessageRequestHeader,
)
from rocketrio_protocol.record.batch import encode_batch
from rocketrio_protocol.record.message_id import parse_offset_message_id
from rocketrio_protocol.remoting.pool import open_channel_pool

ERROR_FIELDS = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


async def test_stored_message_is_what_was_sent(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        addr = cluster.master.broker.address
        answer = await caller.send(
            addr, b"hello", properties="KEYS\x01k\x02WAIT\x01true\x02TAGS\x01t", flag=7, queue_id=2
        )
        assert answer.code == ResponseCode.SUCCESS
        assert answer.ext_fields["queueId"] == "2"
        assert answer.ext_fields["queueOffset"] == "0"
        assert parse_offset_message_id(answer.ext_fields["msgId"]) == ("10.0.0.10", 10911, 0)
        (message,) = messages(await caller.pull(addr, 0, queue_id=2))
        assert (message.body, message.flag, message.keys, message.tags) == (b"hello", 7, "k", "t")
        assert message.properties == {"KEYS": "k", "CLUSTER": "DefaultCluster", "TAGS": "t"}
        assert message.born_host[0] == "10.0.0.100"


@pytest.mark.parametrize("serialize_type", list(SerializeType))
async def test_answer_names_the_unique_key_as_the_transaction_of_the_message(
    autojump_clock: MockClock, serialize_type: SerializeType
) -> None:
    marks = {"delayed": "\x02DELAY\x013", "half": "\x02TRAN_MSG\x01true\x02PGROUP\x01p"}
    async with (
        EmbeddedCluster() as cluster,
        open_channel_pool(cluster.dial, serialize_type=serialize_type) as pool,
    ):
        caller, addr = Caller(pool), cluster.master.broker.address
        for kind in ("plain", "delayed", "half", "batch"):
            is_batch = kind == "batch"
            body = (
                encode_batch([(0, b"a", b"UNIQ_KEY\x01ONE"), (0, b"b", b"")]) if is_batch else b"x"
            )
            answer = await caller.send(
                addr, body, properties=f"UNIQ_KEY\x017F0001{marks.get(kind, '')}",
                sys_flag=4 if kind == "half" else 0, batch=is_batch,
            )  # fmt: skip
            assert (answer.code, answer.ext_fields["transactionId"]) == (0, "7F0001"), kind
            without = await caller.send(addr, body, properties="TAGS\x01t", batch=is_batch)
            assert "transactionId" not in without.ext_fields, kind


async def test_puts_are_counted_by_how_long_they_took(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        addr, store = cluster.master.broker.address, cluster.master.broker.store
        assert store.runtime_info()["putMessageDistributeTime"] == "null"
        await caller.send(addr, b"a")
        await caller.send(addr, encode_batch([(0, b"b", b""), (0, b"c", b"")]), batch=True)
        await trio.sleep(71)
        told = store.runtime_info()["putMessageDistributeTime"]
        assert sum(int(count) for count in re.findall(r":(\d+) ", told)) == 2


async def test_long_header_and_code_10_store_the_same(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        addr = cluster.master.broker.address
        header = SendMessageRequestHeader(
            "p", "orders", "TBW102", 4, 0, 0, 1, 0, "a\x01b", 0, batch=False
        )
        assert (await caller.pool.call(addr, header, b"x")).code == ResponseCode.SUCCESS
        assert bodies(await caller.pull(addr, 0)) == [b"x"]


@pytest.mark.parametrize("serialize_type", list(SerializeType))
async def test_answer_has_the_encoding_of_its_request(
    autojump_clock: MockClock, serialize_type: SerializeType
) -> None:
    async with (
        EmbeddedCluster() as cluster,
        open_channel_pool(cluster.dial, serialize_type=serialize_type) as pool,
    ):
        caller, addr = Caller(pool), cluster.master.broker.address
        await caller.send(addr, b"one")
        answer = await caller.send(addr, b"two")
        assert (answer.serialize_type, answer.code) == (serialize_type, ResponseCode.SUCCESS)
        pulled = await caller.pull(addr, 0)
        assert (pulled.serialize_type, bodies(pulled)) == (serialize_type, [b"one", b"two"])


@pytest.mark.parametrize("by_code", [True, False])
async def test_batch_is_stored_message_by_message(autojump_clock: MockClock, by_code: bool) -> None:
    entries = [(number, b"body-%d" % number, b"KEYS\x01k%d" % number) for number in range(3)]
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        addr = cluster.master.broker.address
        if by_code:
            header = SendBatchMessageRequestHeader(
                "p", "orders", "TBW102", 4, 1, 0, 1, 0, "WAIT\x01true"
            )
            answer = await caller.pool.call(addr, header, encode_batch(entries))
        else:
            answer = await caller.send(
                addr, encode_batch(entries), queue_id=1, properties="WAIT\x01true", batch=True
            )
        assert answer.code == ResponseCode.SUCCESS
        ids = answer.ext_fields["msgId"].split(",")
        found = messages(await caller.pull(addr, 0, queue_id=1))
        assert [message.offset_message_id for message in found] == ids
        assert [(m.flag, m.body, m.keys) for m in found] == [
            (0, b"body-0", "k0"),
            (1, b"body-1", "k1"),
            (2, b"body-2", "k2"),
        ]
        assert found[0].properties["CLUSTER"] == "DefaultCluster"


MANY = [(0, b"x" * (number % 2), b"TAGS\x01t%d" % number) for number in range(7_000)]
"""More than are parsed in one step."""


@pytest.mark.parametrize("room", [IN_STEPS_LIMIT, 0])
async def test_others_are_answered_while_a_large_batch_is_parsed_where_there_is_room(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    done: list[str] = []
    hash_tags = put_batch._tags_codes

    def hash_and_note(every: list[bytes]) -> list[int]:
        done.append("step")
        return hash_tags(every)

    monkeypatch.setattr(put_batch, "_tags_codes", hash_and_note)
    monkeypatch.setattr(put_batch, "HASHED_AT_ONCE", 1 << 10)
    monkeypatch.setattr(send, "IN_STEPS_LIMIT", room)
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        broker = cluster.master.broker

        async def send_small() -> None:
            async with caller_of(cluster) as other:
                while True:
                    await other.send(broker.address, b"", topic="others")
                    done.append("small")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_small)
            for _ in range(2):
                answer = await caller.send(broker.address, encode_batch(MANY), batch=True)
                assert answer.code == ResponseCode.SUCCESS
            nursery.cancel_scope.cancel()
        assert done.count("step") > 100
        first = done.index("step")
        assert ("small" in done[first : first + 50]) == (room > 0)
        assert broker.store.queue_bounds("orders", 0) == (0, 2 * len(MANY))
        found = messages(await caller.pull(broker.address, len(MANY) - 1))
        assert [message.tags for message in found[:3]] == ["t6999", "t0", "t1"]


@pytest.mark.parametrize("good", [[(0, b"good", b"")], MANY], ids=["one", "many"])
async def test_batch_that_does_not_add_up_is_refused_whole(
    autojump_clock: MockClock, good: list[tuple[int, bytes, bytes]]
) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        broker = cluster.master.broker
        body = encode_batch(good) + b"\0\0\0\x30"
        answer = await caller.send(broker.address, body, batch=True)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert answer.ext_fields == ERROR_FIELDS
        assert broker.store.max_physical_offset == 0


@pytest.mark.parametrize("leads", [True, False])
async def test_large_batch_that_was_parsed_when_a_hand_over_began_waits_for_its_end(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, leads: bool
) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        broker = cluster.master.broker
        held, refusals = broker.state.held_writes, broker.store.refusals
        hash_tags = put_batch._tags_codes

        def hash_and_hold(every: list[bytes]) -> list[int]:
            held.hold()
            return hash_tags(every)

        monkeypatch.setattr(put_batch, "_tags_codes", hash_and_hold)
        answers: list[int] = []

        async def ask() -> None:
            answer = await caller.send(broker.address, encode_batch(MANY), batch=True)
            answers.append(answer.code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.sleep(1)
            assert (answers, len(held)) == ([], 1)
            assert broker.store.max_physical_offset == 0
            monkeypatch.undo()
            if not leads:
                refusals.refuse(Refuser.STANDING, "it is a slave now")
            held.release()
        if leads:
            assert answers == [ResponseCode.SUCCESS]
            assert broker.store.queue_bounds("orders", 0) == (0, len(MANY))
        else:
            assert answers == [ResponseCode.SERVICE_NOT_AVAILABLE]
            assert broker.store.max_physical_offset == 0


async def test_unknown_topic_is_made_from_its_template(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        addr = cluster.master.broker.address
        await caller.send(addr, b"x", topic="new", default_topic_queue_nums=3)
        topic = cluster.master.broker.state.topics.topic_config("new")
        assert topic is not None
        assert (topic.write_queue_nums, topic.read_queue_nums, topic.perm) == (3, 3, 6)
        answer = await caller.send(addr, b"x", topic="other", default_topic="NoTemplate")
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        assert answer.ext_fields == ERROR_FIELDS


async def test_refused_send_stores_nothing(autojump_clock: MockClock) -> None:
    cases: list[tuple[dict[str, object], ResponseCode]] = [
        ({"topic": "bad name"}, ResponseCode.SYSTEM_ERROR),
        ({"topic": ""}, ResponseCode.SYSTEM_ERROR),
        ({"topic": "x" * 128}, ResponseCode.SYSTEM_ERROR),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, ResponseCode.NO_PERMISSION),
        ({"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, ResponseCode.NO_PERMISSION),
        ({"queue_id": 4}, ResponseCode.SYSTEM_ERROR),
        ({"properties": "TIMER_DELAY_MS\x015000"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"sys_flag": 4}, ResponseCode.REQUEST_CODE_NOT_SUPPORTED),
        ({"properties": "k\x01" + "v" * 33_000}, ResponseCode.MESSAGE_ILLEGAL),
    ]
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        for fields, code in cases:
            answer = await caller.send(cluster.master.broker.address, b"x", **fields)  # type: ignore[arg-type]
            assert answer.code == code, fields
            assert answer.ext_fields == ERROR_FIELDS
            assert answer.remark
            assert cluster.master.broker.store.max_physical_offset == 0, fields


async def test_missing_field_is_named(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        request = RemotingCommand(310, ext_fields={"a": "p", "b": "orders"})
        answer = await caller.pool.call(cluster.master.broker.address, request)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "'c'" in (answer.remark or "")


async def test_negative_queue_id_lets_the_broker_choose(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        addr = cluster.master.broker.address
        chosen = {
            (await caller.send(addr, b"x", queue_id=-1)).ext_fields["queueId"] for _ in range(60)
        }
        assert chosen == {"0", "1", "2", "3"}


async def test_body_over_the_limit_is_refused(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        answer = await caller.send(cluster.master.broker.address, bytes((4 << 20) + 1))
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL


async def test_slave_refuses_messages(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as caller:
        slave = cluster.slaves[0].broker
        await caller.send(cluster.master.broker.address, b"x", topic="orders")
        await trio.sleep(20)
        for topic in ("orders", "unknown"):
            answer = await caller.send(slave.address, b"x", topic=topic)
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert slave.state.topics.topic_config("unknown") is None


async def test_read_only_broker_refuses_order_topics(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster(broker_permission=4) as cluster, caller_of(cluster) as caller:
        addr = cluster.master.broker.address
        ordered = CreateTopicRequestHeader("ledger", "TBW102", 2, 2, 6, "SINGLE_TAG", True)
        assert (await caller.pool.call(addr, ordered)).code == ResponseCode.SUCCESS
        assert (await caller.send(addr, b"x", topic="ledger")).code == ResponseCode.NO_PERMISSION
        assert (await caller.send(addr, b"x", topic="orders")).code == ResponseCode.SUCCESS


async def test_too_often_retried_message_becomes_a_dead_letter(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        addr = cluster.master.broker.address
        retry = "%RETRY%billing"
        for times in (16, 17, 18):
            answer = await caller.send(addr, b"%d" % times, topic=retry, reconsume_times=times)
            assert answer.code == ResponseCode.SUCCESS
        answer = await caller.send(
            addr, b"own limit", topic=retry, reconsume_times=4, max_reconsume_times=3
        )
        assert answer.code == ResponseCode.SUCCESS
        assert bodies(await caller.pull(addr, 0, topic=retry)) == [b"16"]
        dead = await caller.pull(addr, 0, topic="%DLQ%billing")
        assert bodies(dead) == [b"17", b"18", b"own limit"]


async def test_oneway_send_is_stored(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        addr = cluster.master.broker.address
        header = SendMessageRequestHeader("p", "orders", "TBW102", 4, 0, 0, 1, 0, "", 0)
        await caller.pool.send_oneway(addr, header, b"quiet")
        assert bodies(await caller.pull(addr, 0)) == [b"quiet"]


@pytest.mark.parametrize(("topic", "flag"), [("fresh", 1), ("%RETRY%fresh", 2)])
async def test_a_topic_made_by_a_unit_mode_producer_is_a_unit_topic(
    autojump_clock: MockClock, topic: str, flag: int
) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        broker = cluster.master.broker
        header = SendMessageRequestHeader(
            "p", topic, "TBW102", 4, 0, 0, 1, 0, "", 0, unit_mode=True
        )
        answer = await caller.pool.call(broker.address, header, b"x")
        assert answer.code == ResponseCode.SUCCESS
        made = broker.state.topics.topic_config(topic)
        assert made is not None
        assert made.topic_sys_flag == flag
