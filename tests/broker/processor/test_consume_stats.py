import trio
from tests.broker.processor.asking import Asking, asking
from trio.testing import MockClock

from rocketrio_protocol import fastjson
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.commands import admin, client
from rocketrio_protocol.commands.client import ConsumerData, HeartbeatData, SubscriptionData
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.stats import (
    ConsumeStats,
    GroupList,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    TopicOffset,
    TopicStatsTable,
)
from rocketrio_protocol.topic_config import SubscriptionGroupConfig, TopicConfig

FIRST, SECOND = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)


async def three_messages(one: Asking) -> list[int]:
    """T has three messages in its first queue of two; their store times."""
    one.broker.parts.topics.update(TopicConfig("T", 2, 2))
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
        one.broker.parts.consumer_offsets.commit_offset("G", "T", 0, 2)
        answer = await one.ask(admin.GetConsumeStatsRequestHeader("G"))
        stats = ConsumeStats.from_json(answer.body)
        assert stats.offset_table == {
            FIRST: OffsetWrapper(3, 2, times[1]),
            SECOND: OffsetWrapper(0, 0, 0),
        }
        assert stats.total_diff == 1
        nobody = await one.ask(admin.GetConsumeStatsRequestHeader("H", "T"))
        assert ConsumeStats.from_json(nobody.body).total_diff == 3


async def test_topics_that_a_connected_group_left_are_no_part_of_its_progress(
    autojump_clock: MockClock,
) -> None:
    async with asking() as one:
        await three_messages(one)
        one.broker.parts.consumer_offsets.commit_offset("G", "T", 0, 2)
        data = ConsumerData("G", subscription_data_set=[SubscriptionData("U", sub_version=1)])
        body = fastjson.dumps(HeartbeatData("c1", [data]))
        await one.ask(client.HeartBeatRequestHeader(), body)
        answer = await one.ask(admin.GetConsumeStatsRequestHeader("G"))
        assert ConsumeStats.from_json(answer.body).offset_table == {}


async def test_who_consumes_a_topic(autojump_clock: MockClock) -> None:
    async with asking() as one:
        one.broker.parts.consumer_offsets.commit_offset("gone", "T", 0, 2)
        data = ConsumerData("here", subscription_data_set=[SubscriptionData("T", sub_version=1)])
        body = fastjson.dumps(HeartbeatData("c1", [data]))
        await one.ask(client.HeartBeatRequestHeader(), body)
        answer = await one.ask(admin.QueryTopicConsumeByWhoRequestHeader("T"))
        assert GroupList.from_json(answer.body).group_list == ["here", "gone"]


async def test_how_far_in_time_a_group_is(autojump_clock: MockClock) -> None:
    async with asking() as one:
        times = await three_messages(one)
        one.broker.parts.consumer_offsets.commit_offset("G", "T", 0, 2)
        answer = await one.ask(admin.QueryConsumeTimeSpanRequestHeader("T", "G"))
        first, second = QueryConsumeTimeSpanBody.from_json(answer.body).consume_time_span_set
        assert (first.min_time_stamp, first.max_time_stamp) == (times[0], times[2])
        assert first.consume_time_stamp == times[1]
        assert first.delay_time == 10_000
        assert (second.min_time_stamp, second.consume_time_stamp, second.delay_time) == (-1, -1, 0)


async def test_progress_of_all_groups(autojump_clock: MockClock) -> None:
    async with asking() as one:
        await three_messages(one)
        one.broker.parts.groups.update(SubscriptionGroupConfig("G"))
        one.broker.parts.consumer_offsets.commit_offset("G", "T", 0, 1)
        answer = await one.ask(admin.GetBrokerConsumeStatsRequestHeader(is_order=False))
        body = bytes(answer.body)
        assert b'"totalDiff":2' in body
        assert b'{{"brokerName":"broker-a","queueId":0,"topic":"T"}:{"brokerOffset":3' in body
        ordered = await one.ask(admin.GetBrokerConsumeStatsRequestHeader(is_order=True))
        assert b'"totalDiff":0' in bytes(ordered.body)
