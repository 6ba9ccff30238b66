"""Single things that consoles look at: queue entries, producers, a group's topics and subscriptions."""

import trio
from tests.broker.processors.asking import Asking, asking
from tests.support.caller import Caller
from trio.testing import MockClock

from rocketrio_protocol.bodies.heartbeat import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from rocketrio_protocol.bodies.inspection import (
    GroupSubscription,
    ProducerTableInfo,
    QueryConsumeQueueBody,
)
from rocketrio_protocol.bodies.route import TopicList
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.commands import inspection
from rocketrio_protocol.commands.offset import UpdateConsumerOffsetRequestHeader
from rocketrio_protocol.record.java_hash import tags_code


async def send(one: Asking, *tags: str) -> None:
    for number, tag in enumerate(tags):
        await Caller(one.pool).send(
            one.broker.address,
            b"x",
            topic="T",
            properties=f"TAGS\x01{tag}\x02size\x01{number}",
        )


async def beat(one: Asking, subscription: SubscriptionData) -> None:
    await one.beat(
        HeartbeatData(
            "c1", [ConsumerData("G", subscription_data_set=[subscription])], [ProducerData("P")]
        )
    )


async def entries(one: Asking, group: str | None = "G", **fields: int) -> QueryConsumeQueueBody:
    header = inspection.QueryConsumeQueueRequestHeader(
        "T", 0, fields.get("count", 10), fields.get("at", 0), group
    )
    answer = await one.ask(header)
    assert answer.code == ResponseCode.SUCCESS
    return QueryConsumeQueueBody.from_json(answer.body)


async def test_entries_of_a_queue_are_shown_as_they_are(autojump_clock: MockClock) -> None:
    async with asking() as one:
        await send(one, "a", "b", "c")
        body = await entries(one, None, at=1, count=1)
        (entry,) = body.queue_data
        assert entry.tags_code == tags_code("b")
        assert one.broker.store.message_at(entry.physic_offset) is not None
        assert (body.min_queue_index, body.max_queue_index) == (0, 3)
        assert (await entries(one)).filter_data == "G@T is not online!"
        unknown = inspection.QueryConsumeQueueRequestHeader("T", 7, 1, 0)
        assert (await one.ask(unknown)).code == ResponseCode.SYSTEM_ERROR


async def test_entries_show_whether_the_group_receives_them(autojump_clock: MockClock) -> None:
    async with asking() as one:
        await send(one, "a", "b", "a")
        await beat(one, SubscriptionData("T", "a", ["a"], [tags_code("a")], 1))
        assert [entry.eval for entry in (await entries(one)).queue_data] == [True, False, True]
        await beat(one, SubscriptionData("T", "*", sub_version=2))
        assert (await entries(one)).filter_data == "null"
        assert [entry.eval for entry in (await entries(one)).queue_data] == [True] * 3
        await beat(one, SubscriptionData("T", "size > 0", [], [], 3, "SQL92"))
        body = await entries(one)
        assert [entry.eval for entry in body.queue_data] == [False, True, True]
        assert body.filter_data == "size > 0"


async def test_producers_are_listed_by_group(autojump_clock: MockClock) -> None:
    async with asking() as one:
        await beat(one, SubscriptionData("T"))
        await trio.sleep(7)
        answer = await one.ask(inspection.GetAllProducerInfoRequestHeader())
        ((group, (producer,)),) = ProducerTableInfo.from_json(answer.body).data.items()
        (member,) = one.broker.state.producers.group_channel_table["P"].values()
        address = f"/{member.channel.remote_addr}"
        assert address.startswith("/10.0.0.100:")
        assert (group, producer.client_id, producer.remote_ip) == ("P", "c1", address)
        now_ms = one.broker.state.wall_clock.now_ms()
        assert producer.last_update_timestamp == now_ms - 7000


async def test_topics_and_subscription_of_a_group(autojump_clock: MockClock) -> None:
    async with asking() as one:
        one.put("T", b"a")
        await one.ask(UpdateConsumerOffsetRequestHeader("G", "T", 0, 3))
        answer = await one.ask(inspection.QueryTopicsByConsumerRequestHeader("G"))
        topics = TopicList.from_json(answer.body)
        assert (topics.topic_list, topics.broker_addr) == (["T"], one.broker.address)
        header = inspection.QuerySubscriptionByConsumerRequestHeader("G", "T")
        answer = await one.ask(header)
        assert GroupSubscription.from_json(answer.body).subscription_data is None
        await beat(one, SubscriptionData("T", "a || b"))
        answer = await one.ask(header)
        known = GroupSubscription.from_json(answer.body).subscription_data
        assert known is not None
        assert known.sub_string == "a || b"
