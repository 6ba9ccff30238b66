"""Messages that a batch read should have and that are gone: an error that says all, or a read without them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from tests.spark.in_memory import all_bodies, fetch, loaded, read_options
from tests.spark.pulls import Pulls
from tests.support.clients import open_admin
from tests.support.running_cluster import channel_pool, create_topic, load_queue, numbered
from trio.testing import MockClock

from rocketrio.spark.errors import OffsetOutOfRangeError, OptionError, TopicNotFoundError
from rocketrio.spark.reading.options import ReadOptions
from rocketrio.spark.reading.plan import ReadTask
from rocketrio.spark.reading.planning import plan_batch
from rocketrio_broker.embedded import SMALL_STORE, EmbeddedCluster

COUNT = 1500
SMALL_FILES = attrs.evolve(SMALL_STORE, mapped_file_size_commit_log=64 << 10)
"""Retention removes whole files, of some 250 messages each."""
OPTION = "failOnDataLoss=false"


@asynccontextmanager
async def _cluster(
    *, count: int = COUNT, queues: int = 1, slaves: int = 0
) -> AsyncIterator[EmbeddedCluster]:
    async with loaded(queues=queues, count=count, slaves=slaves, store=SMALL_FILES) as cluster:
        await trio.sleep(2)
        await cluster.master.broker.store.checkpoint()  # Nothing newer is ever deleted.
        yield cluster


async def _remove_files(cluster: EmbeddedCluster, count: int) -> int:
    """As retention does; the new begin of the queue."""
    store = cluster.master.broker.store
    await store._retention.delete_files(count)
    bounds = store.queue_bounds("orders", 0)
    assert bounds is not None
    assert 0 < bounds[0] < COUNT
    return bounds[0]


async def _plan(cluster: EmbeddedCluster, **given: str) -> tuple[ReadOptions, ReadTask]:
    options = read_options(cluster, **given)
    (task,) = await plan_batch(options, dial=cluster.dial)
    return options, task


async def _fails(cluster: EmbeddedCluster, options: ReadOptions, task: ReadTask, said: str) -> None:
    with pytest.raises(OffsetOutOfRangeError, match=said) as caught:
        await fetch(cluster, options, task)
    assert OPTION in str(caught.value)


def _tolerant(options: ReadOptions) -> ReadOptions:
    return attrs.evolve(options, fail_on_data_loss=False)


# ----------------------------------------------------------------------------------- while planning


async def test_retention_before_planning_is_a_loss_of_explicit_offsets(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with _cluster() as cluster:
        least = await _remove_files(cluster, 2)
        start = {"startingOffsets": '{"orders":{"broker-a":{"0":10}}}'}
        said = (
            rf"^\[ROCKETMQ_OFFSET_OUT_OF_RANGE\] orders@broker-a:0: offsets 10 to {least}"
            rf" \({least - 10} messages\) were to be read, but the queue holds {least} to {COUNT}\."
            rf" .*{OPTION}"
        )
        with pytest.raises(OffsetOutOfRangeError, match=said):
            await plan_batch(read_options(cluster, **start), dial=cluster.dial)
        options, task = await _plan(cluster, **start, failOnDataLoss="false")
        assert f"offsets 10 to {least}" in caplog.text
        assert (await fetch(cluster, options, task)).rows() == {0: all_bodies(1, COUNT)[0][least:]}


async def test_earliest_is_the_first_stored_message(autojump_clock: MockClock) -> None:
    async with _cluster() as cluster:
        least = await _remove_files(cluster, 2)
        options, task = await _plan(cluster)
        assert (await fetch(cluster, options, task)).rows() == {0: all_bodies(1, COUNT)[0][least:]}


@pytest.mark.parametrize(
    ("given", "said", "rows"),
    [
        (
            {"startingOffsets": '{"orders":{"broker-a":{"0":400}}}'},
            r"offsets 300 to 400 \(100 messages\).*holds 0 to 300",
            slice(0, 0),
        ),
        (
            {"endingOffsets": '{"orders":{"broker-a":{"0":400}}}'},
            r"offsets 300 to 400 \(100 messages\).*holds 0 to 300",
            slice(0, 300),
        ),
    ],
)
async def test_offsets_behind_the_end_are_a_loss(
    autojump_clock: MockClock, given: dict[str, str], said: str, rows: slice
) -> None:
    async with _cluster(count=300) as cluster:
        with pytest.raises(OffsetOutOfRangeError, match=said) as caught:
            await plan_batch(read_options(cluster, **given), dial=cluster.dial)
        assert OPTION in str(caught.value)
        options = read_options(cluster, **given, failOnDataLoss="false")
        found: dict[int, list[bytes]] = {}
        for task in await plan_batch(options, dial=cluster.dial):
            found |= (await fetch(cluster, options, task)).rows()
        assert found == ({0: all_bodies(1)[0][rows]} if rows.stop else {})


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"assign": '{"orders":{"broker-a":[0,1]}}'}, TopicNotFoundError),
        (
            {
                "startingOffsets": '{"orders":{"broker-a":{"0":0,"1":7}}}',
                "endingOffsets": '{"orders":{"broker-a":{"0":300,"1":9}}}',
            },
            OptionError,
        ),
    ],
)
async def test_a_queue_that_is_named_and_gone_is_left_out_if_that_is_allowed(
    autojump_clock: MockClock, given: dict[str, str], error: type[Exception]
) -> None:
    async with _cluster(count=300) as cluster:
        with pytest.raises(error, match=rf"names orders@broker-a:1, which .*{OPTION}"):
            await plan_batch(read_options(cluster, **given), dial=cluster.dial)
        options, task = await _plan(cluster, **given, failOnDataLoss="false")
        assert (await fetch(cluster, options, task)).rows() == all_bodies(1)


async def test_a_queue_that_is_new_must_be_named(autojump_clock: MockClock) -> None:
    start = {"startingOffsets": '{"orders":{"broker-a":{"0":5}}}'}
    async with _cluster(count=300, queues=2) as cluster:
        for given in (start, {**start, "failOnDataLoss": "false"}):
            with pytest.raises(OptionError, match="lacks orders@broker-a:1: name every"):
                await plan_batch(read_options(cluster, **given), dial=cluster.dial)


# ------------------------------------------------------------------------------------ while reading


async def test_retention_between_planning_and_reading_is_one_loss_with_its_size(
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
    pulls: Pulls,
) -> None:
    async with _cluster() as cluster:
        options, task = await _plan(cluster, pullBatchSize="10")
        least = await _remove_files(cluster, 3)
        said = rf"offsets 0 to {least} \({least} messages\).*holds {least} to {COUNT}"
        await _fails(cluster, options, task, said)
        pulls.clear()
        taken = await fetch(cluster, _tolerant(options), task)
        assert taken.rows() == {0: all_bodies(1, COUNT)[0][least:]}
        assert caplog.text.count("lost messages skipped") == 1
        # The first pull told of all that is gone: nothing of it is asked for any more.
        assert [offset for _, _, offset in pulls.asked if 0 < offset < least] == []


async def test_retention_in_the_middle_of_reading(autojump_clock: MockClock, pulls: Pulls) -> None:
    async with _cluster() as cluster:
        options, task = await _plan(cluster, pullBatchSize="10", pullPipelineDepth="4")
        pulls.clear()
        least = 0

        async def remove() -> None:
            nonlocal least
            await pulls.wait_asked(8)
            least = await _remove_files(cluster, 3)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(remove)
            found = (await fetch(cluster, _tolerant(options), task)).rows()[0]
        numbers = [int(body.split(b"/")[1]) for body in found]
        assert numbers == sorted(set(numbers))
        assert numbers[0] == 0
        assert numbers[least - COUNT :] == list(range(least, COUNT))
        assert len(numbers) < COUNT


async def test_topic_created_again_is_a_loss(autojump_clock: MockClock) -> None:
    async with _cluster(count=300) as cluster:
        options, task = await _plan(cluster)
        async with open_admin(name_servers=cluster.name_servers, dial=cluster.dial) as admin:
            await admin.delete_topic("orders")
        await trio.sleep(2)
        async with channel_pool(cluster.dial) as pool:
            master = cluster.master.broker.address
            await create_topic(pool, master, "orders", 1)
            await load_queue(pool, master, "orders", 0, numbered(0, 20))
        held = cluster.master.broker.store.queue_bounds("orders", 0)
        assert held is not None
        least, most = held
        if most < 300:  # offsets began at 0 again
            await _fails(
                cluster, options, task, rf"offsets {most} to 300 .*holds {least} to {most}"
            )
        else:  # a broker that goes on counting, as ours does: all that was planned is gone
            await _fails(cluster, options, task, rf"offsets 0 to 300 .*holds {least} to {most}")
        rows = (await fetch(cluster, _tolerant(options), task)).rows()
        assert rows == ({} if most >= 300 else {0: all_bodies(1)[0][:20]})


async def test_a_topic_that_vanished_is_a_loss(autojump_clock: MockClock) -> None:
    async with _cluster(count=300, slaves=1) as cluster:
        options, task = await _plan(cluster)
        async with open_admin(name_servers=cluster.name_servers, dial=cluster.dial) as admin:
            await admin.delete_topic("orders")
        await trio.sleep(2)
        said = r"orders@broker-a:0: offsets 0 to 300 \(300 messages\) .* the queue does not exist any more"
        await _fails(cluster, options, task, said)
        assert (await fetch(cluster, _tolerant(options), task)).rows() == {}


async def test_a_topic_with_fewer_queues_than_planned_is_a_loss_of_the_others(
    autojump_clock: MockClock,
) -> None:
    async with _cluster(count=300, queues=2) as cluster:
        options, task = await _plan(cluster)
        async with channel_pool(cluster.dial) as pool:
            await create_topic(pool, cluster.master.broker.address, "orders", 1)
        await trio.sleep(2)
        said = r"orders@broker-a:1: offsets 0 to 300 .* the queue does not exist any more"
        await _fails(cluster, options, task, said)
        rows = (await fetch(cluster, _tolerant(options), task)).rows()
        assert rows == {0: all_bodies(1)[0]}


@pytest.mark.parametrize(
    "start",
    [
        {"startingOffsets": "earliest"},
        {"startingOffsets": '{"orders":{"broker-a":{"0":-2}}}'},
        {"startingOffsets": "group", "consumerGroup": "billing"},
        {"startingTimestamp": "2020-01-01T00:00:00Z"},
    ],
)
async def test_range_that_ends_before_what_retention_left_is_lost(
    autojump_clock: MockClock, start: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """The user gave no beginning behind the end: retention has moved it there."""
    async with _cluster() as cluster:
        least = await _remove_files(cluster, 2)
        given = {**start, "endingOffsets": '{"orders":{"broker-a":{"0":5}}}'}
        said = (
            f"offsets 0 to 5 .5 messages. were to be read, but the queue holds {least} to {COUNT}"
        )
        with pytest.raises(OffsetOutOfRangeError, match=said) as caught:
            await plan_batch(read_options(cluster, **given), dial=cluster.dial)
        assert OPTION in str(caught.value)
        tolerant = read_options(cluster, failOnDataLoss="false", **given)
        assert await plan_batch(tolerant, dial=cluster.dial) == []
        assert "lost messages skipped" in caplog.text
