"""Each message that is parked is refused, or it comes, whatever its name: delayed, retried, dead, half, replies.

Names have 1 to 255 characters. Such a name is new, or it is in the tables already, as after a copy from an Apache
broker of 5.x, which can store longer topics.
"""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import attrs
import msgspec
import pytest
import trio
from tests.broker.processors.asking import Asking, asking
from tests.broker.requesters import Requester, reply
from tests.broker.requesters import beat as beat_of_requester
from tests.support.caller import Caller, bodies
from tests.support.stores import put_of
from trio.testing import MockClock

from rocketrio_broker.embedded import SMALL_STORE
from rocketrio_broker.settings.config import BrokerConfig
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.heartbeat import ConsumerData, HeartbeatData, ProducerData
from rocketrio_protocol.bodies.topics import SubscriptionGroupConfig, TopicConfig
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands import admin
from rocketrio_protocol.commands.consumer import ConsumerSendMsgBackRequestHeader
from rocketrio_protocol.commands.send import SendMessageRequestHeaderV2
from rocketrio_protocol.commands.transaction import (
    TRANSACTION_COMMIT,
    EndTransactionRequestHeader,
)
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.names import (
    MAX_TOPIC_LENGTH,
    dead_letter_topic,
    retry_topic,
)
from rocketrio_protocol.record.message_id import parse_offset_message_id

pytestmark = pytest.mark.slow

LENGTHS = range(1, 256)
DELAY = "DELAY\x011"
LATER = 5.0
"""Seconds after which a message of the first delay level is delivered."""


def name_of(length: int) -> str:
    """A name of this length; from 8 characters on, that of a group in a namespace."""
    return f"shop%{'g' * (length - 5)}" if length >= 8 else "g" * length


@attrs.define
class Parking:
    """A broker, and the messages that it has accepted."""

    one: Asking
    is_known: bool
    accepted: dict[str, bytes] = attrs.Factory(dict)

    @property
    def addr(self) -> str:
        return self.one.broker.address

    @property
    def call(self) -> Caller:
        return Caller(self.one.pool)

    def know(self, group: str) -> None:
        """Put the group and its topics into the tables, as a copy of an Apache broker's tables does."""
        state = self.one.broker.state
        state.groups.update(SubscriptionGroupConfig(group))
        for topic in (retry_topic(group), dead_letter_topic(group)):
            state.topics.update(TopicConfig(topic, 1, 1))

    async def beat(self, group: str) -> RemotingCommand:
        return await self.one.beat(HeartbeatData("c", [ConsumerData(group)]))

    async def work(self) -> int:
        """Store a message that can be sent back; return its address."""
        answer = await self.call.send(self.addr, b"work", topic="work")
        return parse_offset_message_id(answer.ext_fields["msgId"])[2]

    def note(self, answer: RemotingCommand, topic: str, body: bytes) -> None:
        if answer.code == ResponseCode.SUCCESS:
            self.accepted[topic] = body
        else:
            assert answer.remark, "a refusal has a text"

    async def missing(self) -> list[str]:
        """The topics of messages that were accepted and did not come."""
        await trio.sleep(LATER)
        return [
            topic
            for topic, body in self.accepted.items()
            if body not in bodies(await self.call.pull(self.addr, 0, topic=topic))
        ]


@asynccontextmanager
async def parking(*, is_known: bool, **settings: Any) -> AsyncGenerator[Parking]:
    async with asking(**settings) as one:
        yield Parking(one, is_known)


known = pytest.mark.parametrize("is_known", [False, True], ids=["new", "copied"])


@known
async def test_retry_under_a_long_name_is_refused_or_comes(
    autojump_clock: MockClock, is_known: bool
) -> None:
    async with parking(is_known=is_known) as park:
        offset = await park.work()
        for length in LENGTHS:
            group = name_of(length)
            if is_known:
                park.know(group)
            is_member = (await park.beat(group)).code == ResponseCode.SUCCESS
            header = ConsumerSendMsgBackRequestHeader(offset, group, 1)
            answer = await park.one.ask(header)
            park.note(answer, retry_topic(group), b"work")
            assert is_member == (answer.code == ResponseCode.SUCCESS), length
        assert await park.missing() == []
        assert len(park.accepted) == 120


@known
async def test_retry_sent_as_a_message_under_a_long_name_is_refused_or_comes(
    autojump_clock: MockClock, is_known: bool
) -> None:
    async with parking(is_known=is_known) as park:
        for length in LENGTHS:
            group = name_of(length)
            if is_known:
                park.know(group)
            topic = retry_topic(group)
            answer = await park.call.send(park.addr, b"again", topic=topic, properties=DELAY)
            park.note(answer, topic, b"again")
        assert await park.missing() == []
        assert len(park.accepted) == 120


