"""A stream's questions against a whole cluster in memory: where it starts, how far it goes, where it ends."""

import json
from typing import Any

import pytest
import trio
from tests.spark.stream_story import a_story, queue
from tests.support.running_cluster import load_queue, numbered
from trio.testing import MockClock

from rocketrio.cluster.api import ClientAPI, QueueEnd
from rocketrio.spark.errors import (
    BrokerUnreachableError,
    OffsetOutOfRangeError,
    OptionError,
    TopicNotFoundError,
)
from rocketrio.spark.reading.offsets import (
    AtTimestamp,
    ExplicitOffsets,
    GroupOffsets,
    OffsetTable,
    Position,
)
from rocketrio.spark.streaming.driver import Limit, StreamStart
from rocketrio.spark.streaming.position import SHRUNK_GRACE
from rocketrio_protocol.message import MessageQueue


@pytest.mark.parametrize(
    ("given", "starts"),
    [
        ({}, [7, 7]),
        ({"startingOffsets": "earliest"}, [0, 0]),
        ({"startingOffsets": '{"orders":{"broker-a":{"0":3,"1":-1}}}'}, [3, 7]),
        ({"startingOffsets": "group", "consumerGroup": "watched"}, [0, 0]),
        ({"startingTimestamp": "0"}, [0, 0]),
    ],
)
async def test_new_query_starts_at_the_given_position(
    autojump_clock: MockClock, given: dict[str, str], starts: list[int]
) -> None:
    async with a_story(count=7) as story:
        stream = story.stream(**given)
        initial = await stream.initial(story.client)
        assert [initial[queue(number)] for number in range(2)] == starts
        await story.write(0, 5)
        assert await stream.initial(story.client) == initial, "Spark asks twice"


async def test_fresh_query_refuses_missing_topics(autojump_clock: MockClock) -> None:
    async with a_story(count=7) as story:
        with pytest.raises(TopicNotFoundError, match="nothing"):
            await story.stream(subscribe="nothing").initial(story.client)
        with pytest.raises(OffsetOutOfRangeError, match="7 to 9"):
            await story.stream(startingOffsets='{"orders":{"broker-a":{"0":9,"1":0}}}').initial(
                story.client
            )
        with pytest.raises(OptionError, match="broker-a:1"):
            await story.stream(startingOffsets='{"orders":{"broker-a":{"0":0}}}').initial(
                story.client
            )


async def test_a_pattern_may_wait_for_its_first_topic(autojump_clock: MockClock) -> None:
    async with a_story() as story:
        stream = story.stream(subscribePattern="later-.*", startingOffsets="earliest")
        start = await stream.initial(story.client)
        assert start == {}
        assert await story.latest(stream, start) == {}
        await story.topic(1, topic="later-1")
        await story.write(0, 3, topic="later-1")
        await trio.sleep(11)
        assert await story.latest(stream, start) == {0: 0}, "new: with nothing to read yet"
        assert await story.latest(stream, {queue(0, "later-1"): 0}) == {0: 3}


async def test_the_first_poll_of_a_fresh_query_returns_start(autojump_clock: MockClock) -> None:
    async with a_story(count=7) as story:
        stream = story.stream(startingOffsets="earliest")
        start = await stream.initial(story.client)
        assert await story.latest(stream, start) == {0: 0, 1: 0}
        assert stream.ranges(start, start) == []
        assert await story.latest(stream, start) == {0: 7, 1: 7}


async def test_a_replayed_first_batch_is_what_the_log_says(autojump_clock: MockClock) -> None:
    async with a_story(count=7) as story:
        logged = {queue(0): 3, queue(1): 3}
        moved = story.stream()  # latest: 7 now, and 3 when batch 0 was planned
        start = await moved.initial(story.client)
        assert moved.ranges(start, logged) == []
        assert await story.latest(moved, logged) == {0: 7, 1: 7}, "nothing between 3 and 7 is lost"
        earlier = story.stream(startingOffsets="earliest")
        (part, _) = earlier.ranges(await earlier.initial(story.client), logged)
        assert (part.start, part.end) == (0, 3)


