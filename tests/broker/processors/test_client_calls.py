"""What consoles ask of clients through a broker: resets, offsets in memory, running info, consuming a message now."""

import attrs
import msgspec
import pytest
import trio
from tests.broker.processors.asking import Asking, asking
from tests.golden.exchanges import exchanges_of
from trio.testing import MockClock

from rocketrio_broker.offsets import manager as consumer_offsets
from rocketrio_protocol.bodies.heartbeat import ConsumerData, HeartbeatData, SubscriptionData
from rocketrio_protocol.bodies.queues import ConsumerStatusBody, ResetOffsetBody
from rocketrio_protocol.codes import LanguageCode, RequestCode, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands import consumer
from rocketrio_protocol.commands.admin import CreateTopicRequestHeader, ResetOffsetRequestHeader
from rocketrio_protocol.commands.offset import UpdateConsumerOffsetRequestHeader
from rocketrio_protocol.message import MessageQueue, decode_messages
from rocketrio_protocol.record.message_id import offset_message_id
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.dispatch import Processor

QUEUES = [MessageQueue("T", "broker-a", number) for number in range(2)]


@attrs.define
class Member:
    """A consumer's end: keeps what it is asked, and gives the answers that the test sets."""

    asked: list[RemotingCommand] = attrs.Factory(list)
    body: bytes = b""
    code: int = 0
    delay: float = 0.0

    async def __call__(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        self.asked.append(request)
        await trio.sleep(self.delay)
        return request.response(body=self.body, code=self.code, remark="said by the client")

    @property
    def processors(self) -> dict[int, Processor]:
        codes = (
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
        )
        return dict.fromkeys(codes, self)


async def beat(
    asking: Asking,
    client_id: str,
    *,
    version: int = 407,
    language: LanguageCode = LanguageCode.JAVA,
) -> None:
    data = HeartbeatData(
        client_id, [ConsumerData("G", subscription_data_set=[SubscriptionData("T")])]
    )
    await asking.beat(data, version=version, language=language)


async def two_queues(one: Asking, *, committed: int | None = 2) -> None:
    """Each with messages of the seconds 1 to 4, of which two were consumed."""
    header = CreateTopicRequestHeader("T", "TBW102", 2, 2, 6, "SINGLE_TAG", order=False)
    await one.ask(header)
    for queue_id in range(2):
        for number in range(4):
            one.put("T", b"%d" % number, queue_id=queue_id)
            await trio.sleep(1)
        if committed is not None:
            one.broker.state.consumer_offsets.commit_offset("G", "T", queue_id, committed)


def reset(timestamp: int, *, is_force: bool = True, **fields: int) -> ResetOffsetRequestHeader:
    return ResetOffsetRequestHeader("T", "G", timestamp, is_force, **fields)


def offsets(one: Asking) -> dict[int, int]:
    return one.broker.state.consumer_offsets.query_offsets("G", "T")


async def test_reset_without_members_is_stored_immediately(autojump_clock: MockClock) -> None:
    async with asking() as one:
        await two_queues(one)
        answer = await one.ask(reset(0))
        body = ResetOffsetBody.from_json(answer.body)
        assert body.offset_table == dict.fromkeys(QUEUES, 0)
        assert offsets(one) == {0: 0, 1: 0}
        await one.ask(reset(consumer.TO_THE_END))
        assert offsets(one) == {0: 4, 1: 4}


async def test_reset_to_the_end_is_never_before_the_committed_offset(
    autojump_clock: MockClock,
) -> None:
    """Readers of a new master see less than they saw, until its slaves have said what they have."""
    async with asking() as one:
        await two_queues(one, committed=3)
        gate = one.broker.store.read_gate
        entry = one.broker.store.queue_table.by_key["T", 0].entry(1)
        assert entry is not None
        gate.set_reported(entry[0])
        await one.ask(reset(consumer.TO_THE_END))
        assert offsets(one) == {0: 3, 1: 3}
        gate.open()
        await one.ask(reset(consumer.TO_THE_END))
        assert offsets(one) == {0: 4, 1: 4}


async def test_reset_is_sent_to_all_members(autojump_clock: MockClock) -> None:
    java, cpp = Member(), Member()
    async with (
        asking() as one,
        one.other_client(java.processors) as a,
        one.other_client(cpp.processors) as b,
    ):
        await two_queues(one)
        await beat(a, "java")
        await beat(b, "cpp", language=LanguageCode.CPP)
        assert (await one.ask(reset(0))).code == ResponseCode.SUCCESS
        await trio.testing.wait_all_tasks_blocked()
        for member in (java, cpp):
            (told,) = member.asked
            assert told.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET
            assert told.is_oneway
            assert told.ext_fields["timestamp"] == "0"
            body = ResetOffsetBody.from_json(told.body)
            assert body.offset_table == dict.fromkeys(QUEUES, 0)
        assert b"[" not in bytes(java.asked[0].body)
        assert bytes(cpp.asked[0].body).startswith(b'{"offsetTable":[')


async def test_reset_without_force_skips_nothing(autojump_clock: MockClock) -> None:
    async with asking() as one:
        await two_queues(one)
        await one.ask(reset(consumer.TO_THE_END, is_force=False))
        assert offsets(one) == {0: 2, 1: 2}
        await one.ask(reset(0, is_force=False))
        assert offsets(one) == {0: 0, 1: 0}


@pytest.mark.parametrize(("version", "place"), [(407, 3), (479, 4)])
async def test_reset_by_5_x_to_a_time_after_the_last_message_is_the_end(
    autojump_clock: MockClock, version: int, place: int
) -> None:
    async with asking() as one:
        await two_queues(one)
        one.broker.state.groups.find("G")
        request = RemotingCommand.request(reset(one.cluster.wall_clock.now_ms() + 1000))
        request.version = version
        await one.ask(request)
        assert offsets(one) == {0: place, 1: place}


async def test_reset_by_5_x_of_one_queue_to_one_offset_is_stored(autojump_clock: MockClock) -> None:
    async with asking() as one:
        await two_queues(one)
        await one.ask(reset(0, queue_id=1, offset=3))
        assert offsets(one) == {0: 2, 1: 3}
        answer = await one.ask(reset(0, queue_id=1, offset=9))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert offsets(one) == {0: 2, 1: 3}


async def test_impossible_reset_is_refused(autojump_clock: MockClock) -> None:
    async with asking(slaves=1) as one:
        answer = await one.ask(reset(0))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        await two_queues(one, committed=None)
        answer = await one.ask(reset(0))
        assert (answer.code, answer.remark) == (1, "The consumer group <G> not exist")
        slave = one.cluster.slaves[0].broker.address
        assert (await one.pool.call(slave, reset(0))).code == ResponseCode.SYSTEM_ERROR


async def test_reset_by_5_x_of_an_unknown_topic_or_group_is_refused_with_its_code(
    autojump_clock: MockClock,
) -> None:
    asked = attrs.evolve(RemotingCommand.request(reset(0)), version=479)
    async with asking() as one:
        assert (await one.ask(asked)).code == ResponseCode.TOPIC_NOT_EXIST
        await two_queues(one)
        answer = await one.ask(asked)
        assert (answer.code, answer.remark) == (
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            "Group G does not exist",
        )
        assert offsets(one) == {0: 2, 1: 2}
        assert (await one.ask(reset(0))).code == ResponseCode.SUCCESS  # As 4.9's tool does.


async def test_reset_by_5_x_of_a_known_group_that_never_committed_is_stored(
    autojump_clock: MockClock,
) -> None:
    asked = attrs.evolve(RemotingCommand.request(reset(consumer.TO_THE_END)), version=479)
    async with asking() as one:
        await two_queues(one, committed=None)
        one.broker.state.groups.find("G")
        assert (await one.ask(asked)).code == ResponseCode.SUCCESS
        assert offsets(one) == {0: 4, 1: 4}


async def test_reset_of_a_group_with_a_too_old_member_is_refused(
    autojump_clock: MockClock,
) -> None:
    async with asking() as one, one.other_client({}) as old:
        await two_queues(one)
        await beat(old, "old", version=27)
        answer = await one.ask(reset(0))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "does not support" in (answer.remark or "")
        assert offsets(one) == {0: 2, 1: 2}


async def test_recorded_reset_is_answered_as_by_5_3_3(autojump_clock: MockClock) -> None:
    (exchange,) = exchanges_of("5.3.3", "broker", RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
    assert exchange.answer is not None
    theirs = ResetOffsetBody.from_json(exchange.answer.body)
    async with asking() as one:
        queues = len(theirs.offset_table)
        await one.ask(
            CreateTopicRequestHeader("orders", "TBW102", queues, queues, 6, "SINGLE_TAG", False)
        )
        await one.ask(UpdateConsumerOffsetRequestHeader("pushers", "orders", 0, 2))
        one.broker.state.groups.find("pushers")
        answer = await one.ask(exchange.request)
        assert answer.code == exchange.answer.code
        assert ResetOffsetBody.from_json(answer.body) == theirs


async def test_consumer_status_is_collected_from_all_members(autojump_clock: MockClock) -> None:
    first = Member(body=ConsumerStatusBody({QUEUES[0]: 5}).to_json())
    second = Member(body=ConsumerStatusBody({QUEUES[1]: 6}).to_json())
    silent = Member(delay=60.0)
    header = consumer.GetConsumerStatusRequestHeader("T", "G")
    async with (
        asking() as one,
        one.other_client(first.processors) as a,
        one.other_client(second.processors) as b,
        one.other_client(silent.processors) as c,
    ):
        assert (await one.ask(header)).code == ResponseCode.SYSTEM_ERROR
        for each, client_id in ((a, "c1"), (b, "c2"), (c, "c3")):
            await beat(each, client_id)
        begin = trio.current_time()
        answer = await one.ask(header, timeout=30)
        assert trio.current_time() - begin == 5.0  # all at once, the silent one's limit
        table = ConsumerStatusBody.from_json(answer.body).consumer_table
        assert table == {"c1": {QUEUES[0]: 5}, "c2": {QUEUES[1]: 6}}
        answer = await one.ask(msgspec.structs.replace(header, client_addr="c2"))
        table = ConsumerStatusBody.from_json(answer.body).consumer_table
        assert table == {"c2": {QUEUES[1]: 6}}


async def test_running_info_is_forwarded_to_the_member_and_back(autojump_clock: MockClock) -> None:
    (recorded,) = [
        exchange
        for exchange in exchanges_of("5.3.3", "broker", RequestCode.GET_CONSUMER_RUNNING_INFO)
        if exchange.frame.from_dialer
    ]
    member = Member(body=b'{"properties":{}}')
    async with asking() as one, one.other_client(member.processors) as a:
        header = consumer.GetConsumerRunningInfoRequestHeader("G", "c1", jstack_enable=False)
        answer = await one.ask(header)
        assert (answer.code, answer.remark) == (1, "The Consumer <G> <c1> not online")
        await beat(a, "c1")
        answer = await one.ask(header)
        assert (answer.code, answer.body) == (0, b'{"properties":{}}')
        assert member.asked[0].ext_fields.keys() == recorded.request.ext_fields.keys()


async def test_forwarded_request_to_an_old_or_slow_client_is_refused_with_its_id(
    autojump_clock: MockClock,
) -> None:
    member = Member(delay=60.0)
    async with asking() as one, one.other_client(member.processors) as a:
        await beat(a, "c1", version=61)
        header = consumer.GetConsumerRunningInfoRequestHeader("G", "c1")
        answer = await one.ask(header)
        assert "too low" in (answer.remark or "")
        await beat(a, "c1", version=62)
        async with one.other_client(member.processors) as b:
            await beat(b, "c2")
            begin = trio.current_time()
            answer = await one.ask(msgspec.structs.replace(header, client_id="c2"), timeout=30)
            assert answer.code == ResponseCode.CONSUME_MSG_TIMEOUT
            assert trio.current_time() - begin == 10.0


async def test_message_to_consume_directly_is_sent_with_the_request(
    autojump_clock: MockClock,
) -> None:
    member = Member(body=b'{"consumeResult":"CR_SUCCESS"}')
    async with asking() as one, one.other_client(member.processors) as a:
        await beat(a, "c1")
        one.put("T", b"now")
        host = bytes.fromhex("0A00000A00002A9F")
        header = consumer.ConsumeMessageDirectlyRequestHeader("G", "c1", offset_message_id(host, 0))
        request = RemotingCommand.request(header)
        request.ext_fields |= {"AccessKey": "me", "Signature": "mine", "SecurityToken": "secret"}
        answer = await one.ask(request)
        assert answer.body == b'{"consumeResult":"CR_SUCCESS"}'
        (asked,) = member.asked
        assert asked.ext_fields["brokerName"] == "broker-a"
        assert not {"AccessKey", "Signature", "SecurityToken"} & asked.ext_fields.keys()
        (message,) = decode_messages(asked.body)
        assert message.body == b"now"
        gone = msgspec.structs.replace(header, msg_id=offset_message_id(host, 17))
        assert (await one.ask(gone)).code == ResponseCode.SYSTEM_ERROR
        assert (
            await one.ask(msgspec.structs.replace(header, msg_id="x"))
        ).code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("queue_id", [2, -2, 10**9])
async def test_reset_of_an_unknown_queue_is_refused(
    autojump_clock: MockClock, queue_id: int
) -> None:
    async with asking() as one:
        await two_queues(one)
        answer = await one.ask(reset(0, queue_id=queue_id))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert offsets(one) == {0: 2, 1: 2}


async def test_reset_adds_nothing_to_a_full_table(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asking() as one:
        await two_queues(one)
        monkeypatch.setattr(consumer_offsets, "OFFSETS_SIZE_LIMIT", 10)
        answer = await one.ask(reset(0))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "full" in (answer.remark or "")
        assert offsets(one) == {0: 2, 1: 2}
