"""A stream's questions against a whole cluster in memory: growth, losses, outages, commits, under a virtual clock."""

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
from tests.spark.load import channel_pool, create_topic, load_queue, numbered
from trio.testing import MockClock

from rocketrio import open_consumer
from rocketrio.administration.admin import Admin, open_admin
from rocketrio.api import ClientAPI
from rocketrio.connect import open_client
from rocketrio.instance import ClientInstance
from rocketrio.spark.errors import BrokerUnreachable, OffsetOutOfRange, OptionError, TopicNotFound
from rocketrio.spark.offsets import OffsetTable
from rocketrio.spark.stream_driver import Limit, StreamDriver
from rocketrio.spark.stream_options import parse_stream_options
from rocketrio.spark.stream_position import SHRUNK_GRACE
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.remoting.pool import ChannelPool

GROUP = "watched"


def _queue(number: int, topic: str = "orders") -> MessageQueue:
    return MessageQueue(topic, "broker-a", number)


@attrs.define
class Story:
    """A cluster, somebody who writes, and a stream that reads."""

    cluster: EmbeddedCluster
    pool: ChannelPool
    client: ClientInstance
    admin: Admin

    @property
    def master(self) -> str:
        return self.cluster.master.broker.address

    async def write(self, queue_id: int, count: int, topic: str = "orders") -> None:
        await load_queue(self.pool, self.master, topic, queue_id, numbered(queue_id, count))

    async def topic(self, queues: int, topic: str = "orders") -> None:
        await create_topic(self.pool, self.master, topic, queues)

    def stream(self, **given: str) -> StreamDriver:
        way = (
            {}
            if {"subscribe", "assign", "subscribePattern"} & set(given)
            else {"subscribe": "orders"}
        )
        servers = ";".join(self.cluster.name_servers)
        return StreamDriver(parse_stream_options({"nameServer": servers, **way, **given}))

    async def latest(
        self, stream: StreamDriver, start: OffsetTable, limit: Limit | None = None
    ) -> dict[int, int]:
        end = await stream.latest(self.client, start, limit or Limit())
        return {queue.queue_id: offset for queue, offset in end.items()}


@asynccontextmanager
async def _story(*, queues: int = 2, count: int = 0, **settings: Any) -> AsyncIterator[Story]:
    async with (
        EmbeddedCluster(**settings) as cluster,
        channel_pool(cluster.dial) as pool,
        open_client(name_servers=cluster.name_servers, dial=cluster.dial) as client,
        open_admin(name_servers=cluster.name_servers, dial=cluster.dial) as admin,
    ):
        story = Story(cluster, pool, client, admin)
        await story.topic(queues)
        for queue_id in range(queues if count else 0):
            await story.write(queue_id, count)
        yield story


# ------------------------------------------------------------------------------------------- where to start


@pytest.mark.parametrize(
    ("given", "starts"),
    [
        ({}, [7, 7]),
        ({"startingOffsets": "earliest"}, [0, 0]),
        ({"startingOffsets": '{"orders":{"broker-a":{"0":3,"1":-1}}}'}, [3, 7]),
        ({"startingOffsets": "group", "consumerGroup": GROUP}, [0, 0]),
        ({"startingTimestamp": "0"}, [0, 0]),
    ],
)
async def test_a_fresh_query_starts_where_it_is_told(
    autojump_clock: MockClock, given: dict[str, str], starts: list[int]
) -> None:
    async with _story(count=7) as story:
        stream = story.stream(**given)
        initial = await stream.initial(story.client)
        assert [initial[_queue(number)] for number in range(2)] == starts
        await story.write(0, 5)
        assert await stream.initial(story.client) == initial, "Spark asks twice"


async def test_a_fresh_query_refuses_what_is_not_there(autojump_clock: MockClock) -> None:
    async with _story(count=7) as story:
        with pytest.raises(TopicNotFound, match="nothing"):
            await story.stream(subscribe="nothing").initial(story.client)
        with pytest.raises(OffsetOutOfRange, match="7 to 9"):
            await story.stream(startingOffsets='{"orders":{"broker-a":{"0":9,"1":0}}}').initial(
                story.client
            )
        with pytest.raises(OptionError, match="broker-a:1"):
            await story.stream(startingOffsets='{"orders":{"broker-a":{"0":0}}}').initial(
                story.client
            )