@known
async def test_dead_letter_under_a_long_name_is_refused_or_comes(
    autojump_clock: MockClock, is_known: bool
) -> None:
    async with parking(is_known=is_known) as park:
        offset = await park.work()
        for length in LENGTHS:
            group = name_of(length)
            if is_known:
                park.know(group)
            answer = await park.one.ask(ConsumerSendMsgBackRequestHeader(offset, group, -1))
            park.note(answer, dead_letter_topic(group), b"work")
        assert await park.missing() == []
        assert len(park.accepted) == 120


async def test_delayed_message_under_a_long_name_is_refused_or_comes(
    autojump_clock: MockClock,
) -> None:
    async with parking(is_known=False) as park:
        for length in LENGTHS:
            topic = name_of(length)
            answer = await park.call.send(park.addr, b"later", topic=topic, properties=DELAY)
            park.note(answer, topic, b"later")
        assert await park.missing() == []
        assert len(park.accepted) == MAX_TOPIC_LENGTH


async def half_sent(
    park: Parking, topic: str, producer_group: str, properties: str = ""
) -> RemotingCommand:
    """Send the first part of a transaction and commit it; return the last answer."""
    text = f"TRAN_MSG\x01true\x02PGROUP\x01{producer_group}\x02{properties}"
    header = SendMessageRequestHeaderV2(
        producer_group, topic, "TBW102", 4, 0, 4, 1_700_000_000_000, 0, text
    )
    answer = await park.one.ask(header, b"paid")
    if answer.code != ResponseCode.SUCCESS:
        return answer
    return await park.one.ask(
        EndTransactionRequestHeader(
            producer_group,
            int(answer.ext_fields["queueOffset"]),
            parse_offset_message_id(answer.ext_fields["msgId"])[2],
            TRANSACTION_COMMIT,
            answer.ext_fields["msgId"],
        )
    )


@pytest.mark.parametrize("properties", ["", DELAY], ids=["at once", "delayed"])
async def test_half_message_under_a_long_name_is_refused_or_comes(
    autojump_clock: MockClock, properties: str
) -> None:
    async with parking(is_known=False) as park:
        for length in LENGTHS:
            topic = name_of(length)
            answer = await half_sent(park, topic, f"p{length}", properties)
            park.note(answer, topic, b"paid")
        assert await park.missing() == []
        assert len(park.accepted) == MAX_TOPIC_LENGTH


async def test_half_message_of_a_producer_group_of_any_length_comes(
    autojump_clock: MockClock,
) -> None:
    async with parking(is_known=False) as park:
        for length in LENGTHS:
            answer = await half_sent(park, f"paid-{length}", name_of(length))
            park.note(answer, f"paid-{length}", b"paid")
        assert await park.missing() == []
        assert len(park.accepted) == len(LENGTHS)


async def test_half_message_under_a_copied_long_name_is_refused(autojump_clock: MockClock) -> None:
    async with parking(is_known=True) as park:
        park.know("g" * 200)
        for topic in (retry_topic("g" * 200), dead_letter_topic("g" * 200)):
            answer = await half_sent(park, topic, "p")
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL
            assert topic not in park.one.broker.store.queues()


async def test_reply_under_a_long_name_is_refused_or_comes(autojump_clock: MockClock) -> None:
    requester = Requester()
    async with (
        parking(is_known=True) as park,
        park.one.other_client(requester.processors) as asker,
    ):
        await beat_of_requester(asker)
        for length in LENGTHS:
            group = name_of(length)
            park.know(group)
            header = msgspec.structs.replace(reply(topic=retry_topic(group)), producer_group=group)
            answer = await park.one.ask(header, b"%d" % length)
            assert (answer.code == ResponseCode.SUCCESS) == (
                bytes(requester.got[-1].body) == b"%d" % length
            )
        assert len(requester.got) == len(LENGTHS)


def test_cluster_whose_replies_cannot_be_stored_is_refused() -> None:
    possible = []
    for length in LENGTHS:
        with suppress(ConfigError):
            BrokerConfig(cluster_name="c" * length)
            possible.append(length)
    assert possible == list(range(1, MAX_TOPIC_LENGTH - len("_REPLY_TOPIC") + 1))


