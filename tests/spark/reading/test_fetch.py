"""Fetching from a whole cluster in memory, under a virtual clock, and the pipelines of its ranges.

Pipelines meet brokers that cap, shorten and skip: every offset comes once, in order, never beyond the range.
"""

import random

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from tests.spark.in_memory import (
    COUNT,
    all_bodies,
    discover,
    fetch,
    loaded,
    read,
    read_options,
    task_of,
)
from tests.spark.pulls import Pulls
from tests.support.clients import client_of, open_admin
from tests.support.running_cluster import channel_pool, load_queue, numbered
from trio.testing import MockClock

from rocketrio.cluster.api import ClientAPI
from rocketrio.consuming.pull_result import PullResult, PullStatus
from rocketrio.spark.errors import (
    BrokerUnreachableError,
    OffsetOutOfRangeError,
    OptionError,
    TopicNotFoundError,
)
from rocketrio.spark.reading.fetch import (
    FULL_SLOTS_TO_GROW,
    RANGES_AT_ONCE,
    Block,
    Pipeline,
    Slot,
    fetch_task,
)
from rocketrio.spark.reading.offsets import QueueRange
from rocketrio.spark.reading.options import parse_read_options
from rocketrio.spark.reading.plan import ReadTask
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.bodies.topics import Permission, TopicConfig
from rocketrio_protocol.commands.pull import PullMessageRequestHeader
from rocketrio_protocol.names import SYSTEM_TOPICS


async def test_a_whole_topic_is_read_in_order(autojump_clock: MockClock) -> None:
    async with loaded() as cluster:
        taken = await read(cluster)
    assert taken.rows() == all_bodies()
    assert len(taken.blocks) == 1  # answers are joined


@pytest.mark.parametrize(
    "given", [{"pullPipelineDepth": "1"}, {"pullBatchSize": "5"}, {"batchRows": "40"}]
)
async def test_depth_and_sizes_change_nothing_but_the_cuts(
    autojump_clock: MockClock, given: dict[str, str]
) -> None:
    async with loaded() as cluster:
        taken = await read(cluster, **given)
    assert taken.rows() == all_bodies()
    assert (
        "batchRows" not in given
        or max(block.rows for block in taken.blocks) < 40 + RANGES_AT_ONCE * 40
    )


async def test_rows_leave_in_the_same_order_each_time(autojump_clock: MockClock) -> None:
    async with loaded(queues=RANGES_AT_ONCE + 1) as cluster:
        taken = await read(cluster, pullBatchSize="7", batchRows="40")
    order = [part.queue_id for block in taken.blocks for part, _, _ in block.pieces]
    assert order == sorted(order)
    assert len(order) > 100


async def test_assigned_queues_and_explicit_offsets_bound_what_is_read(
    autojump_clock: MockClock,
) -> None:
    async with loaded() as cluster:
        taken = await read(
            cluster,
            assign='{"orders":{"broker-a":[1]}}',
            startingOffsets='{"orders":{"broker-a":{"1":50}}}',
            endingOffsets='{"orders":{"broker-a":{"1":117}}}',
        )
    assert taken.rows() == {1: all_bodies()[1][50:117]}


async def test_a_pattern_matches_whole_names_and_no_system_topic(autojump_clock: MockClock) -> None:
    async with loaded() as cluster:
        for name in SYSTEM_TOPICS:
            cluster.master.broker.state.topics.update(TopicConfig(name, 1, 1))
        await trio.sleep(5)  # The broker registers its new topics.
        async with open_admin(name_servers=cluster.name_servers, dial=cluster.dial) as admin:
            assert set(await admin.topics(include_system=True)) >= SYSTEM_TOPICS
        found = await discover(read_options(cluster, subscribePattern=".*"), dial=cluster.dial)
        assert {part.topic for part in found.ranges} == {"orders"}
        with pytest.raises(TopicNotFoundError, match="matches none"):
            await discover(read_options(cluster, subscribePattern="order"), dial=cluster.dial)


async def test_a_topic_that_may_not_be_read_is_no_empty_one(autojump_clock: MockClock) -> None:
    async with (
        loaded() as cluster,
        open_admin(name_servers=cluster.name_servers, dial=cluster.dial) as admin,
    ):
        await admin.create_topic("%DLQ%billing", perm=int(Permission.WRITE))
        with pytest.raises(TopicNotFoundError, match="%DLQ%billing may not be read"):
            await discover(
                read_options(cluster, subscribe="orders,%DLQ%billing"), dial=cluster.dial
            )


