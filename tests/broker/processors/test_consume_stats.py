from typing import Any

import pytest
import trio
from tests.broker.processors.asking import Asking, asking
from tests.support.caller import caller_of
from trio.testing import MockClock

from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_broker.offsets.pulls import PullOffsets
from rocketrio_broker.processors import long_answers
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.heartbeat import ConsumerData, HeartbeatData, SubscriptionData
from rocketrio_protocol.bodies.stats import (
    BrokerStatsData,
    BrokerStatsItem,
    ConsumeStats,
    GroupList,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    TopicOffset,
    TopicStatsTable,
)
from rocketrio_protocol.bodies.topics import SubscriptionGroupConfig, TopicConfig
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.commands import admin
from rocketrio_protocol.commands.pull import PullMessageRequestHeader, PullSysFlag
from rocketrio_protocol.headers import RequestHeader
from rocketrio_protocol.message import MessageQueue

FIRST, SECOND = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)


async def three_messages(one: Asking) -> list[int]:
    """T has three messages in its first queue of two; their store times."""
    one.broker.state.topics.update(TopicConfig("T", 2, 2))
    times = []
    for body in (b"a", b"b", b"c"):
        times.append(one.cluster.wall_clock.now_ms())
        one.put("T", body)
        await trio.sleep(10)
    return times


async def test_bounds_and_newest_store_time_of_a_topic(autojump_clock: MockClock) -> None:
    async with asking() as one:
        times = await three_messages(one)
        answer = await one.ask(admin.GetTopicStatsInfoRequestHeader("T"))
        assert TopicStatsTable.from_json(answer.body).offset_table == {
            FIRST: TopicOffset(0, 3, times[2]),
            SECOND: TopicOffset(0, 0, 0),
        }
        unknown = await one.ask(admin.GetTopicStatsInfoRequestHeader("U"))
        assert unknown.code == ResponseCode.TOPIC_NOT_EXIST


async def test_progress_of_a_group(autojump_clock: MockClock) -> None:
    async with asking() as one:
        times = await three_messages(one)
        one.broker.state.consumer_offsets.commit_offset("G", "T", 0, 2)
        answer = await one.ask(admin.GetConsumeStatsRequestHeader("G"))
        stats = ConsumeStats.from_json(answer.body)
        assert stats.offset_table == {
            FIRST: OffsetWrapper(3, 2, times[1], pull_offset=2),
            SECOND: OffsetWrapper(0, 0, 0, pull_offset=0),
        }
        assert stats.total_diff == 1
        nobody = await one.ask(admin.GetConsumeStatsRequestHeader("H", "T"))
        assert ConsumeStats.from_json(nobody.body).total_diff == 3


async def test_pulled_and_uncommitted_messages_are_in_flight(autojump_clock: MockClock) -> None:
    async with asking() as one:
        await three_messages(one)
        everything = PullMessageRequestHeader(
            "G", "T", 0, 0, 32, PullSysFlag.SUBSCRIPTION, 0, 0, 0, subscription="*"
        )
        await one.ask(everything)
        answer = await one.ask(admin.GetConsumeStatsRequestHeader("G", "T"))
        first = ConsumeStats.from_json(answer.body).offset_table[FIRST]
        assert (first.consumer_offset, first.pull_offset) == (0, 3)


def test_recreated_queue_has_no_more_in_flight_than_it_holds() -> None:
    offsets = PullOffsets()
    offsets.pulled("G", "T", 0, 90)
    assert offsets.of("G", "T", 0, committed=0, end=5) == 5
    assert offsets.of("G", "T", 0, committed=7, end=5) == 7
    assert offsets.of("G", "T", 1, committed=2, end=5) == 2


async def test_topics_that_a_connected_group_unsubscribed_are_not_in_its_progress(
    autojump_clock: MockClock,
) -> None:
    async with asking() as one:
        await three_messages(one)
        one.broker.state.consumer_offsets.commit_offset("G", "T", 0, 2)
        data = ConsumerData("G", subscription_data_set=[SubscriptionData("U", sub_version=1)])
        await one.beat(HeartbeatData("c1", [data]))
        answer = await one.ask(admin.GetConsumeStatsRequestHeader("G"))
        assert ConsumeStats.from_json(answer.body).offset_table == {}


async def test_groups_of_a_topic_are_those_connected_and_those_with_offsets(
    autojump_clock: MockClock,
) -> None:
    async with asking() as one:
        one.broker.state.consumer_offsets.commit_offset("gone", "T", 0, 2)
        data = ConsumerData("here", subscription_data_set=[SubscriptionData("T", sub_version=1)])
        await one.beat(HeartbeatData("c1", [data]))
        answer = await one.ask(admin.QueryTopicConsumeByWhoRequestHeader("T"))
        assert GroupList.from_json(answer.body).group_list == ["here", "gone"]


async def test_time_span_of_a_group_is_that_of_its_messages(autojump_clock: MockClock) -> None:
    async with asking() as one:
        times = await three_messages(one)
        one.broker.state.consumer_offsets.commit_offset("G", "T", 0, 2)
        answer = await one.ask(admin.QueryConsumeTimeSpanRequestHeader("T", "G"))
        first, second = QueryConsumeTimeSpanBody.from_json(answer.body).consume_time_span_set
        assert (first.min_time_stamp, first.max_time_stamp) == (times[0], times[2])
        assert first.consume_time_stamp == times[1]
        assert first.delay_time == 10_000
        assert (second.min_time_stamp, second.consume_time_stamp, second.delay_time) == (-1, -1, 0)


