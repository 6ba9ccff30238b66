"""Brokers that a stream's topic loses: for a while, or for good; and topics that may not be read for a while.

broker-a, broker-b       each has one queue of the topic; broker-b leaves
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import attrs
import pytest
import trio
from tests.spark.stream_story import Story, a_story, queue
from tests.support.running_cluster import create_topic, load_queue, numbered
from tests.support.second_master import second_master
from trio.testing import MockClock

from rocketrio.spark.errors import (
    BrokerUnreachableError,
    OffsetOutOfRangeError,
    TopicNotFoundError,
)
from rocketrio.spark.reading.offsets import OffsetTable
from rocketrio.spark.streaming.driver import Limit, StreamDriver
from rocketrio_broker.embedded import Member
from rocketrio_protocol.message import MessageQueue

A, B = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-b", 0)
TIMEOUT: Final = 9.0
GIVEN: Final = {"offsetFailureTimeoutMs": f"{TIMEOUT * 1000:.0f}", "discoveryIntervalMs": "1000"}
RETIRED: Final = {**GIVEN, "retiredBrokers": "broker-x, broker-b"}
ONCE: Final = Limit(is_only_batch=True, is_surely_last=True)


@attrs.define
class Two:
    """A story with a second broker name."""

    story: Story
    other: Member

    async def write(self, count: int) -> None:
        """Store messages at broker-b."""
        await load_queue(
            self.story.pool, self.other.broker.address, "orders", 0, numbered(0, count)
        )

    async def latest(
        self, stream: StreamDriver, start: OffsetTable, limit: Limit | None = None
    ) -> dict[str, int]:
        end = await stream.latest(self.story.client, start, limit or Limit())
        return {queue.broker_name: offset for queue, offset in end.items()}

    async def stay(self, stream: StreamDriver, start: OffsetTable, seconds: float) -> OffsetTable:
        """Do as a query does whose batch takes that time; return what it would read last."""
        deadline = trio.current_time() + seconds
        while trio.current_time() < deadline:
            end = await stream.latest(self.story.client, start, Limit())
            await trio.sleep(0.3)
        return end

    async def follow(self, stream: StreamDriver, start: OffsetTable, seconds: float) -> OffsetTable:
        """Do as a query does for some time; return what it has read."""
        deadline = trio.current_time() + seconds
        while trio.current_time() < deadline:
            start = await stream.latest(self.story.client, start, Limit())
        return start


@asynccontextmanager
async def two_brokers(count: int = 5) -> AsyncIterator[Two]:
    """Each broker has `count` messages."""
    async with a_story(queues=1, count=count) as story:
        other = await second_master(story.cluster)
        await create_topic(story.pool, other.broker.address, "orders", 1)
        two = Two(story, other)
        await two.write(count)
        await trio.sleep(2)
        yield two


# ----------------------------------------------------------------------------- read to the last known end


@pytest.mark.slow
async def test_broker_that_was_read_to_its_end_and_is_stopped_ends_no_query(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with two_brokers() as two:
        stream = two.story.stream(**GIVEN)
        start = await two.follow(stream, {A: 0, B: 0}, 5)
        assert start == {A: 5, B: 5}
        await two.other.stop()
        start = await two.follow(stream, start, 3 * TIMEOUT)
        assert caplog.text.count("broker is out of service") == 1
        assert stream.let_go(start) == {B: 5}
        await two.story.write(0, 3)
        assert await two.follow(stream, start, 5) == {A: 8, B: 5}
        # A later run knows it by the checkpoint.
        again = two.story.stream(**GIVEN)
        again.continue_without(stream.let_go(start))
        assert await two.follow(again, {A: 5, B: 5}, 3 * TIMEOUT) == {A: 8, B: 5}
        await again.set_target(two.story.client)
        assert await two.latest(again, {A: 5, B: 5}) == {"broker-a": 8, "broker-b": 5}


@pytest.mark.slow
async def test_broker_that_was_let_go_and_comes_back_is_read_on(autojump_clock: MockClock) -> None:
    async with two_brokers() as two:
        stream = two.story.stream(**GIVEN)
        start = await two.follow(stream, {A: 5, B: 5}, 5)
        await two.other.stop()
        start = await two.follow(stream, start, 2 * TIMEOUT)
        await two.other.start()
        await two.write(4)
        start = await two.follow(stream, start, TIMEOUT)
        assert (start, stream.let_go(start)) == ({A: 5, B: 9}, {})
        await two.write(2)
        assert await two.follow(stream, start, 5) == {A: 5, B: 11}


async def test_broker_with_unread_messages_that_is_stopped_ends_the_query(
    autojump_clock: MockClock,
) -> None:
    async with two_brokers() as two:
        stream = two.story.stream(**GIVEN)
        await two.latest(stream, {A: 5, B: 3}, Limit(0))
        await two.other.stop()
        with pytest.raises(BrokerUnreachableError, match=r"broker-b has answered.*retiredBrokers"):
            await two.stay(stream, {A: 5, B: 3}, 3 * TIMEOUT)


async def test_run_that_never_saw_the_broker_does_not_let_it_go(autojump_clock: MockClock) -> None:
    """Whether it holds more is not known."""
    async with two_brokers() as two:
        await two.other.stop()
        stream = two.story.stream(**GIVEN)
        with pytest.raises(BrokerUnreachableError, match="name it in retiredBrokers"):
            await two.follow(stream, {A: 5, B: 5}, 3 * TIMEOUT)


# --------------------------------------------------------------------------------------- retiredBrokers


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize(
    ("at", "is_seen", "said"),
    [
        (5, True, None),
        (3, True, r"offsets 3 to 5 \(2 messages\) are unread"),
        (5, False, "whether it held more is not known"),
    ],
)
async def test_retired_broker_is_let_go_and_what_may_be_unread_is_lost(
    autojump_clock: MockClock,
    at: int,
    is_seen: bool,
    said: str | None,
    fails: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with two_brokers() as two:
        stream = two.story.stream(**RETIRED, failOnDataLoss=str(fails).lower())
        start = {A: 5, B: at}
        if is_seen:
            await stream.latest(two.story.client, start, Limit())
        await two.other.stop()
        if said is not None and fails:
            with pytest.raises(OffsetOutOfRangeError, match=f"broker-b:0 was read .* {said}"):
                await two.stay(stream, start, 5)
            return
        assert await two.stay(stream, start, 5) == start
        assert stream.let_go(start) == {B: at}
        assert await two.follow(stream, start, 3 * TIMEOUT) == start
        assert caplog.text.count("lost messages skipped") == (said is not None)


async def test_retired_broker_that_still_runs_is_read(autojump_clock: MockClock) -> None:
    async with two_brokers() as two:
        stream = two.story.stream(**RETIRED)
        assert await two.follow(stream, {A: 0, B: 0}, 5) == {A: 5, B: 5}
        assert stream.let_go({A: 5, B: 5}) == {}


# --------------------------------------------------------------------------- reads that come to an end


@pytest.mark.parametrize("is_once", [True, False])
async def test_read_that_ends_does_not_pass_over_a_broker_that_is_away(
    autojump_clock: MockClock, is_once: bool
) -> None:
    async with two_brokers() as two:
        await two.write(40)
        await two.other.stop()
        stream = two.story.stream(**GIVEN)
        if not is_once:
            await stream.set_target(two.story.client)
        with pytest.raises(
            BrokerUnreachableError, match=r"what it holds from 5 on is unread.*retiredBrokers"
        ):
            await two.latest(stream, {A: 5, B: 5}, ONCE if is_once else Limit())


async def test_queue_that_comes_back_after_the_target_was_set_is_read(
    autojump_clock: MockClock,
) -> None:
    async with two_brokers() as two:
        await two.write(40)
        await two.other.stop()
        stream = two.story.stream(**GIVEN)
        await stream.set_target(two.story.client)
        await two.other.start()
        await trio.sleep(5)
        assert await two.latest(stream, {A: 5, B: 5}) == {"broker-a": 5, "broker-b": 45}


@pytest.mark.parametrize("fails", [True, False])
async def test_read_that_ends_goes_on_without_a_retired_broker(
    autojump_clock: MockClock, fails: bool
) -> None:
    async with two_brokers() as two:
        await two.story.write(0, 3)
        await two.other.stop()
        stream = two.story.stream(**RETIRED, failOnDataLoss=str(fails).lower())
        await stream.set_target(two.story.client)
        if fails:
            with pytest.raises(OffsetOutOfRangeError, match="whether it held more is not known"):
                await two.latest(stream, {A: 5, B: 5})
            return
        assert await two.latest(stream, {A: 5, B: 5}) == {"broker-a": 8, "broker-b": 5}


# ---------------------------------------------------------------------------- topics that may not be read


async def test_topic_that_may_not_be_read_for_a_while_is_waited_for(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_story(count=5) as story:
        stream = story.stream(**GIVEN)
        start: OffsetTable = {queue(0): 5, queue(1): 5}
        assert await story.latest(stream, start) == {0: 5, 1: 5}
        await story.admin.create_topic("orders", queues=2, perm=2)
        await story.write(0, 3)
        deadline = trio.current_time() + TIMEOUT / 2
        await trio.sleep(2)
        while trio.current_time() < deadline:
            assert await story.latest(stream, start) == {0: 5, 1: 5}
        assert caplog.text.count("topic may not be read, its queues wait topic=orders") == 1
        await story.admin.create_topic("orders", queues=2, perm=6)
        await trio.sleep(2)
        assert await story.latest(stream, start) == {0: 8, 1: 5}


@pytest.mark.parametrize("is_once", [True, False])
async def test_topic_that_may_not_be_read_is_named_in_the_end(
    autojump_clock: MockClock, is_once: bool
) -> None:
    async with a_story(count=5) as story:
        await story.admin.create_topic("orders", queues=2, perm=2)
        await trio.sleep(2)
        start = {queue(0): 5, queue(1): 5}
        stream = story.stream(**GIVEN)

        async def read_on() -> None:
            while True:
                await story.latest(stream, start, ONCE if is_once else None)

        with pytest.raises(TopicNotFoundError, match="orders may not be read"):
            await read_on()
        with pytest.raises(TopicNotFoundError, match="orders may not be read"):
            await story.stream(**GIVEN).set_target(story.client)