async def test_timestamps_find_the_first_message_stored_then_or_later(
    autojump_clock: MockClock,
) -> None:
    async with loaded(queues=1, count=100) as cluster, channel_pool(cluster.dial) as pool:
        await trio.sleep(60)
        middle_ms = cluster.wall_clock.now_ms()
        await load_queue(pool, cluster.master.broker.address, "orders", 0, numbered(0, 100))
        for given, expected in [
            ({"startingTimestamp": str(middle_ms)}, (100, 200)),
            ({"endingTimestamp": str(middle_ms)}, (0, 100)),
            ({"startingTimestamp": "0"}, (0, 200)),
            (
                {
                    "startingTimestamp": str(middle_ms + 10**7),
                    "startingOffsetsByTimestampStrategy": "latest",
                },
                (200, 200),
            ),
            ({"startingTimestamp": str(middle_ms), "endingTimestamp": str(middle_ms)}, (100, 100)),
        ]:
            found = await discover(read_options(cluster, **given), dial=cluster.dial)
            assert [(part.start, part.end) for part in found.ranges] == [expected]


@pytest.mark.slow
async def test_timestamps_are_not_searched_in_a_lagging_slave(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        loaded(queues=1, count=100, slaves=1) as cluster,
        channel_pool(cluster.dial) as pool,
    ):
        await trio.sleep(60)
        master = cluster.master.broker.address
        await load_queue(pool, master, "orders", 0, numbered(0, 100))
        middle_ms = cluster.wall_clock.now_ms()
        await trio.sleep(60)
        await load_queue(pool, master, "orders", 0, numbered(0, 10))
        pull_message = ClientAPI.pull_message

        async def lag(
            self: ClientAPI, addr: str, header: PullMessageRequestHeader, *, timeout: float
        ) -> PullResult:
            """The master sends everybody to its slave, which has the first 100 messages only."""
            offset = header.queue_offset
            if addr != master and offset >= 100:
                return PullResult(PullStatus.NO_NEW_MSG, offset, 0, 100, 1, b"", addr)
            result = await pull_message(self, addr, header, timeout=timeout)
            result.suggest_which_broker_id = 1
            return result

        monkeypatch.setattr(ClientAPI, "pull_message", lag)
        options = read_options(cluster, startingTimestamp=str(middle_ms + 1))
        found = await discover(options, dial=cluster.dial)
        assert [(part.start, part.end) for part in found.ranges] == [(200, 210)]
        options = read_options(cluster, startingTimestamp=str(middle_ms - 10_000))
        found = await discover(options, dial=cluster.dial)
        assert [(part.start, part.end) for part in found.ranges] == [(100, 210)]


async def test_slaves_are_read_when_asked_for(autojump_clock: MockClock) -> None:
    async with loaded(slaves=1) as cluster:
        await cluster.slaves[0].broker.store.appended.wait_reached(
            cluster.master.broker.store.max_physical_offset
        )
        options = read_options(cluster, readFrom="slave")
        found = await discover(options, dial=cluster.dial)
        await cluster.kill_master()
        assert (await fetch(cluster, options, task_of(found))).rows() == all_bodies()


async def test_a_dead_master_is_replaced_by_its_slave(autojump_clock: MockClock) -> None:
    async with loaded(slaves=1) as cluster:
        await trio.sleep(2)
        options = read_options(cluster)
        found = await discover(options, dial=cluster.dial)
        await cluster.kill_master()
        assert (await fetch(cluster, options, task_of(found))).rows() == all_bodies()
        with pytest.raises(
            BrokerUnreachableError, match=r"broker-a:\d .* cannot be read at 0 from 10.0.0.11"
        ):
            await fetch(cluster, attrs.evolve(options, read_from="master"), task_of(found))


async def test_what_a_slave_lacks_comes_from_the_master(autojump_clock: MockClock) -> None:
    async with loaded(slaves=1) as cluster, channel_pool(cluster.dial) as pool:
        await trio.sleep(2)
        await cluster.slaves[0].kill()
        master = cluster.master.broker.address
        for queue_id in range(2):
            await load_queue(pool, master, "orders", queue_id, numbered(queue_id, COUNT))
        options = read_options(cluster, readFrom="slave")
        found = await discover(options, dial=cluster.dial)
        # The slave comes back but cannot follow: its master's replication port is cut off.
        cluster.slaves[0].config = attrs.evolve(cluster.slaves[0].config, namesrv="10.0.0.99:1")
        slave = await cluster.slaves[0].start()
        addresses = {"broker-a": {0: master, 1: slave.address}}
        taken = await fetch(cluster, options, ReadTask(tuple(found.ranges), addresses))
        assert taken.rows() == {q: bodies * 2 for q, bodies in all_bodies().items()}


