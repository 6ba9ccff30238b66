"""A task's pulls while brokers die, fall silent, lag or come back: rows stay exact. Under a virtual clock."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
from tests.spark.in_memory import all_bodies, fetch, loaded, read_options
from tests.spark.pulls import Pulls
from tests.support.running_cluster import channel_pool, load_queue, numbered
from trio.testing import MockClock

from rocketrio.consuming.pull_result import PullResult, PullStatus
from rocketrio.spark.errors import BrokerUnreachableError
from rocketrio.spark.reading.planning import plan_batch
from rocketrio.spark.reading.sources import Again, AskMaster, Lost, Take, Verdict, judge
from rocketrio_broker.embedded import EmbeddedCluster

COUNT = 400


@asynccontextmanager
async def _cluster(*, slaves: int = 1) -> AsyncIterator[EmbeddedCluster]:
    async with loaded(queues=2, count=COUNT, slaves=slaves) as cluster:
        await trio.sleep(12)
        yield cluster


SMALL_PULLS = {"pullBatchSize": "10", "pullPipelineDepth": "3"}


async def test_a_master_that_dies_in_the_middle_is_replaced(
    autojump_clock: MockClock, pulls: Pulls, caplog: pytest.LogCaptureFixture
) -> None:
    async with _cluster() as cluster:
        options = read_options(cluster, **SMALL_PULLS)
        (task,) = await plan_batch(options, dial=cluster.dial)
        master, slave = cluster.master.broker.address, cluster.slaves[0].broker.address
        pulls.clear()

        async def kill() -> None:
            await pulls.wait_asked(12)
            await cluster.kill_master()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(kill)
            started = trio.current_time()
            taken = await fetch(cluster, options, task)
        assert taken.rows() == all_bodies(2, COUNT)
        assert trio.current_time() - started < 1.0
        assert 0 < pulls.messages[master] < pulls.messages[slave]
        # Several pulls were under way: of one outage one line tells.
        assert caplog.text.count("pull failed, next replica") == 1
        assert master in caplog.text


async def test_a_master_that_falls_silent_in_the_middle_costs_two_seconds(
    autojump_clock: MockClock, pulls: Pulls
) -> None:
    async with _cluster() as cluster:
        options = read_options(cluster, **SMALL_PULLS)
        (task,) = await plan_batch(options, dial=cluster.dial)
        pulls.clear()

        async def silence() -> None:
            await pulls.wait_asked(12)
            cluster.memory_network.silence(cluster.master.host)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(silence)
            started = trio.current_time()
            taken = await fetch(cluster, options, task)
        assert taken.rows() == all_bodies(2, COUNT)
        assert trio.current_time() - started < 3.0  # its pulls would take ten


@pytest.mark.slow
async def test_two_slaves_and_the_master_are_asked_before_it_fails(
    autojump_clock: MockClock, pulls: Pulls
) -> None:
    async with _cluster(slaves=2) as cluster:
        options = read_options(cluster, readFrom="slave", readRetries="1")
        (task,) = await plan_batch(options, dial=cluster.dial)
        for member in cluster.members:
            await member.kill()
        pulls.clear()
        with pytest.raises(
            BrokerUnreachableError, match=r"cannot be read at 0 from .* readFrom=slave"
        ):
            await fetch(cluster, options, task)
        assert len({addr for addr, _, _ in pulls.asked}) <= 3


async def test_a_master_that_comes_back_is_waited_for(autojump_clock: MockClock) -> None:
    async with _cluster(slaves=0) as cluster:
        options = read_options(cluster)
        (task,) = await plan_batch(options, dial=cluster.dial)
        await cluster.kill_master()

        async def restart() -> None:
            await trio.sleep(2)
            await cluster.restart_master()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(restart)
            assert (await fetch(cluster, options, task)).rows() == all_bodies(2, COUNT)


async def test_slaves_within_the_bound_are_read_and_others_not(
    autojump_clock: MockClock, pulls: Pulls
) -> None:
    async with _cluster() as cluster, channel_pool(cluster.dial) as pool:
        master, slave = cluster.master.broker.address, cluster.slaves[0].broker.address
        cluster.memory_network.partition(cluster.master.host, cluster.slaves[0].host)
        for queue_id in range(2):
            await load_queue(pool, master, "orders", queue_id, numbered(queue_id, 50))
        await trio.sleep(5)  # It lacks 50 messages of each queue now, since five seconds.
        ends = f'{{"orders":{{"broker-a":{{"0":{COUNT},"1":{COUNT}}}}}}}'
        for bound, read in [
            ("50 messages", slave),
            ("49 messages", master),
            ("20s", slave),
            ("4s", master),
        ]:
            options = read_options(
                cluster, readFrom="slave", maxStaleness=bound, endingOffsets=ends
            )
            (task,) = await plan_batch(options, dial=cluster.dial)
            pulls.clear()
            assert (await fetch(cluster, options, task)).rows() == all_bodies(2, COUNT), bound
            assert set(pulls.messages) == {read}, bound


async def test_a_bound_is_kept_while_the_master_is_away(autojump_clock: MockClock) -> None:
    async with _cluster() as cluster:
        strict = read_options(cluster, maxStaleness="2s", readRetries="1")
        (task,) = await plan_batch(strict, dial=cluster.dial)
        await cluster.kill_master()
        await trio.sleep(5)
        with pytest.raises(
            BrokerUnreachableError, match="only slaves within maxStaleness=2s may be read"
        ):
            await fetch(cluster, strict, task)
        # It has all that was planned, and more the master was never known to have.
        for given in ({"maxStaleness": "0 messages"}, {}):
            options = read_options(cluster, **given)
            assert (await fetch(cluster, options, task)).rows() == all_bodies(2, COUNT)


async def test_what_each_broker_gave_is_logged(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "rocketrio.spark.fetch")
    async with _cluster() as cluster:
        options = attrs.evolve(read_options(cluster), read_from="slave")
        (task,) = await plan_batch(options, dial=cluster.dial)
        await fetch(cluster, options, task)
        slave = cluster.slaves[0].broker.address
    lines = [line.message for line in caplog.records if line.message.startswith("task read")]
    assert len(lines) == 1
    assert f"task read broker=broker-a id=1 addr={slave} bytes=" in lines[0]


FOUND, NO_NEW = PullStatus.FOUND, PullStatus.NO_NEW_MSG
NO_MATCHED, ILLEGAL = PullStatus.NO_MATCHED_MSG, PullStatus.OFFSET_ILLEGAL


def _judged(
    status: PullStatus,
    next_offset: int,
    least: int,
    most: int,
    *,
    broker_id: int = 0,
    **kwargs: Any,
) -> Verdict:
    result = PullResult(status, next_offset, least, most, 0, b"", "h:1", broker_id)
    return judge(result, offset=100, end=200, **({"master_known": True} | kwargs))


@pytest.mark.parametrize(
    ("status", "next_offset", "least", "most", "verdict"),
    [
        (FOUND, 132, 0, 500, Take(132)),
        (FOUND, 100, 0, 500, Again()),
        (NO_NEW, 100, 0, 100, Again()),
        (NO_NEW, 100, 100, 100, Again()),
        (NO_MATCHED, 120, 0, 500, Take(120)),
        (NO_MATCHED, 900, 0, 900, Take(200)),
        (NO_MATCHED, 100, 0, 500, Again()),
        (NO_MATCHED, 150, 140, 500, Lost(140)),
        (ILLEGAL, 140, 140, 500, Lost(140)),
        (ILLEGAL, 300, 300, 500, Lost(200)),
        (ILLEGAL, 90, 0, 90, Lost(200)),
        (ILLEGAL, 0, 0, 0, Lost(200)),
        (ILLEGAL, 100, 0, 500, Again()),
    ],
)
def test_answers_of_a_master(
    status: PullStatus, next_offset: int, least: int, most: int, verdict: Verdict
) -> None:
    assert _judged(status, next_offset, least, most) == verdict


@pytest.mark.parametrize("status", [NO_NEW, NO_MATCHED, ILLEGAL])
def test_what_a_slave_lacks_is_asked_of_the_master(status: PullStatus) -> None:
    assert _judged(status, 100, 0, 50, broker_id=1) == AskMaster()
    alone = _judged(status, 100, 0, 50, broker_id=1, master_known=False)
    assert alone == Again(is_lost_at_last=False)


def test_what_a_slave_has_is_taken() -> None:
    assert _judged(FOUND, 108, 0, 108, broker_id=1) == Take(108)


@pytest.mark.parametrize(
    ("broker_id", "next_offset", "least", "verdict"),
    [
        (0, 150, 0, Take(150)),
        (0, 900, 0, Take(200)),
        (1, 150, 0, Take(150)),  # without a filter: AskMaster
        (1, 150, 140, AskMaster()),
        (0, 150, 140, Lost(140)),
    ],
)
def test_what_a_filter_omits_is_no_loss_and_a_slave_knows_it(
    broker_id: int, next_offset: int, least: int, verdict: Verdict
) -> None:
    found = _judged(NO_MATCHED, next_offset, least, 500, broker_id=broker_id, is_filtered=True)
    assert found == verdict