async def test_a_pattern_may_wait_for_its_first_topic(autojump_clock: MockClock) -> None:
    async with _story() as story:
        stream = story.stream(subscribePattern="later-.*", startingOffsets="earliest")
        start = await stream.initial(story.client)
        assert start == {}
        assert await story.latest(stream, start) == {}
        await story.topic(1, topic="later-1")
        await story.write(0, 3, topic="later-1")
        await trio.sleep(11)
        assert await story.latest(stream, start) == {0: 0}, "new: with nothing to read yet"
        assert await story.latest(stream, {_queue(0, "later-1"): 0}) == {0: 3}


async def test_the_first_poll_of_a_fresh_query_stands_still(autojump_clock: MockClock) -> None:
    async with _story(count=7) as story:
        stream = story.stream(startingOffsets="earliest")
        start = await stream.initial(story.client)
        assert await story.latest(stream, start) == {0: 0, 1: 0}
        assert stream.ranges(start, start) == []
        assert await story.latest(stream, start) == {0: 7, 1: 7}


async def test_a_replayed_first_batch_is_what_the_log_says(autojump_clock: MockClock) -> None:
    async with _story(count=7) as story:
        logged = {_queue(0): 3, _queue(1): 3}
        moved = story.stream()  # latest: 7 now, and 3 when batch 0 was planned
        start = await moved.initial(story.client)
        assert moved.ranges(start, logged) == []
        assert await story.latest(moved, logged) == {0: 7, 1: 7}, "nothing between 3 and 7 is lost"
        earlier = story.stream(startingOffsets="earliest")
        (part, _) = earlier.ranges(await earlier.initial(story.client), logged)
        assert (part.start, part.end) == (0, 3)


# ----------------------------------------------------------------------------------------------- how far


