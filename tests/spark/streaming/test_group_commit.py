"""What brokers learn of a stream's progress: a true lag, down to none, whatever fails."""

import logging

import pytest
import trio
from tests.spark.stream_story import Story, a_story, queue
from tests.support.clients import open_consumer
from trio.testing import MockClock

from rocketrio.spark.reading.offsets import OffsetTable
from rocketrio.spark.streaming.driver import Limit

GROUP = "watched"


async def _lags(story: Story) -> list[int | None]:
    return [found.lag for found in await story.admin.offsets("orders", GROUP)]


async def test_an_idle_stream_has_no_lag_at_the_broker(autojump_clock: MockClock) -> None:
    async with a_story(count=10) as story:
        stream = story.stream(consumerGroup=GROUP)
        start: OffsetTable = {queue(0): 4, queue(1): 10}
        end = await stream.latest(story.client, start, Limit())
        assert await _lags(story) == [6, 0]
        assert await stream.latest(story.client, end, Limit()) == end
        assert await _lags(story) == [0, 0]
        stats = await story.admin.consume_stats(GROUP)
        assert (
            sum(
                found.broker_offset - found.consumer_offset for found in stats.offset_table.values()
            )
            == 0
        )


async def test_while_it_reads_a_stream_commits_once_an_interval(autojump_clock: MockClock) -> None:
    async with a_story(queues=1, count=1000) as story:
        stream = story.stream(
            consumerGroup=GROUP, commitIntervalMs="1000", offsetPollIntervalMs="1"
        )
        start: OffsetTable = {queue(0): 0}
        lags = []
        for _ in range(8):
            start = await stream.latest(story.client, start, Limit(10))
            await trio.sleep(0.3)
            await stream.finished(story.client, start)
            lags += await _lags(story)
        assert lags == [1000] * 3 + [960] * 4 + [920]


async def test_a_checkpoint_behind_the_group_wins(autojump_clock: MockClock) -> None:
    async with a_story(queues=1, count=10) as story:
        await story.admin.reset_offsets(GROUP, {queue(0): 9})
        stream = story.stream(consumerGroup=GROUP)
        assert await story.latest(stream, {queue(0): 4}) == {0: 10}
        assert await _lags(story) == [6]


async def test_commits_that_fail_are_made_up_for(autojump_clock: MockClock) -> None:
    async with a_story(queues=1, count=10) as story:
        stream = story.stream(consumerGroup=GROUP)
        end = await stream.latest(story.client, {queue(0): 0}, Limit())
        await story.cluster.kill_master()
        for _ in range(10):
            assert await stream.latest(story.client, end, Limit()) == end
        await story.cluster.restart_master()
        for _ in range(40):
            assert await stream.latest(story.client, end, Limit()) == end
        assert await _lags(story) == [0]


async def test_without_a_group_nothing_is_committed(autojump_clock: MockClock) -> None:
    async with a_story(queues=1, count=10) as story:
        stream = story.stream(consumerGroup=GROUP, commitOffsets="false")
        await story.latest(stream, {queue(0): 10})
        assert [found.committed_offset for found in await story.admin.offsets("orders", GROUP)] == [
            None
        ]


async def test_live_members_of_the_group_are_warned_of(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_story(queues=1, count=10) as story:
        servers, dial = story.cluster.name_servers, story.cluster.dial
        async with open_consumer("orders", group=GROUP, name_servers=servers, dial=dial):
            with caplog.at_level(logging.WARNING):
                await story.latest(story.stream(consumerGroup=GROUP), {queue(0): 10})
        assert "the consumer group has live members" in caplog.text
        assert f"group={GROUP} count=1 " in caplog.text


async def test_tools_find_the_groups_retry_topic(autojump_clock: MockClock) -> None:
    async with a_story(queues=1, count=10) as story:
        await story.latest(story.stream(consumerGroup=GROUP), {queue(0): 10})
        await trio.sleep(1)
        assert await story.client.name_servers.topic_route(f"%RETRY%{GROUP}") is not None
        assert GROUP in await story.admin.groups()


async def test_master_that_returns_with_an_older_state_gets_the_commit_again(
    autojump_clock: MockClock,
) -> None:
    async with a_story(queues=1, count=10) as story:
        stream = story.stream(consumerGroup=GROUP)
        end = {queue(0): 10}
        await stream.latest(story.client, end, Limit())
        assert await _lags(story) == [0]
        await story.cluster.kill_master()
        await stream.latest(story.client, end, Limit())
        await story.cluster.restart_master()
        await story.client.api.update_consumer_offset(story.master, GROUP, queue(0), 2)
        for _ in range(40):
            await stream.latest(story.client, end, Limit())
        assert await _lags(story) == [0]
