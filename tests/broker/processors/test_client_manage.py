import pytest
from tests.broker.heartbeats import beat, heartbeat, members, static_beat
from tests.broker.processors.asking import asking
from trio.testing import MockClock

from rocketrio_broker.namesrv.routes import UNIT_SUB
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
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.commands import client
from rocketrio_protocol.commands.pull import PullMessageRequestHeader
from rocketrio_protocol.commands.send import SendMessageRequestHeaderV2


async def test_heartbeat_creates_the_group_its_retry_topic_and_the_member(
    autojump_clock: MockClock,
) -> None:
    async with asking() as one:
        assert await members(one) == []
        assert (await beat(one, "c1", "T")).code == ResponseCode.SUCCESS
        assert await members(one) == ["c1"]
        assert "G" in one.broker.state.groups.subscription_group_table
        retry = one.broker.state.topics.topic_config("%RETRY%G")
        assert retry is not None
        assert (retry.read_queue_nums, retry.perm) == (1, 6)
        await one.broker.registration.wait_registered()
        assert "%RETRY%G" in one.cluster.name_server.routes.topic_queue_table


async def test_a_unit_mode_group_has_a_unit_retry_topic(autojump_clock: MockClock) -> None:
    async with asking() as one:
        body = heartbeat("c1", "T", unit_mode=True)
        await one.ask(client.HeartBeatRequestHeader(), body)
        retry = one.broker.state.topics.topic_config("%RETRY%G")
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


async def test_heartbeat_of_a_cpp_client_is_decoded(
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
        group = one.broker.state.consumers.group("G")
        assert group is not None
        assert (group.consume_type, group.message_model) == ("CONSUME_PASSIVELY", "CLUSTERING")
        assert group.consume_from_where == "CONSUME_FROM_FIRST_OFFSET"
        subscription = group.subscription_table["T"]
        assert (subscription.code_set, subscription.sub_version) == ([97], 1795269026898)
        wrong = body.replace(b'"consumeType":1', b'"consumeType":9')
        refused = await one.ask(client.HeartBeatRequestHeader(), wrong)
        assert refused.code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"clientID":3}', b"\xff"])
async def test_malformed_heartbeat_is_answered_with_an_error(
    autojump_clock: MockClock, body: bytes
) -> None:
    async with asking() as one:
        answer = await one.ask(client.HeartBeatRequestHeader(), body)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark
        assert "heartbeat" in answer.remark


async def test_static_grace_is_limited_by_the_setting_of_the_broker(
    autojump_clock: MockClock,
) -> None:
    async with asking(static_member_grace_limit=20.0) as one:
        assert await static_beat(one, "c1", 3600) == 20
        assert await static_beat(one, "c1", -5) == 0
        plain = await beat(one, "c1", "T")
        assert "rocketrioStaticGrace" not in plain.ext_fields


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
        state = one.broker.state
        groups, topics = state.groups.wrapper(), state.topics.wrapper()
        answer = await one.beat(data)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert why in (answer.remark or "")
        assert (state.groups.wrapper(), state.topics.wrapper()) == (groups, topics)
        assert not state.consumers.consumer_table
        assert not state.producers.group_channel_table


async def test_limits_count_what_a_connection_named_before(autojump_clock: MockClock) -> None:
    async with asking() as one, one.other_client({}) as other:
        assert (await one.beat(data_of(GROUPS_LIMIT - 1))).code == 0
        assert (await one.beat(data_of(GROUPS_LIMIT - 1))).code == 0
        new = HeartbeatData("c1", [ConsumerData("new")])
        assert (await one.beat(new)).code == ResponseCode.SYSTEM_ERROR
        assert (await other.beat(new)).code == 0
        half = "x" * (SIZE_LIMIT // 2)
        for group, code in (("A", 0), ("A", 0), ("B", ResponseCode.SYSTEM_ERROR)):
            subscription = SubscriptionData("T", half)
            big = HeartbeatData("c1", [ConsumerData(group, subscription_data_set=[subscription])])
            assert (await other.beat(big)).code == code
        leave = client.UnregisterClientRequestHeader("c1", None, "A")
        assert (await other.ask(leave)).code == 0
        assert (await other.beat(big)).code == 0
        for number in range(CLIENT_IDS_LIMIT):
            answer = await other.beat(HeartbeatData(f"id{number}", [], [ProducerData("P")]))
        assert answer.code == 0
        named = HeartbeatData("one more", [], [ProducerData("P")])
        assert (await other.beat(named)).code == ResponseCode.SYSTEM_ERROR


async def test_new_groups_of_a_heartbeat_are_made_in_one_write_of_each_file(
    autojump_clock: MockClock,
) -> None:
    async with asking() as one:
        state = one.broker.state
        before = state.groups.data_version.counter, state.topics.data_version.counter
        data = data_of(GROUPS_LIMIT - 1)
        data.consumer_data_set[7].unit_mode = True
        answer = await one.beat(data)
        assert answer.code == ResponseCode.SUCCESS
        assert state.groups.data_version.counter == before[0] + 1
        assert state.topics.data_version.counter == before[1] + 2
        table = state.topics.topic_config_table
        flags = [table[f"%RETRY%G{number}"].topic_sys_flag for number in (6, 7)]
        assert flags == [0, UNIT_SUB]


async def test_full_tables_refuse_new_topics_and_serve_new_groups(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with asking(topics_limit=1, groups_limit=1) as one:
        state = one.broker.state
        topics, groups = dict(state.topics.topic_config_table), len(names.SYSTEM_GROUPS)
        assert (await beat(one, "c1", "BenchmarkTest")).code == ResponseCode.SUCCESS
        assert await members(one) == ["c1"]
        send = SendMessageRequestHeaderV2("P", "new", "TBW102", 4, 0, 0, 0, 0)
        answer = await one.ask(send, b"x")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "topics_limit is 1" in (answer.remark or "")
        pull = PullMessageRequestHeader("G", "BenchmarkTest", 0, 0, 1, 4, 0, 0, 0, "*")
        assert (await one.ask(pull)).code == ResponseCode.PULL_NOT_FOUND
        assert state.topics.topic_config_table == topics
        assert len(state.groups.subscription_group_table) == groups
        known = topics["BenchmarkTest"]
        state.topics.update(known)  # What is there can still be changed.