async def test_progress_of_all_groups(autojump_clock: MockClock) -> None:
    async with asking() as one:
        await three_messages(one)
        one.broker.state.groups.update(SubscriptionGroupConfig("G"))
        one.broker.state.consumer_offsets.commit_offset("G", "T", 0, 1)
        answer = await one.ask(admin.GetBrokerConsumeStatsRequestHeader(is_order=False))
        body = bytes(answer.body)
        assert b'"totalDiff":2' in body
        assert b'{{"brokerName":"broker-a","queueId":0,"topic":"T"}:{"brokerOffset":3' in body
        ordered = await one.ask(admin.GetBrokerConsumeStatsRequestHeader(is_order=True))
        assert b'"totalDiff":0' in bytes(ordered.body)


async def test_sent_and_pulled_messages_are_counted(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster(cluster_name="lab") as cluster, caller_of(cluster) as caller:
        addr = cluster.master.broker.address

        async def minute(name: str, key: str) -> BrokerStatsItem:
            answer = await caller.pool.call(addr, admin.ViewBrokerStatsDataRequestHeader(name, key))
            assert answer.code == ResponseCode.SUCCESS
            return BrokerStatsData.from_json(answer.body).stats_minute

        for number in range(30):
            await caller.send(addr, bytes([number]) * 100)
        pulled = await caller.pull(addr, 0, max_messages=20)
        size = len(pulled.body)
        await trio.sleep(10.5)
        assert await minute("TOPIC_PUT_NUMS", "orders") == BrokerStatsItem(30, 3.0, 1.0)
        stored = await minute("TOPIC_PUT_SIZE", "orders")
        assert stored.sum == size * 30 // 20
        assert await minute("GROUP_GET_NUMS", "orders@billing") == BrokerStatsItem(20, 2.0, 20.0)
        assert (await minute("GROUP_GET_SIZE", "orders@billing")).sum == size
        assert (await minute("BROKER_PUT_NUMS", "lab")).sum == 30
        assert (await minute("BROKER_GET_NUMS", "lab")).sum == 20

        await caller.commit(addr, 20)
        answer = await caller.pool.call(addr, admin.GetConsumeStatsRequestHeader("billing"))
        assert ConsumeStats.from_json(answer.body).consume_tps == 2.0
        answer = await caller.pool.call(addr, admin.GetBrokerConsumeStatsRequestHeader(False))
        listed = fastjson.loads(answer.body, dict[str, Any], what="stats")["consumeStatsList"]
        assert [each["consumeTps"] for stats in listed for each in stats.get("billing", [])] == [
            2.0
        ]


async def test_unknown_statistic_is_answered_with_an_error(autojump_clock: MockClock) -> None:
    async with asking() as one:
        header = admin.ViewBrokerStatsDataRequestHeader("TOPIC_PUT_NUMS", "T")
        answer = await one.ask(header)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "The stats <TOPIC_PUT_NUMS> <T> not exist"


@pytest.mark.parametrize(
    ("header", "code_count"),
    [
        (admin.GetTopicStatsInfoRequestHeader("T"), 1),
        (admin.GetConsumeStatsRequestHeader("G"), 2),
        (admin.QueryConsumeTimeSpanRequestHeader("T", "G"), 1),
        (admin.GetBrokerConsumeStatsRequestHeader(False), 2),
        (admin.ResetOffsetRequestHeader("T", "G", -1, True), 1),
    ],
    ids=["202", "208", "303", "317", "222"],
)
async def test_others_are_answered_during_a_request_about_many_queues(
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    header: RequestHeader,
    code_count: int,
) -> None:
    """The JSON of all steps together is that of all queues."""
    monkeypatch.setattr(long_answers, "STEP_QUEUES", 16)
    queues = 20 * 16 + 1
    async with asking() as one, one.other_client({}) as other:
        state, answered = one.broker.state, False
        for topic in ("T", "U"):
            state.topics.update(TopicConfig(topic, queues, queues))
            state.consumer_offsets.commit_offset("G", topic, queues - 1, 0)
        state.groups.find("G")

        async def ask() -> None:
            nonlocal answered
            answer = await one.ask(header)
            answered = True
            assert answer.code == ResponseCode.SUCCESS
            assert bytes(answer.body).count(b'"queueId":') == code_count * queues
            fastjson.loads(answer.body, Any)

        turns = 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            while not answered:
                await other.ask(admin.GetTopicStatsInfoRequestHeader("unknown"))
                turns += 1
        assert turns >= 4


async def test_answer_larger_than_a_frame_is_refused(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_answers, "BODY_SIZE_LIMIT", 1000)
    async with asking() as one:
        one.broker.state.topics.update(TopicConfig("T", 100, 100))
        answer = await one.ask(admin.GetTopicStatsInfoRequestHeader("T"))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "ask for less" in (answer.remark or "")