async def test_slave_that_does_not_know_the_topic_is_no_obstacle(
    autojump_clock: MockClock,
) -> None:
    async with loaded(slaves=1) as cluster:
        await trio.sleep(2)
        options = read_options(cluster, readFrom="slave")
        found = await discover(options, dial=cluster.dial)
        cluster.slaves[0].broker.state.topics.delete("orders")
        assert (await fetch(cluster, options, task_of(found))).rows() == all_bodies()


async def test_a_task_finds_brokers_that_moved(autojump_clock: MockClock) -> None:
    async with loaded() as cluster:
        options = read_options(cluster)
        found = await discover(options, dial=cluster.dial)
        stale = ReadTask(tuple(found.ranges), {"broker-a": {0: "10.0.0.77:1"}})
        assert (await fetch(cluster, options, stale)).rows() == all_bodies()


@pytest.mark.parametrize("depth", [1, 3, 8])
async def test_ranges_whose_turn_has_not_come_fetch_ahead_as_far_as_their_pulls_reach(
    autojump_clock: MockClock, pulls: Pulls, depth: int
) -> None:

    class Full:
        """Spark takes nothing."""

        async def put(self, block: Block) -> None:
            await trio.sleep_forever()

    async with (
        loaded() as cluster,
        client_of(cluster) as client,
    ):
        options = read_options(cluster, batchRows="32", pullPipelineDepth=str(depth))
        task = task_of(await discover(options, dial=cluster.dial))
        pulls.clear()
        with trio.move_on_after(10):
            await fetch_task(task, options, Full(), client)  # type: ignore[arg-type]
        waiting = [offset for _, queue_id, offset in pulls.asked if queue_id == 1]
        assert waiting == [32 * number for number in range(depth)]


async def test_offsets_beyond_what_is_there_are_a_loss(autojump_clock: MockClock) -> None:
    async with loaded(queues=1) as cluster:
        options = read_options(cluster)
        found = await discover(options, dial=cluster.dial)
        longer = attrs.evolve(found.ranges[0], end=COUNT + 50)
        task = ReadTask((longer,), found.addresses)
        with pytest.raises(
            OffsetOutOfRangeError, match=f"offsets {COUNT} to {COUNT + 50} .* holds 0 to {COUNT}"
        ):
            await fetch(cluster, options, task)
        tolerant = attrs.evolve(options, fail_on_data_loss=False)
        assert (await fetch(cluster, tolerant, task)).rows() == all_bodies(1)


async def test_an_unknown_topic_or_queue_is_named(autojump_clock: MockClock) -> None:
    async with loaded() as cluster:
        servers = ";".join(cluster.name_servers)
        unknown = parse_read_options({"nameServer": servers, "subscribe": "nothing"})
        with pytest.raises(TopicNotFoundError, match="topic nothing"):
            await discover(unknown, dial=cluster.dial)
        with pytest.raises(TopicNotFoundError, match="orders@broker-a:7, which no broker has"):
            await discover(
                read_options(cluster, assign='{"orders":{"broker-a":[7]}}'), dial=cluster.dial
            )
        with pytest.raises(OptionError, match="lacks orders@broker-a:1"):
            await discover(
                read_options(cluster, startingOffsets='{"orders":{"broker-a":{"0":1}}}'),
                dial=cluster.dial,
            )


