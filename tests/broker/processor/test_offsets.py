"""Apache's answers to these codes are compared in tests/broker/test_replay_broker.py; here are the rules."""

import attrs
import pytest
import trio
from tests.broker.processor.asking import Asking, asking
from trio.testing import MockClock

from rocketrio_broker.embedded import SMALL_STORE
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.commands import offset
from rocketrio_protocol.commands.offset import OffsetResponseHeader, TimestampResponseHeader
from rocketrio_protocol.topic_config import TopicConfig
from rocketrio_protocol.topic_names import retry_topic


async def committed(one: Asking, *, zero: bool | None = None, queue_id: int = 0) -> int | None:
    """The group's offset; None when the broker says that there is none."""
    answer = await one.ask(offset.QueryConsumerOffsetRequestHeader("G", "T", queue_id, zero))
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    assert answer.code == ResponseCode.SUCCESS
    return answer.header(OffsetResponseHeader).offset


async def test_a_commit_is_read_again_and_the_last_one_wins(autojump_clock: MockClock) -> None:
    async with asking() as one:
        for value in (5, 3):
            commit = offset.UpdateConsumerOffsetRequestHeader("G", "T", 0, value)
            assert (await one.ask(commit)).code == ResponseCode.SUCCESS
            assert await committed(one) == value
            assert await committed(one, zero=False) == value


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"queue_id": -1}, "queue -1 of T; the first queue is 0"),
        ({"commit_offset": -1}, "-1 on queue 0 of T; the first offset is 0"),
        ({"topic": "a@b"}, "topic 'a@b' contains illegal characters"),
        ({"topic": ""}, "topic is blank"),
        ({"topic": "T" * 128}, "longer than 127"),
        ({"topic": "%RETRY%a@b"}, "'a@b' contains illegal characters"),
        ({"consumer_group": "a@b"}, "group 'a@b' contains illegal characters"),
        ({"consumer_group": " "}, "group is blank"),
    ],
)
async def test_a_commit_that_can_be_no_progress_is_refused(
    autojump_clock: MockClock, fields: dict[str, object], why: str
) -> None:
    async with asking() as one:
        right = offset.UpdateConsumerOffsetRequestHeader("G", "T", 0, 5)
        answer = await one.ask(attrs.evolve(right, **fields))  # type: ignore[arg-type]
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert why in answer.remark
        assert not one.broker.parts.consumer_offsets.offset_table


async def test_a_commit_is_taken_for_the_retry_topic_of_a_long_group(
    autojump_clock: MockClock,
) -> None:
    group = "G" * 255
    async with asking() as one:
        commit = offset.UpdateConsumerOffsetRequestHeader(group, retry_topic(group), 0, 5)
        assert (await one.ask(commit)).code == ResponseCode.SUCCESS


async def test_a_new_group_starts_a_young_queue_at_0_unless_it_wants_to_know(
    autojump_clock: MockClock,
) -> None:
    async with asking() as one:
        assert await committed(one) == 0
        one.put("T", b"a")
        assert await committed(one) == 0
        assert await committed(one, zero=True) == 0
        assert await committed(one, zero=False) is None


async def test_a_new_group_on_a_queue_that_has_left_memory_has_no_offset(
    autojump_clock: MockClock,
) -> None:
    store = attrs.evolve(SMALL_STORE, access_message_in_memory_max_bytes=0)
    async with asking(store=store) as one:
        assert await committed(one) == 0
        one.put("T", b"a")
        assert await committed(one) is None


async def bounds(one: Asking, topic: str, queue_id: int = 0) -> tuple[int, int]:
    low = await one.ask(offset.GetMinOffsetRequestHeader(topic, queue_id))
    high = await one.ask(offset.GetMaxOffsetRequestHeader(topic, queue_id))
    return low.header(OffsetResponseHeader).offset, high.header(OffsetResponseHeader).offset


async def test_bounds_of_a_queue(autojump_clock: MockClock) -> None:
    async with asking() as one:
        one.broker.parts.topics.update(TopicConfig("T", 2, 2))
        one.put("T", b"a", b"b", b"c")
        assert await bounds(one, "T") == (0, 3)
        assert await bounds(one, "T", 1) == (0, 0)
        assert await bounds(one, "T", 2) == (-1, 0)
        assert await bounds(one, "U") == (-1, 0)


async def test_offsets_by_store_time(autojump_clock: MockClock) -> None:
    async with asking() as one:
        times = []
        for body in (b"a", b"b", b"c"):
            times.append(one.cluster.wall_clock.now_ms())
            one.put("T", body)
            await trio.sleep(10)

        async def search(timestamp: int, boundary: str | None = None) -> int:
            answer = await one.ask(offset.SearchOffsetRequestHeader("T", 0, timestamp, boundary))
            return answer.header(OffsetResponseHeader).offset

        assert [await search(time) for time in times] == [0, 1, 2]
        assert await search(times[1] + 1, "LOWER") == 2
        assert await search(times[2] + 1, "LOWER") == 3
        assert await search(times[1] + 1, "UPPER") == 1
        earliest = await one.ask(offset.GetEarliestMsgStoretimeRequestHeader("T", 0))
        assert earliest.header(TimestampResponseHeader).timestamp == times[0]
        none = await one.ask(offset.GetEarliestMsgStoretimeRequestHeader("U", 0))
        assert none.header(TimestampResponseHeader).timestamp == -1


async def test_a_slave_takes_commits_too(autojump_clock: MockClock) -> None:
    async with asking(slaves=1) as one:
        slave = Asking(one.cluster, one.pool, one.cluster.slaves[0].broker)
        await slave.ask(offset.UpdateConsumerOffsetRequestHeader("G", "T", 0, 5))
        assert await committed(slave) == 5