async def test_message_that_grows_too_large_under_its_own_topic_is_not_parked(
    autojump_clock: MockClock,
) -> None:
    """A parked message is shorter than the delivered one by the difference of the topics' names."""
    store = attrs.evolve(SMALL_STORE, mapped_file_size_commit_log=32 << 10)
    async with parking(is_known=False, store=store) as park:
        topic, accepted = "t" * MAX_TOPIC_LENGTH, []
        for size in range((32 << 10) - 600, (32 << 10) - 200, 10):
            body = b"x" * size
            answer = await park.call.send(park.addr, body, topic=topic, properties=DELAY)
            if answer.code == ResponseCode.SUCCESS:
                accepted.append(size)
        await trio.sleep(LATER)
        assert 0 < len(accepted) < 40
        assert park.one.broker.store.next_queue_offset(topic, 0) == len(accepted)


async def test_parked_messages_come_although_a_lower_limit_would_refuse_them_today(
    autojump_clock: MockClock,
) -> None:
    async with parking(is_known=False) as park:
        large, call = b"x" * 3000, park.call
        await park.beat("g")
        answer = await call.send(park.addr, large, topic="work")
        offset = parse_offset_message_id(answer.ext_fields["msgId"])[2]
        await call.send(park.addr, large, topic="later", properties="DELAY\x012")
        half = await call.send(
            park.addr, large, topic="paid", properties="TRAN_MSG\x01true\x02PGROUP\x01p", sys_flag=4
        )
        master = park.one.cluster.master
        await master.stop()
        store = attrs.evolve(master.config.store, max_message_size=1000)
        master.config = attrs.evolve(master.config, store=store)
        park.one.broker = await master.start()
        refused = await call.send(park.addr, large, topic="work")
        assert refused.code == ResponseCode.MESSAGE_ILLEGAL
        assert (await park.one.ask(ConsumerSendMsgBackRequestHeader(offset, "g", 1))).code == 0
        commit = EndTransactionRequestHeader(
            "p",
            int(half.ext_fields["queueOffset"]),
            parse_offset_message_id(half.ext_fields["msgId"])[2],
            TRANSACTION_COMMIT,
            half.ext_fields["msgId"],
        )
        assert (await park.one.ask(commit)).code == ResponseCode.SUCCESS
        await trio.sleep(2 * LATER)
        for topic in ("later", retry_topic("g"), "paid"):
            assert await call.read(park.addr, topic=topic) == [large], topic


async def test_heartbeat_with_a_group_of_a_long_name_registers_the_other_groups(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with asking() as one:
        long = "shop%" + "g" * 195
        data = HeartbeatData(
            "c",
            [ConsumerData("G"), ConsumerData(long), ConsumerData("H")],
            [ProducerData("p" * 255)],
        )
        for _ in range(2):
            answer = await one.beat(data)
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert "has 200 characters, its namespace included. 120 are allowed" in answer.remark
        assert one.broker.state.consumers.client_ids("G") == ["c"]
        assert one.broker.state.consumers.client_ids("H") == ["c"]
        assert one.broker.state.consumers.client_ids(long) == []
        assert one.broker.state.producers.clients("p" * 255)
        assert long not in one.broker.state.groups.subscription_group_table
        assert caplog.text.count("consumer group refused") == 1


@pytest.mark.parametrize("length", [120, 121, 248, 255])
async def test_group_is_created_if_its_messages_can_be_stored_again(
    autojump_clock: MockClock, length: int
) -> None:
    async with asking() as one:
        group = name_of(length)
        answer = await one.ask(
            admin.UpdateAndCreateSubscriptionGroupRequestHeader(),
            fastjson.dumps(SubscriptionGroupConfig(group)),
        )
        table = one.broker.state.groups.subscription_group_table
        assert (answer.code == ResponseCode.SUCCESS) == (group in table) == (length <= 120)
        pulled = await Caller(one.pool).pull(one.broker.address, 0, topic="work", group=group)
        assert (group in table) == (length <= 120)
        if length > 120:
            assert "120 are allowed" in (answer.remark or "")
            assert "120 are allowed" in (pulled.remark or "")


async def test_undeliverable_message_is_logged_with_group_topic_and_id(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with parking(is_known=False) as park:
        topic = retry_topic("g" * 200)
        # As another broker parked it.
        properties = f"DELAY\x011\x02UNIQ_KEY\x01K1\x02REAL_TOPIC\x01{topic}\x02REAL_QID\x010"
        park.one.broker.store.append(
            put_of(topic="SCHEDULE_TOPIC_XXXX", properties=properties.encode())
        )
        await trio.sleep(LATER)
        (line,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
        assert f"topic={topic} group={'g' * 200} message_id=K1 " in line
