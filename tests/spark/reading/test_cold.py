"""Ranges that lie behind a master's memory begin at its slave: planned and read in a cluster in memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from tests.spark.in_memory import all_bodies, fetch, loaded, read_options
from tests.spark.pulls import Pulls
from tests.support.running_cluster import channel_pool
from trio.testing import MockClock

from rocketrio.spark.reading.planning import PROBE_MIN_ROWS, plan_batch
from rocketrio_broker.embedded import SMALL_STORE, EmbeddedCluster
from rocketrio_protocol.commands.offset import GetMaxOffsetRequestHeader

COUNT = 1600
STEP = 100
SMALL_MEMORY = attrs.evolve(SMALL_STORE, access_message_in_memory_max_bytes=20_000)
"""Room for a tenth of the queue."""


@asynccontextmanager
async def _cluster(*, slaves: int = 1, queues: int = 1) -> AsyncIterator[EmbeddedCluster]:
    async with loaded(
        queues=queues, count=COUNT, slaves=slaves, store=SMALL_MEMORY, slave_read_enable=True
    ) as cluster:
        await trio.sleep(12)  # the slave has everything, and the topic's table
        yield cluster


async def test_old_ranges_begin_at_the_slave_and_new_ones_at_the_master(
    autojump_clock: MockClock, pulls: Pulls
) -> None:
    async with _cluster() as cluster:
        given = {"maxRecordsPerPartition": str(STEP), "minRecordsPerPartition": "1"}
        tasks = await plan_batch(read_options(cluster, **given), dial=cluster.dial)
        master, looks = cluster.master.broker.address, list(pulls.asked)
        parts = sorted(beginning for task in tasks for beginning in task.beginnings())
        assert len(parts) == COUNT // STEP
        ids = [broker_id for _, broker_id in parts]
        assert ids == sorted(ids, reverse=True)
        assert 0.7 < ids.count(1) / len(ids) < 1.0
        assert len(looks) <= 6  # by halves: 16 ranges
        assert {addr for addr, _, _ in looks} == {master}
        assert pulls.messages[master] == len(looks)  # one message each


async def test_a_cold_range_is_read_without_the_master(
    autojump_clock: MockClock, pulls: Pulls
) -> None:
    async with _cluster(queues=2) as cluster:
        ends = '{"orders":{"broker-a":{"0":1200,"1":1200}}}'
        options = read_options(cluster, endingOffsets=ends)
        (task,) = await plan_batch(options, dial=cluster.dial)
        pulls.clear()
        taken = await fetch(cluster, options, task)
        assert taken.rows() == {q: bodies[:1200] for q, bodies in all_bodies(2, COUNT).items()}
        assert set(pulls.messages) == {cluster.slaves[0].broker.address}


async def test_read_that_reaches_the_hot_end_returns_to_the_master(
    autojump_clock: MockClock, pulls: Pulls
) -> None:
    async with _cluster() as cluster:
        options = read_options(cluster, pullBatchSize="20", pullPipelineDepth="2")
        (task,) = await plan_batch(options, dial=cluster.dial)
        pulls.clear()
        taken = await fetch(cluster, options, task)
        assert taken.rows() == all_bodies(1, COUNT)
        assert pulls.asked[0][0] == cluster.slaves[0].broker.address
        assert pulls.asked[-1][0] == cluster.master.broker.address
        assert pulls.messages[cluster.slaves[0].broker.address] > COUNT / 2


@pytest.mark.slow
async def test_a_slave_that_lags_costs_no_row(autojump_clock: MockClock, pulls: Pulls) -> None:
    async with _cluster() as cluster:
        options = read_options(cluster)
        (task,) = await plan_batch(options, dial=cluster.dial)
        assert task.first_ids == (1,)
        # It lost its disk, and copies all of the log once more, but for the moment has nothing.
        await cluster.slaves[0].kill()
        cluster.slaves[0].disk = cluster.make_disk()
        cluster.slaves[0].config = attrs.evolve(cluster.slaves[0].config, namesrv="10.0.0.99:1")
        slave = await cluster.slaves[0].start()
        task = attrs.evolve(
            task, addresses={"broker-a": {0: cluster.master.broker.address, 1: slave.address}}
        )
        assert (await fetch(cluster, options, task)).rows() == all_bodies(1, COUNT)


@pytest.mark.parametrize(
    ("given", "slaves"),
    [({"readFrom": "master"}, 1), ({"readFrom": "slave"}, 1), ({}, 0)],
)
async def test_replicas_are_not_probed_where_it_decides_nothing(
    autojump_clock: MockClock, pulls: Pulls, given: dict[str, str], slaves: int
) -> None:
    async with _cluster(slaves=slaves) as cluster:
        (task,) = await plan_batch(read_options(cluster, **given), dial=cluster.dial)
        assert task.first_ids == (0,)
        assert not pulls.asked


async def test_range_within_a_first_answer_is_not_probed(
    autojump_clock: MockClock, pulls: Pulls
) -> None:
    async with _cluster() as cluster:
        start = f'{{"orders":{{"broker-a":{{"0":{COUNT - PROBE_MIN_ROWS + 1}}}}}}}'
        (task,) = await plan_batch(read_options(cluster, startingOffsets=start), dial=cluster.dial)
        assert task.first_ids == (0,)
        assert not pulls.asked


async def test_failed_probe_decides_nothing(autojump_clock: MockClock, pulls: Pulls) -> None:
    async with _cluster() as cluster, channel_pool(cluster.dial) as pool:
        slave = cluster.slaves[0].broker.address
        header = GetMaxOffsetRequestHeader(topic="orders", queue_id=0)
        assert (await pool.call(slave, header)).ext_fields["offset"] == str(COUNT)
        await cluster.kill_master()
        (task,) = await plan_batch(read_options(cluster), dial=cluster.dial)
        assert task.first_ids == (0,)
        taken = await fetch(cluster, read_options(cluster), task)
        assert taken.rows() == all_bodies(1, COUNT)
