import json

import attrs
import pytest
import trio
from tests.broker.processors.asking import Asking, asking
from trio.testing import MockClock

from rocketrio_broker.offsets import manager as consumer_offsets
from rocketrio_broker.processors.group_admin import GROUP_SETTINGS_LIMIT
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.heartbeat import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from rocketrio_protocol.bodies.offsets import ConsumerOffsetWrapper, DelayOffsetWrapper
from rocketrio_protocol.bodies.stats import (
    ConsumerConnection,
    ProducerConnection,
    QueryCorrectionOffsetBody,
)
from rocketrio_protocol.bodies.topics import (
    QUEUE_NUMS_LIMIT,
    SubscriptionGroupConfig,
    SubscriptionGroupConfigList,
    SubscriptionGroupWrapper,
    TopicConfig,
)
from rocketrio_protocol.codes import VERSION_5, RequestCode, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands import admin

UPDATE = admin.UpdateAndCreateSubscriptionGroupRequestHeader()


async def test_group_settings_are_stored_and_returned(autojump_clock: MockClock) -> None:
    async with asking() as one:
        wanted = SubscriptionGroupConfig("G", retry_max_times=3, which_broker_when_consume_slowly=2)
        assert (await one.ask(UPDATE, fastjson.dumps(wanted))).code == ResponseCode.SUCCESS
        single = await one.ask(admin.GetSubscriptionGroupConfigRequestHeader("G"))
        assert fastjson.loads(single.body, SubscriptionGroupConfig) == wanted
        everything = await one.ask(admin.GetAllSubscriptionGroupConfigRequestHeader())
        wrapper = fastjson.loads(everything.body, SubscriptionGroupWrapper)
        assert wrapper.subscription_group_table["G"] == wanted
        assert wrapper.data_version == one.broker.state.groups.data_version
        unknown = await one.ask(admin.GetSubscriptionGroupConfigRequestHeader("H"))
        assert unknown.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_settings_that_5_x_alone_has_are_kept_and_copied_to_slaves(
    autojump_clock: MockClock,
) -> None:
    policy = {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 5000, "max": 7200000}}
    body = {
        "groupName": "G", "consumeMessageOrderly": True, "groupRetryPolicy": policy, "groupSysFlag": 1,
        "consumeTimeoutMinute": 30, "subscriptionDataSet": [{"topic": "T", "expression": "a", "version": 7}],
    }  # fmt: skip
    async with asking(slaves=1) as one:
        assert (await one.ask(UPDATE, json.dumps(body).encode())).code == ResponseCode.SUCCESS
        single = await one.ask(admin.GetSubscriptionGroupConfigRequestHeader("G"))
        told = json.loads(bytes(single.body))
        assert {name: told[name] for name in body} == body
        assert told["attributes"] == {}
        await trio.sleep(15)
        kept = one.broker.state.groups.subscription_group_table["G"]
        slave = one.cluster.slaves[0].broker.state.groups.subscription_group_table["G"]
        assert slave == kept
        assert slave.group_retry_policy == policy
        await one.cluster.kill_master()
        restarted = await one.cluster.restart_master()
        assert restarted.state.groups.subscription_group_table["G"] == kept


@pytest.mark.parametrize(
    ("member", "reason"),
    [
        ({"attributes": {"+odd": "1"}}, "the attribute odd"),
        (
            {"subscriptionDataSet": [{"expression": "x" * GROUP_SETTINGS_LIMIT}]},
            "65536 are allowed",
        ),
    ],
)
async def test_impossible_settings_of_a_group_are_refused_with_the_reason(
    autojump_clock: MockClock, member: dict[str, object], reason: str
) -> None:
    async with asking() as one:
        answer = await one.ask(UPDATE, json.dumps({"groupName": "G", **member}).encode())
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert reason in (answer.remark or "")
        assert "G" not in one.broker.state.groups.subscription_group_table


async def test_impossible_group_names_are_refused(autojump_clock: MockClock) -> None:
    async with asking() as one:
        for body in (fastjson.dumps(SubscriptionGroupConfig("a b")), b"{}", b""):
            assert (await one.ask(UPDATE, body)).code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("queues", [-1, QUEUE_NUMS_LIMIT + 1, 10**12])
async def test_update_group_with_an_impossible_count_of_retry_queues_is_refused(
    queues: int, autojump_clock: MockClock
) -> None:
    async with asking() as one:
        group = SubscriptionGroupConfig("G", retry_queue_nums=queues)
        refused = await one.ask(UPDATE, fastjson.dumps(group))
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert str(QUEUE_NUMS_LIMIT) in (refused.remark or "")
        assert "G" not in one.broker.state.groups.subscription_group_table


async def test_deleted_group_keeps_its_offsets_unless_requested(autojump_clock: MockClock) -> None:
    async with asking() as one:
        offsets = one.broker.state.consumer_offsets
        offsets.commit_offset("G", "T", 0, 1)
        await one.ask(UPDATE, fastjson.dumps(SubscriptionGroupConfig("G")))
        await one.ask(admin.DeleteSubscriptionGroupRequestHeader("G"))
        assert "G" not in one.broker.state.groups.subscription_group_table
        assert offsets.query_offset("G", "T", 0) == 1
        await one.ask(admin.DeleteSubscriptionGroupRequestHeader("G", remove_offset=True))
        assert offsets.query_offset("G", "T", 0) == -1


