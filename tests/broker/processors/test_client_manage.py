from contextlib import AsyncExitStack

import pytest
import trio
from tests.broker.processors.asking import Asking, asking
from trio.testing import MockClock

from rocketrio_broker.namesrv.routes import UNIT_SUB
from rocketrio_broker.processors import client_manage
from rocketrio_broker.processors.client_manage import (
    CLIENT_IDS_LIMIT,
    GROUPS_LIMIT,
    SIZE_LIMIT,
    SUBSCRIPTIONS_LIMIT,
)
from rocketrio_protocol import names
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.heartbeat import (
    ConsumerData,
    ConsumerIdList,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from rocketrio_protocol.bodies.topics import SubscriptionGroupConfig
from rocketrio_protocol.codes import RequestCode, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands import client
from rocketrio_protocol.commands.pull import PullMessageRequestHeader
from rocketrio_protocol.commands.send import SendMessageRequestHeaderV2
from rocketrio_protocol.remoting.channel import Channel


class Notified:
    """Counts what a client is told."""

    def __init__(self) -> None:
        self.groups: list[str] = []

    def __call__(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        self.groups.append(request.ext_fields["consumerGroup"])
        return None

    @property
    def processors(self) -> dict[int, "Notified"]:
        return {RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self}


def heartbeat(client_id: str, *topics: str, unit_mode: bool = False) -> bytes:
    subscriptions = [SubscriptionData(topic, sub_version=1) for topic in topics]
    data = HeartbeatData(
        client_id,
        [ConsumerData("G", subscription_data_set=subscriptions, unit_mode=unit_mode)],
        [ProducerData("P")],
    )
    return fastjson.dumps(data)


async def beat(asking: Asking, client_id: str, *topics: str) -> RemotingCommand:
    return await asking.ask(client.HeartBeatRequestHeader(), heartbeat(client_id, *topics))


async def members(asking: Asking) -> list[str]:
    answer = await asking.ask(client.GetConsumerListByGroupRequestHeader("G"))
    return fastjson.loads(answer.body, ConsumerIdList).consumer_id_list if answer.code == 0 else []


async def test_a_heartbeat_makes_the_group_its_retry_topic_and_a_member(
    autojump_clock: MockClock,
) -> None:
    async with asking() as one:
        assert await members(one) == []
        assert (await beat(one, "c1", "T")).code == ResponseCode.SUCCESS
        assert await members(one) == ["c1"]
        assert "G" in one.broker.parts.groups.subscription_group_table
        retry = one.broker.parts.topics.topic_config("%RETRY%G")
        assert retry is not None
        assert (retry.read_queue_nums, retry.perm) == (1, 6)
        await one.broker.registration.wait_registered()
        assert "%RETRY%G" in one.cluster.name_server.routes.topic_queue_table


async def test_all_members_are_told_before_the_heartbeat_is_answered(
    autojump_clock: MockClock,
) -> None:
    first, second = Notified(), Notified()
    async with asking() as one, one.other_client(first.processors) as a:
        await beat(a, "c1", "T")
        assert first.groups == ["G"]
        async with one.other_client(second.processors) as b:
            await beat(b, "c2", "T")
            assert second.groups == ["G"]
            assert await members(one) == ["c1", "c2"]
            await beat(b, "c2", "T")
            assert (first.groups, second.groups) == (["G"] * 2, ["G"])
        await trio.testing.wait_all_tasks_blocked()
        assert first.groups == ["G"] * 3
        assert await members(one) == ["c1"]


async def test_members_beyond_those_told_at_a_stretch_are_told_soon_after(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_manage, "NOTICES_TOGETHER", 1)
    told = [Notified() for _ in range(4)]
    async with asking() as one, AsyncExitStack() as stack:
        for number, each in enumerate(told):
            await beat(
                await stack.enter_async_context(one.other_client(each.processors)),
                f"c{number}",
                "T",
            )
            await trio.testing.wait_all_tasks_blocked()
        assert [len(each.groups) for each in told] == [4, 3, 2, 1]


async def test_a_member_that_leaves_is_gone_for_the_others_at_once(
    autojump_clock: MockClock,
) -> None:
    first = Notified()
    async with (
        asking() as one,
        one.other_client(first.processors) as a,
        one.other_client({}) as b,
    ):
        await beat(a, "c1", "T")
        await beat(b, "c2", "T")
        leave = client.UnregisterClientRequestHeader("c2", "P", "G")
        assert (await b.ask(leave)).code == ResponseCode.SUCCESS
        assert await members(one) == ["c1"]
        assert first.groups == ["G"] * 3
        assert len(one.broker.parts.producers.clients("P")) == 1


async def test_a_group_that_wants_no_notification_gets_none(autojump_clock: MockClock) -> None:
    told = Notified()
    async with asking() as one, one.other_client(told.processors) as a:
        one.broker.parts.groups.update(
            SubscriptionGroupConfig("G", notify_consumer_ids_changed_enable=False)
        )
        await beat(a, "c1", "T")
        await trio.testing.wait_all_tasks_blocked()
        assert told.groups == []


async def test_a_silent_client_is_dropped_at_the_first_scan_after_120_s(
    autojump_clock: MockClock,
) -> None:
    async with asking() as one, one.other_client({}) as silent:
        await beat(silent, "c1", "T")
        # Other requests keep the connection open, not the membership.
        for _ in range(12):
            await trio.sleep(10)
            await members(silent)
        assert await members(one) == ["c1"]
        await trio.sleep(10)
        assert await members(one) == []


async def test_a_unit_mode_group_has_a_unit_retry_topic(autojump_clock: MockClock) -> None:
    async with asking() as one:
        body = heartbeat("c1", "T", unit_mode=True)
        await one.ask(client.HeartBeatRequestHeader(), body)
        retry = one.broker.parts.topics.topic_config("%RETRY%G")
        assert retry is not None
        assert retry.topic_sys_flag == 2


@pytest.mark.parametrize(
    ("expression_type", "expression", "enabled", "code"),
    [
        ("TAG", "a", True, 0),
        (None, "a", True, 0),
        ("SQL92", "a > 5", True, 0),
        ("SQL92", "a > 5", False, ResponseCode.SYSTEM_ERROR),
        ("SQL92", "a >", True, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ("XPATH", "a", True, ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_expressions_are_checked_before_a_consumer_starts(
    autojump_clock: MockClock,
    expression_type: str | None,
    expression: str,
    enabled: bool,
    code: int,
) -> None:
    async with asking(enable_property_filter=enabled) as one:
        subscription = SubscriptionData("T", expression, expression_type=expression_type)
        body = fastjson.dumps({"clientId": "c1", "group": "G", "subscriptionData": subscription})
        answer = await one.ask(client.CheckClientConfigRequestHeader(), body)
        assert answer.code == code


async def test_a_heartbeat_in_the_form_of_cpp_clients_is_understood(
    autojump_clock: MockClock,
) -> None:
    body = (
        b'{"clientID":"c1","consumerDataSet":[{"groupName":"G","consumeType":1,"messageModel":1,'
        b'"consumeFromWhere":4,"subscriptionDataSet":[{"topic":"T","subString":"a","tagsSet":["a"],'
        b'"codeSet":["97"],"subVersion":"1795269026898"}]}],"producerDataSet":[]}'
    )
    async with asking() as one:
        answer = await one.ask(client.HeartBeatRequestHeader(), body)
        assert answer.code == ResponseCode.SUCCESS
        group = one.broker.parts.consumers.group("G")
        assert group is not None
        assert (group.consume_type, group.message_model) == ("CONSUME_PASSIVELY", "CLUSTERING")
        assert group.consume_from_where == "CONSUME_FROM_FIRST_OFFSET"
        subscription = group.subscription_table["T"]
        assert (subscription.code_set, subscription.sub_version) == ([97], 1795269026898)
        wrong = body.replace(b'"consumeType":1', b'"consumeType":9')
        refused = await one.ask(client.HeartBeatRequestHeader(), wrong)
        assert refused.code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"clientID":3}', b"\xff"])
async def test_a_heartbeat_that_cannot_be_read_is_answered(
    autojump_clock: MockClock, body: bytes
) -> None:
    async with asking() as one:
        answer = await one.ask(client.HeartBeatRequestHeader(), body)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark
        assert "heartbeat" in answer.remark


async def static_beat(one: Asking, client_id: str, grace: int) -> int | None:
    header = client.HeartBeatRequestHeader(static_grace=grace)
    answer = await one.ask(header, heartbeat(client_id, "T"))
    return answer.header(client.HeartBeatResponseHeader).static_grace


async def test_a_static_member_restarts_without_anybody_being_told(
    autojump_clock: MockClock,
) -> None:
    told = Notified()
    async with asking() as one, one.other_client(told.processors) as a:
        await beat(a, "c1", "T")
        for _ in range(2):
            async with one.other_client({}) as restarted:
                assert await static_beat(restarted, "c2", 60) == 60
            await trio.sleep(50)
        assert told.groups == ["G"] * 2  # c1 itself and c2's first heartbeat
        assert await members(one) == ["c1", "c2"]
        await beat(a, "c1", "T")
        await trio.sleep(25)
        assert told.groups == ["G"] * 3
        assert await members(one) == ["c1"]


async def test_no_more_grace_is_granted_than_the_broker_is_set_to(
    autojump_clock: MockClock,
) -> None:
    async with asking(static_member_grace_limit=20.0) as one:
        assert await static_beat(one, "c1", 3600) == 20
        assert await static_beat(one, "c1", -5) == 0
        plain = await beat(one, "c1", "T")
        assert "rocketrioStaticGrace" not in plain.ext_fields


async def test_a_group_that_broadcasts_is_told_nothing(autojump_clock: MockClock) -> None:
    told = Notified()
    async with asking() as one, one.other_client(told.processors) as a:
        data = HeartbeatData("c1", [ConsumerData("G", message_model="BROADCASTING")])
        for each in (a, one):
            await each.ask(client.HeartBeatRequestHeader(), fastjson.dumps(data))
        await trio.testing.wait_all_tasks_blocked()
        assert told.groups == []
        assert await members(one) == ["c1"]


def data_of(groups: int, *, subscriptions: int = 0, expression: str = "*") -> HeartbeatData:
    subscribed = [SubscriptionData(f"T{number}", expression) for number in range(subscriptions)]
    return HeartbeatData(
        "c1",
        [ConsumerData(f"G{number}", subscription_data_set=subscribed) for number in range(groups)],
        [ProducerData("P")],
    )


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (data_of(GROUPS_LIMIT), "500 groups at most"),
        (data_of(1, subscriptions=SUBSCRIPTIONS_LIMIT + 1), "2000 subscriptions at most"),
        (data_of(1, subscriptions=1, expression="x" * SIZE_LIMIT), "1048576 bytes at most"),
        (HeartbeatData("c" * 600), "512 characters of a client id at most"),
        (HeartbeatData("c1", [ConsumerData("a b")]), "illegal characters"),
        (HeartbeatData("c1", [], [ProducerData("a\nb")]), "illegal characters"),
    ],
)
async def test_heartbeat_beyond_a_limit_is_refused_and_registers_nothing(
    autojump_clock: MockClock, data: HeartbeatData, why: str
) -> None:
    async with asking() as one:
        parts = one.broker.parts
        groups, topics = parts.groups.wrapper(), parts.topics.wrapper()
        answer = await one.ask(client.HeartBeatRequestHeader(), fastjson.dumps(data))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert why in (answer.remark or "")
        assert (parts.groups.wrapper(), parts.topics.wrapper()) == (groups, topics)
        assert not parts.consumers.consumer_table
        assert not parts.producers.group_channel_table


async def test_limits_count_what_a_connection_named_before(autojump_clock: MockClock) -> None:
    header = client.HeartBeatRequestHeader()
    async with asking() as one, one.other_client({}) as other:
        assert (await one.ask(header, fastjson.dumps(data_of(GROUPS_LIMIT - 1)))).code == 0
        assert (await one.ask(header, fastjson.dumps(data_of(GROUPS_LIMIT - 1)))).code == 0
        new = fastjson.dumps(HeartbeatData("c1", [ConsumerData("new")]))
        assert (await one.ask(header, new)).code == ResponseCode.SYSTEM_ERROR
        assert (await other.ask(header, new)).code == 0
        half = "x" * (SIZE_LIMIT // 2)
        for group, code in (("A", 0), ("A", 0), ("B", ResponseCode.SYSTEM_ERROR)):
            subscription = SubscriptionData("T", half)
            big = HeartbeatData("c1", [ConsumerData(group, subscription_data_set=[subscription])])
            assert (await other.ask(header, fastjson.dumps(big))).code == code
        leave = client.UnregisterClientRequestHeader("c1", None, "A")
        assert (await other.ask(leave)).code == 0
        assert (await other.ask(header, fastjson.dumps(big))).code == 0
        for number in range(CLIENT_IDS_LIMIT):
            named = HeartbeatData(f"id{number}", [], [ProducerData("P")])
            answer = await other.ask(header, fastjson.dumps(named))
        assert answer.code == 0
        named = HeartbeatData("one more", [], [ProducerData("P")])
        assert (await other.ask(header, fastjson.dumps(named))).code == ResponseCode.SYSTEM_ERROR


async def test_new_groups_of_a_heartbeat_are_made_in_one_write_of_each_file(
    autojump_clock: MockClock,
) -> None:
    async with asking() as one:
        parts = one.broker.parts
        before = parts.groups.data_version.counter, parts.topics.data_version.counter
        data = data_of(GROUPS_LIMIT - 1)
        data.consumer_data_set[7].unit_mode = True
        answer = await one.ask(client.HeartBeatRequestHeader(), fastjson.dumps(data))
        assert answer.code == ResponseCode.SUCCESS
        assert parts.groups.data_version.counter == before[0] + 1
        assert parts.topics.data_version.counter == before[1] + 2
        table = parts.topics.topic_config_table
        flags = [table[f"%RETRY%G{number}"].topic_sys_flag for number in (6, 7)]
        assert flags == [0, UNIT_SUB]


async def test_full_tables_refuse_new_topics_and_serve_new_groups(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with asking(topics_limit=1, groups_limit=1) as one:
        parts = one.broker.parts
        topics, groups = dict(parts.topics.topic_config_table), len(names.SYSTEM_GROUPS)
        assert (await beat(one, "c1", "BenchmarkTest")).code == ResponseCode.SUCCESS
        assert await members(one) == ["c1"]
        send = SendMessageRequestHeaderV2("P", "new", "TBW102", 4, 0, 0, 0, 0)
        answer = await one.ask(send, b"x")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "topics_limit is 1" in (answer.remark or "")
        pull = PullMessageRequestHeader("G", "BenchmarkTest", 0, 0, 1, 4, 0, 0, 0, "*")
        assert (await one.ask(pull)).code == ResponseCode.PULL_NOT_FOUND
        assert parts.topics.topic_config_table == topics
        assert len(parts.groups.subscription_group_table) == groups
        known = topics["BenchmarkTest"]
        parts.topics.update(known)  # What is there can still be changed.
