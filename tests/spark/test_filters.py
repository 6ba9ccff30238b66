"""Filters on the broker: what passes is read, all else passed over, and a wrong expression stops the planning."""

import pytest
from tests.spark.in_memory import all_bodies, discover, loaded, read, read_options
from trio.testing import MockClock

from rocketrio.spark.errors import OptionError

_EVEN = {q: bodies[::2] for q, bodies in all_bodies().items()}


@pytest.mark.parametrize("depth", ["1", "8"])
async def test_a_tag_is_filtered_by_the_broker(autojump_clock: MockClock, depth: str) -> None:
    async with loaded() as cluster:
        taken = await read(cluster, subExpression="even", pullPipelineDepth=depth)
    assert taken.rows() == _EVEN
    assert sum(block.rows for block in taken.blocks) == 300  # messages, not offsets


async def test_ranges_of_which_nothing_passes_end(autojump_clock: MockClock) -> None:
    async with loaded() as cluster:
        taken = await read(cluster, subExpression="neither || nor")
    assert taken.rows() == {}


async def test_the_end_of_a_range_holds_behind_a_filter(autojump_clock: MockClock) -> None:
    async with loaded() as cluster:
        taken = await read(
            cluster,
            assign='{"orders":{"broker-a":[1]}}',
            subExpression="odd",
            startingOffsets='{"orders":{"broker-a":{"1":50}}}',
            endingOffsets='{"orders":{"broker-a":{"1":117}}}',
        )
    assert taken.rows() == {1: all_bodies()[1][51:117:2]}


async def test_large_answers_are_cut_by_the_size_of_a_batch(autojump_clock: MockClock) -> None:
    async with loaded() as cluster:
        taken = await read(cluster, subExpression="even", batchRows="20")
    assert taken.rows() == _EVEN
    assert max(block.rows for block in taken.blocks) <= 40


async def test_sql_is_filtered_by_the_broker(autojump_clock: MockClock) -> None:
    async with loaded(enable_property_filter=True) as cluster:
        taken = await read(
            cluster,
            subExpression="TAGS = 'odd' AND number BETWEEN 100 AND 105",
            subExpressionType="SQL92",
        )
    assert taken.rows() == {q: [f"{q}/{n}".encode() for n in (101, 103, 105)] for q in range(2)}


async def test_wrong_expression_fails_before_planning_with_the_brokers_remark(
    autojump_clock: MockClock,
) -> None:
    async with loaded(enable_property_filter=True) as cluster:
        options = read_options(cluster, subExpression="number >", subExpressionType="SQL92")
        with pytest.raises(OptionError, match=r"subExpression='number >' is refused: .*number >"):
            await discover(options, dial=cluster.dial)


async def test_broker_without_sql_is_an_error(autojump_clock: MockClock) -> None:
    async with loaded(enable_property_filter=False) as cluster:
        options = read_options(cluster, subExpression="number > 1", subExpressionType="SQL92")
        with pytest.raises(OptionError, match="does not support"):
            await discover(options, dial=cluster.dial)


async def test_slave_filters_by_tags(autojump_clock: MockClock) -> None:
    async with loaded(slaves=1) as cluster:
        await cluster.slaves[0].broker.store.appended.wait_reached(
            cluster.master.broker.store.max_physical_offset
        )
        await cluster.master.stop()
        taken = await read(cluster, subExpression="even", readFrom="slave")
    assert taken.rows() == _EVEN