async def test_all_offsets_are_answered(autojump_clock: MockClock) -> None:
    async with asking() as one:
        one.broker.state.consumer_offsets.commit_offset("G", "T", 1, 7)
        answer = await one.ask(admin.GetAllConsumerOffsetRequestHeader())
        assert bytes(answer.body) == b'{"offsetTable":{"T@G":{1:7}}}'
        assert fastjson.loads(answer.body, ConsumerOffsetWrapper).offset_table == {"T@G": {1: 7}}
        versioned = await one.ask(admin.GetAllConsumerOffsetRequestHeader(versions=True))
        assert b'"rocketrioVersions":{' in bytes(versioned.body)
        delays = await one.ask(admin.GetAllDelayOffsetRequestHeader())
        assert fastjson.loads(delays.body, DelayOffsetWrapper).offset_table == {}


async def test_clone_gives_a_group_the_offsets_of_another(autojump_clock: MockClock) -> None:
    async with asking() as one:
        offsets = one.broker.state.consumer_offsets
        one.broker.state.topics.update(TopicConfig("T"))
        offsets.commit_offset("G", "T", 0, 4)
        offsets.commit_offset("G", "unknown", 0, 4)
        await one.ask(admin.CloneGroupOffsetRequestHeader("G", "H"))
        assert offsets.query_offset("H", "T", 0) == 4
        assert offsets.query_offset("H", "unknown", 0) == -1


async def test_corrections_are_the_lowest_offsets_of_other_groups(
    autojump_clock: MockClock,
) -> None:
    async with asking() as one:
        offsets = one.broker.state.consumer_offsets
        one.put("T", b"a", b"b", b"c", b"d", b"e")
        one.put("T", b"a", queue_id=1)
        for group, queue_id, value in (
            ("G", 0, 4),
            ("H", 0, 3),
            ("I", 0, 1),
            ("C", 0, 5),
            ("C", 1, 0),
        ):
            offsets.commit_offset(group, "T", queue_id, value)
        answer = await one.ask(admin.QueryCorrectionOffsetRequestHeader("T", "C", "I,C"))
        corrections = QueryCorrectionOffsetBody.from_json(answer.body).correction_offsets
        assert corrections == {0: 3, 1: 2**63 - 1}


async def test_connections_of_a_group_are_listed(autojump_clock: MockClock) -> None:
    async with asking() as one:
        consumers = admin.GetConsumerConnectionListRequestHeader("G")
        producers = admin.GetProducerConnectionListRequestHeader("P")
        assert (await one.ask(consumers)).code == ResponseCode.CONSUMER_NOT_ONLINE
        assert (await one.ask(producers)).code == ResponseCode.SYSTEM_ERROR
        data = ConsumerData("G", subscription_data_set=[SubscriptionData("T", "a", sub_version=1)])
        await one.beat(HeartbeatData("c1", [data], [ProducerData("P")]))
        found = ConsumerConnection.from_json((await one.ask(consumers)).body)
        assert found.subscription_table["T"].sub_string == "a"
        assert found.consume_type == "CONSUME_PASSIVELY"
        listed = ProducerConnection.from_json((await one.ask(producers)).body)
        for (connection,) in (found.connection_set, listed.connection_set):
            assert (connection.client_id, connection.language) == ("c1", "PYTHON")
            assert connection.version == 407
            assert connection.client_addr.startswith("10.0.0.100:")


async def test_slave_refuses_changes_of_groups(autojump_clock: MockClock) -> None:
    async with asking(slaves=1) as one:
        slave = Asking(one.cluster, one.pool, one.cluster.slaves[0].broker)
        update = await slave.ask(UPDATE, fastjson.dumps(SubscriptionGroupConfig("G")))
        assert update.code == ResponseCode.SYSTEM_ERROR
        delete = await slave.ask(admin.DeleteSubscriptionGroupRequestHeader("G"))
        assert delete.code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("slave_is_asked_first", [False, True])
async def test_group_that_a_program_of_5_x_changes_at_every_broker_is_the_same_on_every_broker(
    autojump_clock: MockClock, slave_is_asked_first: bool
) -> None:
    one_group = RemotingCommand.request(UPDATE, fastjson.dumps(SubscriptionGroupConfig("G")))
    groups = SubscriptionGroupConfigList([SubscriptionGroupConfig("L", retry_max_times=2)])
    list_of_groups = RemotingCommand(
        code=RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=fastjson.dumps(groups)
    )
    delete = RemotingCommand.request(admin.DeleteSubscriptionGroupRequestHeader("G"))
    async with asking(slaves=1) as one:
        slave = Asking(one.cluster, one.pool, one.cluster.slaves[0].broker)
        order = (slave, one) if slave_is_asked_first else (one, slave)
        tables = [broker.broker.state.groups.subscription_group_table for broker in order]
        for requests, are_there in (((one_group, list_of_groups), "GL"), ((delete,), "L")):
            for request in requests:
                for broker in order:
                    answer = await broker.ask(attrs.evolve(request, version=VERSION_5))
                    assert answer.code == ResponseCode.SUCCESS
            await trio.sleep(15)
            for table in tables:
                assert {name for name in "GL" if name in table} == set(are_there)
                assert table["L"].retry_max_times == 2


async def test_clone_for_an_impossible_group_or_into_a_full_table_is_refused(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asking() as one:
        one.broker.state.topics.update(TopicConfig("T", 1, 1))
        offsets = one.broker.state.consumer_offsets
        offsets.commit_offset("G", "T", 0, 5)
        answer = await one.ask(admin.CloneGroupOffsetRequestHeader("G", "a b", "T"))
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        monkeypatch.setattr(consumer_offsets, "OFFSETS_SIZE_LIMIT", 10)
        answer = await one.ask(admin.CloneGroupOffsetRequestHeader("G", "H", "T"))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert offsets.topics_of_group("H") == []