async def test_unreachable_name_server_is_an_error_that_names_it(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster() as cluster:
        options = parse_read_options({"nameServer": "10.0.0.55:9", "subscribe": "t"})
        with pytest.raises(BrokerUnreachableError, match=r"no name server answered .*10.0.0.55:9"):
            await discover(options, dial=cluster.dial)


def _part(start: int, end: int) -> QueueRange:
    return QueueRange("t", "b", 0, start, end)


def _body(start: int, end: int) -> bytes:
    """Offsets as two bytes each, in place of records."""
    return b"".join(offset.to_bytes(2) for offset in range(start, end))


def _drive(pipeline: Pipeline, caps: list[int], rng: random.Random, depth: int) -> list[int]:
    """Send what may be sent, answer in any order with at most the next cap; the offsets handed on."""
    out: list[tuple[Slot, int]] = []
    seen: list[int] = []
    turn = 0
    while not pipeline.is_done:
        while (slot := pipeline.next_pull()) is not None:
            assert pipeline.part.start <= slot.at < slot.end <= pipeline.part.end
            out.append((slot, slot.at))
        assert 0 < len(out) <= depth
        slot, at = out.pop(rng.randrange(len(out)))
        cap = caps[turn % len(caps)]
        turn += 1
        if cap == 0:  # nothing but progress: filtered, or lost
            pipeline.answered(slot, at + 1)
        else:
            reached = min(at + cap, slot.end)
            pipeline.answered(slot, reached, _body(at, reached))
        for rows, body in pipeline.take_ready():
            assert rows * 2 == len(body)
            seen += [int.from_bytes(body[i : i + 2]) for i in range(0, len(body), 2)]
    assert not out
    return seen


@given(
    st.integers(0, 300), st.integers(0, 500), st.integers(1, 9), st.integers(1, 64),
    st.lists(st.integers(1, 70), min_size=1, max_size=20), st.randoms(),
)  # fmt: skip
def test_every_offset_comes_once_and_in_order(
    start: int, size: int, depth: int, batch_size: int, caps: list[int], rng: random.Random
) -> None:
    pipeline = Pipeline(_part(start, start + size), depth=depth, batch_size=batch_size)
    assert _drive(pipeline, caps, rng, depth) == list(range(start, start + size))


@pytest.mark.slow
@given(st.integers(1, 9), st.lists(st.integers(0, 9), min_size=1, max_size=20), st.randoms())
def test_pipeline_skips_gaps(depth: int, caps: list[int], rng: random.Random) -> None:
    pipeline = Pipeline(_part(0, 200), depth=depth, batch_size=16)
    seen = _drive(pipeline, caps, rng, depth)
    assert seen == sorted(set(seen))
    assert 0 not in caps or len(seen) < 200


def test_one_pull_until_the_size_of_answers_is_known() -> None:
    pipeline = Pipeline(_part(0, 1000), depth=4, batch_size=100)
    first = pipeline.next_pull()
    assert first is not None
    assert (first.at, first.end) == (0, 100)
    assert pipeline.next_pull() is None
    pipeline.answered(first, 8, _body(0, 8))
    list(pipeline.take_ready())
    following = [pipeline.next_pull() for _ in range(5)]
    assert [(slot.at, slot.end) for slot in following if slot] == [
        (8, 16),
        (16, 24),
        (24, 32),
        (32, 40),
    ]


def test_a_short_answer_puts_the_rest_out_again_before_anything_new() -> None:
    pipeline = Pipeline(_part(0, 1000), depth=3, batch_size=10)
    first = pipeline.next_pull()
    assert first is not None
    pipeline.answered(first, 10, _body(0, 10))
    second, third = pipeline.next_pull(), pipeline.next_pull()
    assert second is not None
    assert third is not None
    pipeline.answered(second, 14, _body(10, 14))
    again = pipeline.next_pull()
    assert again is second
    assert (again.at, again.end) == (14, 20)


def test_full_answers_make_slots_grow() -> None:
    pipeline = Pipeline(_part(0, 10_000), depth=1, batch_size=64)
    sizes: list[int] = []
    while len(sizes) < 3 * FULL_SLOTS_TO_GROW + 3:
        slot = pipeline.next_pull()
        assert slot is not None
        sizes.append(slot.end - slot.at)
        pipeline.answered(slot, min(slot.end, slot.at + (16 if len(sizes) == 1 else 64)), b"xx")
        list(pipeline.take_ready())
    assert sizes[0] == 64
    assert sizes[1] == 16
    assert sizes[-1] == 64


def test_answers_beyond_the_slot_do_not_move_it_further() -> None:
    pipeline = Pipeline(_part(0, 50), depth=2, batch_size=10)
    slot = pipeline.next_pull()
    assert slot is not None
    pipeline.answered(slot, 2**40, b"10 rows")
    assert list(pipeline.take_ready()) == [(10, b"10 rows")]
    following = pipeline.next_pull()
    assert following is not None
    assert following.at == 10


@pytest.mark.parametrize("end", [5, 4])
def test_an_empty_range_is_done(end: int) -> None:
    assert Pipeline(_part(5, end), depth=2, batch_size=10).is_done


@given(st.integers(1, 9), st.lists(st.integers(0, 90), min_size=1, max_size=20), st.randoms())
def test_behind_a_filter_one_pull_follows_the_other(
    depth: int, caps: list[int], rng: random.Random
) -> None:
    pipeline = Pipeline(_part(5, 200), depth=depth, batch_size=16, is_filtered=True)
    seen = _drive(pipeline, caps, rng, 1)  # never more than one is out
    assert seen == sorted(set(seen))
    if 0 not in caps:
        assert seen == list(range(5, 200))


def test_behind_a_filter_answers_wait_in_limited_number() -> None:
    pipeline = Pipeline(_part(0, 1000), depth=3, batch_size=16, is_filtered=True)
    for at in (0, 100, 200):
        slot = pipeline.next_pull()
        assert slot is not None
        assert (slot.at, slot.end) == (at, 1000)
        pipeline.answered(slot, at + 100, b"two", rows=2)
    assert pipeline.next_pull() is None
    assert list(pipeline.take_ready()) == [(2, b"two")] * 3
    assert pipeline.next_pull() is not None