async def test_brokers_are_asked_once_an_interval(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _story(count=1) as story:
        stream = story.stream(offsetPollIntervalMs="250")
        start, asked = {_queue(0): 1, _queue(1): 1}, 0
        max_offset = ClientAPI.max_offset

        async def counted(*args: Any, **named: Any) -> int:
            nonlocal asked
            asked += 1
            return await max_offset(*args, **named)

        monkeypatch.setattr(ClientAPI, "max_offset", counted)
        began = trio.current_time()
        for _ in range(9):
            await story.latest(stream, start)
        assert trio.current_time() - began == pytest.approx(8 * 0.25)
        assert asked == 9 * 2


async def test_what_was_seen_is_read_before_anybody_is_asked_again(
    autojump_clock: MockClock,
) -> None:
    async with _story(count=100) as story:
        stream = story.stream(offsetPollIntervalMs="60000")
        began = trio.current_time()
        assert await story.latest(stream, {_queue(0): 0, _queue(1): 50}, Limit(30)) == {
            0: 20,
            1: 60,
        }
        assert await story.latest(stream, {_queue(0): 20, _queue(1): 60}, Limit(30)) == {
            0: 40,
            1: 70,
        }
        assert trio.current_time() == began


async def test_a_limit_in_bytes_is_soft(autojump_clock: MockClock) -> None:
    async with _story(queues=1) as story:
        await load_queue(story.pool, story.master, "orders", 0, numbered(0, 200, body_size=1000))
        stream = story.stream()
        (end,) = (await story.latest(stream, {_queue(0): 0}, Limit(None, 20_000))).values()
        assert 14 <= end <= 20
        both = await story.latest(stream, {_queue(0): 0}, Limit(5, 20_000))
        assert both == {0: 5}
        assert await story.latest(stream, {_queue(0): 0}, Limit(None, 1)) == {0: 1}


async def test_a_new_queue_is_found_and_read_from_its_first_message(
    autojump_clock: MockClock,
) -> None:
    async with _story(count=5) as story:
        stream = story.stream(discoveryIntervalMs="1000")
        start = {_queue(0): 5, _queue(1): 5}
        assert await story.latest(stream, start) == {0: 5, 1: 5}
        await story.topic(3)
        await story.write(2, 4)
        await trio.sleep(1)
        assert await story.latest(stream, start) == {0: 5, 1: 5, 2: 0}
        assert await story.latest(stream, start | {_queue(2): 0}) == {0: 5, 1: 5, 2: 4}


async def test_assigned_queues_are_all_that_is_read(autojump_clock: MockClock) -> None:
    async with _story(count=5) as story:
        stream = story.stream(assign='{"orders":{"broker-a":[1]}}', startingOffsets="earliest")
        assert await stream.initial(story.client) == {_queue(1): 0}
        assert await story.latest(stream, {_queue(1): 0}) == {1: 0}
        # Of a time when the options named other queues: carried, not read, and no loss.
        assert await story.latest(stream, {_queue(0): 2, _queue(1): 0}) == {0: 2, 1: 5}


@pytest.mark.parametrize("fails", [True, False])
async def test_a_deleted_topic_is_a_loss_told_once(
    autojump_clock: MockClock, fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with _story(count=5) as story:
        stream = story.stream(discoveryIntervalMs="1000", failOnDataLoss=str(fails).lower())
        start = {_queue(0): 3, _queue(1): 5}
        assert await story.latest(stream, start) == {0: 5, 1: 5}
        await story.admin.delete_topic("orders")
        await trio.sleep(1)
        if fails:
            with pytest.raises(OffsetOutOfRange, match="orders@broker-a:0 is gone"):
                await story.latest(stream, start)
            return
        for _ in range(3):
            assert await story.latest(stream, start) == {0: 3, 1: 5}
        assert caplog.text.count("is gone") == 2


@pytest.mark.parametrize("fails", [True, False])
async def test_a_topic_made_anew_is_a_loss_and_read_on_from_its_end(
    autojump_clock: MockClock, fails: bool
) -> None:
    async with _story(count=50) as story:
        stream = story.stream(discoveryIntervalMs="60000", failOnDataLoss=str(fails).lower())
        start: OffsetTable = {_queue(0): 50, _queue(1): 50}
        assert await story.latest(stream, start) == {0: 50, 1: 50}
        await story.admin.delete_topic("orders")
        await story.topic(2)
        await story.write(0, 8)
        assert await story.latest(stream, start) == {0: 50, 1: 50}, (
            "a master that returns may be short"
        )
        await trio.sleep(SHRUNK_GRACE)
        if fails:
            with pytest.raises(
                OffsetOutOfRange, match="was cut or made anew: it was read to before 50"
            ):
                await story.latest(stream, start)
            with pytest.raises(OffsetOutOfRange, match="from 50 to before 8"):
                stream.ranges(start, {_queue(0): 8, _queue(1): 0})
            return
        assert await story.latest(stream, start) == {0: 8, 1: 0}
        end = {_queue(0): 8, _queue(1): 0}
        assert stream.ranges(start, end) == []
        await story.write(0, 2)
        assert await story.latest(stream, end) == {0: 10, 1: 0}


# --------------------------------------------------------------------------------------------- outages


async def test_an_outage_is_ridden_out(autojump_clock: MockClock) -> None:
    async with _story(count=5) as story:
        stream = story.stream(offsetFailureTimeoutMs="60000")
        start = {_queue(0): 3, _queue(1): 5}
        await story.cluster.kill_master()
        for _ in range(20):
            assert await story.latest(stream, start) == {0: 3, 1: 5}
        await story.cluster.restart_master()
        await trio.sleep(6)
        assert await story.latest(stream, start) == {0: 5, 1: 5}


async def test_an_outage_that_lasts_too_long_ends_the_query(autojump_clock: MockClock) -> None:
    async with _story(count=5) as story:
        stream = story.stream(offsetFailureTimeoutMs="30000")
        start = {_queue(0): 5, _queue(1): 5}
        assert await story.latest(stream, start) == {0: 5, 1: 5}
        await story.cluster.kill_master()
        began = trio.current_time()
        with pytest.raises(BrokerUnreachable, match="no broker named broker-a has answered for 3"):
            await _for_ever(story, stream, start)
        assert 30 <= trio.current_time() - began < 45


async def _for_ever(story: Story, stream: StreamDriver, start: OffsetTable) -> None:
    while True:
        await story.latest(stream, start)


async def test_without_name_servers_what_is_known_will_do(autojump_clock: MockClock) -> None:
    async with _story(count=5) as story:
        stream = story.stream(discoveryIntervalMs="500")
        start = {_queue(0): 3, _queue(1): 5}
        assert await story.latest(stream, start) == {0: 5, 1: 5}
        await story.cluster.kill_name_server()
        await story.write(1, 2)
        await trio.sleep(1)
        assert await story.latest(stream, start) == {0: 5, 1: 7}


async def test_a_name_server_that_forgot_everything_loses_no_queue(
    autojump_clock: MockClock,
) -> None:
    async with _story(count=5) as story:
        stream = story.stream(discoveryIntervalMs="500")
        start = {_queue(0): 3, _queue(1): 5}
        assert await story.latest(stream, start) == {0: 5, 1: 5}
        await story.cluster.kill_master()
        await story.cluster.kill_name_server()
        await trio.sleep(0.1)
        await story.cluster.restart_name_server()
        await trio.sleep(1)
        assert await story.latest(stream, start) == {0: 3, 1: 5}, "silent, and not gone"


async def test_a_slave_answers_for_its_master_and_proves_no_loss(
    autojump_clock: MockClock,
) -> None:
    async with _story(count=5, slaves=1) as story:
        stream = story.stream()
        await trio.sleep(5)
        await story.cluster.kill_master()
        assert await story.latest(stream, {_queue(0): 3, _queue(1): 500}) == {0: 5, 1: 500}
        await trio.sleep(2 * SHRUNK_GRACE)
        assert await story.latest(stream, {_queue(0): 3, _queue(1): 500}) == {0: 5, 1: 500}


async def test_addresses_are_waited_for(autojump_clock: MockClock) -> None:
    async with _story(count=5) as story:
        stream = story.stream(offsetFailureTimeoutMs="60000")
        await story.cluster.kill_name_server()

        async def back() -> None:
            await trio.sleep(20)
            await story.cluster.restart_name_server()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(back)
            found = await stream.addresses(story.client, [_queue(0)])
        assert found == {"broker-a": {0: story.master}}


async def test_addresses_that_nobody_knows_are_an_error_in_the_end(
    autojump_clock: MockClock,
) -> None:
    async with _story() as story:
        stream = story.stream(offsetFailureTimeoutMs="5000")
        lost = MessageQueue("orders", "broker-z", 0)
        with pytest.raises(BrokerUnreachable, match="no name server says where broker-z is"):
            await stream.addresses(story.client, [lost])


# ---------------------------------------------------------------------------------------- AvailableNow


async def test_a_query_with_a_target_reads_to_it_and_stops(autojump_clock: MockClock) -> None:
    async with _story(count=100) as story:
        stream = story.stream(startingOffsets="earliest")
        await stream.aim(story.client)
        start: OffsetTable = await stream.initial(story.client)
        assert await story.latest(stream, start) == {0: 0, 1: 0}
        await story.write(0, 50)
        steps = []
        while (end := await stream.latest(story.client, start, Limit(80))) != start:
            steps.append(sum(end.values()) - sum(start.values()))
            start = end
        assert steps == [80, 80, 40]
        assert stream.newest(start) == {_queue(0): 150, _queue(1): 100}


async def test_a_query_with_a_target_ends_although_its_topic_is_deleted(
    autojump_clock: MockClock,
) -> None:
    async with _story(count=100) as story:
        stream = story.stream(failOnDataLoss="false")
        await stream.aim(story.client)
        start: OffsetTable = {_queue(0): 10, _queue(1): 10}
        await story.admin.delete_topic("orders")
        assert await stream.latest(story.client, start, Limit()) != start, "as it was seen"
        end = {_queue(0): 100, _queue(1): 100}
        while (after := await stream.latest(story.client, end, Limit())) != end:
            end = after


async def test_without_answers_there_is_no_target(autojump_clock: MockClock) -> None:
    async with _story(count=5) as story:
        await story.cluster.kill_master()
        with pytest.raises(BrokerUnreachable, match="did not answer"):
            await story.stream().aim(story.client)
        await story.cluster.kill_name_server()
        with pytest.raises(BrokerUnreachable, match="did not answer"):
            await story.stream().aim(story.client)


# -------------------------------------------------------------------------------------------- commits


async def _lags(story: Story) -> list[int | None]:
    return [found.lag for found in await story.admin.offsets("orders", GROUP)]


async def test_an_idle_stream_has_no_lag_at_the_broker(autojump_clock: MockClock) -> None:
    async with _story(count=10) as story:
        stream = story.stream(consumerGroup=GROUP)
        start: OffsetTable = {_queue(0): 4, _queue(1): 10}
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
    async with _story(queues=1, count=1000) as story:
        stream = story.stream(
            consumerGroup=GROUP, commitIntervalMs="1000", offsetPollIntervalMs="1"
        )
        start: OffsetTable = {_queue(0): 0}
        lags = []
        for _ in range(8):
            start = await stream.latest(story.client, start, Limit(10))
            await trio.sleep(0.3)
            await stream.finished(story.client, start)
            lags += await _lags(story)
        assert lags == [1000] * 3 + [960] * 4 + [920]


async def test_a_checkpoint_behind_the_group_wins(autojump_clock: MockClock) -> None:
    async with _story(queues=1, count=10) as story:
        await story.admin.reset_offsets(GROUP, {_queue(0): 9})
        stream = story.stream(consumerGroup=GROUP)
        assert await story.latest(stream, {_queue(0): 4}) == {0: 10}
        assert await _lags(story) == [6]


async def test_commits_that_fail_are_made_up_for(autojump_clock: MockClock) -> None:
    async with _story(queues=1, count=10) as story:
        stream = story.stream(consumerGroup=GROUP)
        end = await stream.latest(story.client, {_queue(0): 0}, Limit())
        await story.cluster.kill_master()
        for _ in range(10):
            assert await stream.latest(story.client, end, Limit()) == end
        await story.cluster.restart_master()
        for _ in range(40):
            assert await stream.latest(story.client, end, Limit()) == end
        assert await _lags(story) == [0]


async def test_without_a_group_nothing_is_committed(autojump_clock: MockClock) -> None:
    async with _story(queues=1, count=10) as story:
        stream = story.stream(consumerGroup=GROUP, commitOffsets="false")
        await story.latest(stream, {_queue(0): 10})
        assert [found.committed for found in await story.admin.offsets("orders", GROUP)] == [None]


async def test_live_members_of_the_group_are_warned_of(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with _story(queues=1, count=10) as story:
        servers, dial = story.cluster.name_servers, story.cluster.dial
        async with open_consumer("orders", group=GROUP, name_servers=servers, dial=dial):
            with caplog.at_level(logging.WARNING):
                await story.latest(story.stream(consumerGroup=GROUP), {_queue(0): 10})
        assert f"the consumer group {GROUP} has 1 live members" in caplog.text


async def test_tools_find_the_groups_retry_topic(autojump_clock: MockClock) -> None:
    async with _story(queues=1, count=10) as story:
        await story.latest(story.stream(consumerGroup=GROUP), {_queue(0): 10})
        await trio.sleep(1)
        assert await story.client.name_servers.topic_route(f"%RETRY%{GROUP}") is not None
        assert GROUP in await story.admin.groups()


def test_offsets_are_the_same_text_whatever_the_order() -> None:
    from rocketrio.spark.stream_reader import _value

    forth = {_queue(number): number for number in (2, 10, 0)}
    back = dict(reversed(forth.items()))
    assert json.dumps(_value(forth)) == json.dumps(_value(back))
    assert list(_value(forth)["queues"]["orders"]["broker-a"]) == ["0", "2", "10"]