async def test_brokers_are_asked_once_an_interval(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_story(count=1) as story:
        stream = story.stream(offsetPollIntervalMs="250")
        start, asked = {queue(0): 1, queue(1): 1}, 0
        queue_end = ClientAPI.queue_end

        async def counted(*args: Any, **named: Any) -> QueueEnd:
            nonlocal asked
            asked += 1
            return await queue_end(*args, **named)

        monkeypatch.setattr(ClientAPI, "queue_end", counted)
        began = trio.current_time()
        for _ in range(9):
            await story.latest(stream, start)
        assert trio.current_time() - began == pytest.approx(8 * 0.25)
        assert asked == 9 * 2


async def test_what_was_seen_is_read_before_anybody_is_asked_again(
    autojump_clock: MockClock,
) -> None:
    async with a_story(count=100) as story:
        stream = story.stream(offsetPollIntervalMs="60000")
        began = trio.current_time()
        assert await story.latest(stream, {queue(0): 0, queue(1): 50}, Limit(30)) == {
            0: 20,
            1: 60,
        }
        assert await story.latest(stream, {queue(0): 20, queue(1): 60}, Limit(30)) == {
            0: 40,
            1: 70,
        }
        assert trio.current_time() == began


async def test_a_limit_in_bytes_is_soft(autojump_clock: MockClock) -> None:
    async with a_story(queues=1) as story:
        await load_queue(story.pool, story.master, "orders", 0, numbered(0, 200, body_size=1000))
        stream = story.stream()
        (end,) = (await story.latest(stream, {queue(0): 0}, Limit(None, 20_000))).values()
        assert 14 <= end <= 20
        both = await story.latest(stream, {queue(0): 0}, Limit(5, 20_000))
        assert both == {0: 5}
        assert await story.latest(stream, {queue(0): 0}, Limit(None, 1)) == {0: 1}


async def test_a_new_queue_is_found_and_read_from_its_first_message(
    autojump_clock: MockClock,
) -> None:
    async with a_story(count=5) as story:
        stream = story.stream(discoveryIntervalMs="1000")
        start = {queue(0): 5, queue(1): 5}
        assert await story.latest(stream, start) == {0: 5, 1: 5}
        await story.topic(3)
        await story.write(2, 4)
        await trio.sleep(1)
        assert await story.latest(stream, start) == {0: 5, 1: 5, 2: 0}
        assert await story.latest(stream, start | {queue(2): 0}) == {0: 5, 1: 5, 2: 4}


async def test_assigned_queues_are_all_that_is_read(autojump_clock: MockClock) -> None:
    async with a_story(count=5) as story:
        stream = story.stream(assign='{"orders":{"broker-a":[1]}}', startingOffsets="earliest")
        assert await stream.initial(story.client) == {queue(1): 0}
        assert await story.latest(stream, {queue(1): 0}) == {1: 0}
        # Of a time when the options named other queues: carried, not read, and no loss.
        assert await story.latest(stream, {queue(0): 2, queue(1): 0}) == {0: 2, 1: 5}


async def test_a_query_with_a_target_reads_to_it_and_stops(autojump_clock: MockClock) -> None:
    async with a_story(count=100) as story:
        stream = story.stream(startingOffsets="earliest")
        await stream.set_target(story.client)
        start: OffsetTable = await stream.initial(story.client)
        assert await story.latest(stream, start) == {0: 0, 1: 0}
        await story.write(0, 50)
        steps = []
        while (end := await stream.latest(story.client, start, Limit(80))) != start:
            steps.append(sum(end.values()) - sum(start.values()))
            start = end
        assert steps == [80, 80, 40]
        assert stream.newest(start) == {queue(0): 150, queue(1): 100}


async def test_a_query_with_a_target_ends_although_its_topic_is_deleted(
    autojump_clock: MockClock,
) -> None:
    async with a_story(count=100) as story:
        stream = story.stream(failOnDataLoss="false")
        await stream.set_target(story.client)
        start: OffsetTable = {queue(0): 10, queue(1): 10}
        end = await stream.latest(story.client, start, Limit(20))
        assert end != start
        await story.admin.delete_topic("orders")
        assert await stream.latest(story.client, end, Limit()) != end, "as it was seen"
        end = {queue(0): 100, queue(1): 100}
        while (after := await stream.latest(story.client, end, Limit())) != end:
            end = after


@pytest.mark.parametrize("is_only_batch", [True, False])
async def test_an_only_batch_waits_until_it_knows_whether_a_queue_was_cut(
    autojump_clock: MockClock, is_only_batch: bool
) -> None:
    async with a_story(count=5) as story:
        stream, limit = story.stream(), Limit(is_only_batch=is_only_batch)
        start, began = {queue(0): 8, queue(1): 3}, trio.current_time()
        if is_only_batch:
            with pytest.raises(OffsetOutOfRangeError, match="was truncated or recreated"):
                await story.latest(stream, start, limit)
            assert trio.current_time() - began == pytest.approx(SHRUNK_GRACE, abs=1)
        else:
            assert await story.latest(stream, start, limit) == {0: 8, 1: 5}
            assert trio.current_time() - began < 1


async def test_only_batch_continues_as_soon_as_a_queue_is_whole_again(
    autojump_clock: MockClock,
) -> None:
    async with a_story(count=5) as story, trio.open_nursery() as nursery:

        async def restore() -> None:
            await trio.sleep(3)
            await story.write(0, 5)

        nursery.start_soon(restore)
        limit = Limit(is_only_batch=True)
        assert await story.latest(story.stream(), {queue(0): 8, queue(1): 3}, limit) == {
            0: 10,
            1: 5,
        }
        assert trio.current_time() < SHRUNK_GRACE


async def test_without_answers_there_is_no_target(autojump_clock: MockClock) -> None:
    async with a_story(count=5) as story:
        await story.cluster.kill_master()
        with pytest.raises(
            BrokerUnreachableError, match=r"a route of orders: .* or all of its brokers are down"
        ):
            await story.stream().set_target(story.client)
        await story.cluster.kill_name_server()
        with pytest.raises(BrokerUnreachableError, match="did not answer"):
            await story.stream().set_target(story.client)


async def test_a_topic_that_is_not_there_is_no_target(autojump_clock: MockClock) -> None:
    async with a_story(count=5) as story:
        with pytest.raises(
            BrokerUnreachableError, match="no name server has a route of oders: it was deleted"
        ):
            await story.stream(subscribe="orders,oders").set_target(story.client)
        with pytest.raises(BrokerUnreachableError, match="a route of orders@broker-z:0:"):
            await story.stream(assign='{"orders":{"broker-z":[0]}}').set_target(story.client)


async def test_the_newest_offsets_are_no_older_than_the_batch(autojump_clock: MockClock) -> None:
    async with a_story(count=5) as story:
        stream = story.stream()
        await story.latest(stream, {queue(0): 3, queue(1): 5})
        assert stream.newest({queue(0): 9, queue(1): 5}) == {queue(0): 9, queue(1): 5}


async def test_queue_without_a_known_end_has_no_newest_offset(autojump_clock: MockClock) -> None:
    async with a_story(count=5) as story:
        stream = story.stream()
        await story.cluster.kill_master()
        assert await story.latest(stream, {queue(0): 3}) == {0: 3}
        assert stream.newest({queue(0): 3}) == {}


def test_offsets_are_the_same_text_whatever_the_order() -> None:
    from rocketrio.spark.streaming.reader import _value

    forth = {queue(number): number for number in (2, 10, 0)}
    back = dict(reversed(forth.items()))
    assert json.dumps(_value(forth)) == json.dumps(_value(back))
    assert list(_value(forth)["queues"]["orders"]["broker-a"]) == ["0", "2", "10"]


QUEUE, OTHER = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
UNCERTAIN: list[Position] = [
    "earliest",
    "latest",
    GroupOffsets(),
    AtTimestamp(1),
    ExplicitOffsets({QUEUE: 7, OTHER: -1}),
    ExplicitOffsets({QUEUE: 7, OTHER: -2}),
]


@pytest.mark.parametrize("starting", UNCERTAIN)
def test_first_poll_after_the_start_returns_the_start_once(starting: Position) -> None:
    start = StreamStart(starting)
    start.asked()
    start.asked()  # Spark asks twice
    assert start.returns_start(is_only_batch=False)
    assert not start.returns_start(is_only_batch=False)
    start.asked()  # a looser test would stand still again
    assert not start.returns_start(is_only_batch=False)


@pytest.mark.parametrize("starting", UNCERTAIN)
def test_restart_does_not_return_the_start(starting: Position) -> None:
    assert not StreamStart(starting).returns_start(is_only_batch=False)


def test_start_from_the_options_needs_no_empty_batch() -> None:
    start = StreamStart(ExplicitOffsets({QUEUE: 7, OTHER: 0}))
    start.asked()
    assert not start.returns_start(is_only_batch=False)


@pytest.mark.parametrize("starting", UNCERTAIN)
def test_replayed_batch_0_is_recognized_and_does_not_return_the_start(starting: Position) -> None:
    start = StreamStart(starting)
    start.asked()
    assert start.replays_first_batch()
    assert not start.replays_first_batch()
    assert not start.returns_start(is_only_batch=False)


@pytest.mark.parametrize("starting", UNCERTAIN)
def test_a_batch_planned_before_the_start_is_asked_for_is_no_replay(starting: Position) -> None:
    start = StreamStart(starting)
    assert not start.replays_first_batch(), "PySpark 4.0: from the logged end to itself"
    start.asked()
    assert start.replays_first_batch()


def test_batches_after_a_poll_are_no_replay() -> None:
    start = StreamStart("latest")
    start.asked()
    start.returns_start(is_only_batch=False)
    assert not start.replays_first_batch()


@pytest.mark.parametrize(
    ("starting", "at_once"),
    [
        ("earliest", True),
        (ExplicitOffsets({QUEUE: 7, OTHER: -2}), True),
        (ExplicitOffsets({QUEUE: 7, OTHER: -1}), False),
        ("latest", False),
        (GroupOffsets(), False),
    ],
)
def test_an_only_batch_reads_at_once_from_a_start_that_is_found_again(
    starting: Position, at_once: bool
) -> None:
    start = StreamStart(starting)
    start.asked()
    assert start.returns_start(is_only_batch=True) is not at_once
    assert start.first_batch_is_empty is not at_once
