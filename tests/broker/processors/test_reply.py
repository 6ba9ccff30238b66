"""Replies (324, 325): pushed to who waits for them, stored, and answered."""

import pytest
import trio
from tests.broker.processors.asking import asking
from tests.broker.requesters import PROPERTIES, Requester, beat, reply
from tests.support.caller import Caller, messages
from trio.testing import MockClock

from rocketrio_protocol.bodies.topics import Permission, TopicConfig
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.commands import client
from rocketrio_protocol.commands.send import (
    PushReplyMessageRequestHeader,
    SendReplyMessageRequestHeader,
    SendReplyMessageRequestHeaderV2,
)
from rocketrio_protocol.record.properties import decode_properties


async def test_reply_is_pushed_to_the_requester_and_stored(autojump_clock: MockClock) -> None:
    requester = Requester()
    async with asking() as one, one.other_client(requester.processors) as a:
        await beat(a)
        answer = await one.ask(reply(), b"the answer")
        assert answer.code == ResponseCode.SUCCESS
        assert answer.ext_fields["queueOffset"] == "0"
        assert answer.ext_fields["MSG_REGION"] == "DefaultRegion"
        (pushed,) = requester.got
        header = pushed.header(PushReplyMessageRequestHeader)
        assert (header.topic, header.producer_group, header.flag) == (
            "lab_REPLY_TOPIC", "repliers", 3,
        )  # fmt: skip
        assert header.store_host == "10.0.0.10:10911"
        assert header.born_host.startswith("10.0.0.100:")
        properties = decode_properties(header.properties or "")
        assert properties["CORRELATION_ID"] == "42"
        assert properties["PUSH_REPLY_TIME"] == str(header.store_timestamp)
        assert pushed.body == b"the answer"
        pulled = await Caller(one.pool).pull(one.broker.address, 0, topic="lab_REPLY_TOPIC")
        assert [message.body for message in messages(pulled)] == [b"the answer"]


async def test_reply_with_the_long_header_is_pushed(autojump_clock: MockClock) -> None:
    requester = Requester()
    async with asking() as one, one.other_client(requester.processors) as a:
        await beat(a)
        header = SendReplyMessageRequestHeader(
            "repliers", "lab_REPLY_TOPIC", "TBW102", 4, -1, 0, 1, 0, PROPERTIES
        )
        assert (await one.ask(header, b"x")).code == ResponseCode.SUCCESS
        assert len(requester.got) == 1


async def test_a_reply_need_not_be_stored(autojump_clock: MockClock) -> None:
    requester = Requester()
    async with (
        asking(store_reply_message_enable=False) as one,
        one.other_client(requester.processors) as a,
    ):
        await beat(a)
        answer = await one.ask(reply(), b"x")
        assert (answer.code, answer.ext_fields["msgId"]) == (0, "0")
        assert one.broker.store.max_physical_offset == 0


async def test_reply_to_a_requester_that_left_is_refused(autojump_clock: MockClock) -> None:
    requester = Requester()
    async with asking() as one:
        async with one.other_client(requester.processors) as a:
            await beat(a)
        await trio.testing.wait_all_tasks_blocked()
        answer = await one.ask(reply(), b"x")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "push reply message fail, channel of <asker> not found."


async def test_requester_that_leaves_one_group_still_gets_replies(
    autojump_clock: MockClock,
) -> None:
    requester = Requester()
    async with asking() as one, one.other_client(requester.processors) as a:
        await beat(a)
        await a.ask(client.UnregisterClientRequestHeader("asker", "P"))
        assert (await one.ask(reply(), b"x")).code == ResponseCode.SUCCESS
        await a.ask(client.UnregisterClientRequestHeader("asker", "Q"))
        assert (await one.ask(reply(), b"x")).code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize(
    ("requester", "seconds"), [(Requester(code=1), 0.0), (Requester(delay=60.0), 10.0)]
)
async def test_refusal_of_the_requester_is_answered_to_the_replier(
    autojump_clock: MockClock, requester: Requester, seconds: float
) -> None:
    async with asking() as one, one.other_client(requester.processors) as a:
        await beat(a)
        begin = trio.current_time()
        answer = await one.ask(reply(), b"x", timeout=30)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "push reply message to asker fail" in (answer.remark or "")
        assert trio.current_time() - begin == seconds


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (reply(topic="unknown"), ResponseCode.TOPIC_NOT_EXIST),
        (reply(topic="SCHEDULE_TOPIC_XXXX"), ResponseCode.NO_PERMISSION),
        (reply(queue_id=7), ResponseCode.SYSTEM_ERROR),
        (reply(properties="a\x01b"), ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_malformed_reply_is_refused(
    autojump_clock: MockClock, header: SendReplyMessageRequestHeaderV2, code: int
) -> None:
    async with asking() as one:
        answer = await one.ask(header, b"x")
        assert answer.code == code
        assert answer.ext_fields["TRACE_ON"] == "true"


async def test_reply_to_a_topic_without_write_permission_is_refused(
    autojump_clock: MockClock,
) -> None:
    requester = Requester()
    async with asking() as one, one.other_client(requester.processors) as a:
        await beat(a)
        one.broker.state.topics.update(TopicConfig("closed", 1, 1, perm=Permission.READ))
        answer = await one.ask(reply(topic="closed"), b"x")
        assert answer.code == ResponseCode.NO_PERMISSION
        assert one.broker.store.queue_bounds("closed", 0) is None


async def test_broker_without_write_permission_pushes_a_reply_and_does_not_store_it(
    autojump_clock: MockClock,
) -> None:
    requester = Requester()
    async with asking(broker_permission=4) as one, one.other_client(requester.processors) as a:
        await beat(a)
        assert (await one.ask(reply(), b"x")).code == ResponseCode.SUCCESS
        assert len(requester.got) == 1
        assert one.broker.store.max_physical_offset == 0
