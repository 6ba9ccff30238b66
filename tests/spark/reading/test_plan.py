"""Plans cover exactly what they are given, within the bounds asked for."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketrio.spark.reading.offsets import QueueRange
from rocketrio.spark.reading.plan import ReadTask, plan_partitions


def _ranges(sizes: list[int]) -> list[QueueRange]:
    return [
        QueueRange("t", f"broker-{place % 3}", place, 100 * place, 100 * place + size)
        for place, size in enumerate(sizes)
    ]


def _rows(plan: list[list[QueueRange]]) -> list[int]:
    return [sum(part.rows for part in parts) for parts in plan]


_limits = st.fixed_dictionaries(
    {
        "min_partitions": st.none() | st.integers(1, 12),
        "max_records_per_partition": st.none() | st.integers(1, 400),
        "min_records_per_partition": st.integers(1, 300),
        "max_partitions": st.none() | st.integers(12, 30),
    }
)


@given(st.lists(st.integers(0, 1000), max_size=12), _limits)
def test_every_offset_is_in_exactly_one_partition(sizes: list[int], limits: dict[str, Any]) -> None:
    ranges = _ranges(sizes)
    plan = plan_partitions(ranges, **limits)
    assert plan == plan_partitions(ranges, **limits)
    parts = sorted(part for partition in plan for part in partition)
    for given_range in ranges:
        at = given_range.start
        for part in parts:
            if part.queue_id == given_range.queue_id:
                assert part.start == at
                assert part.end > part.start
                at = part.end
        assert at == given_range.end
    if limits["max_partitions"] is not None:
        assert len(plan) <= limits["max_partitions"]
    elif limits["max_records_per_partition"] is not None and limits["min_partitions"] is None:
        assert max(_rows(plan), default=0) <= max(3, limits["max_records_per_partition"])
    if limits["min_partitions"] is not None and limits["max_records_per_partition"] is None:
        assert len(plan) >= min(limits["min_partitions"], sum(sizes))


def test_nothing_to_read_is_no_partition() -> None:
    assert plan_partitions(_ranges([0, 0])) == []
    assert plan_partitions([], min_partitions=4) == []


def test_a_range_a_partition_when_they_are_large() -> None:
    assert _rows(plan_partitions(_ranges([50, 60]), min_records_per_partition=50)) == [50, 60]


def test_small_ranges_share_a_partition() -> None:
    plan = plan_partitions(_ranges([10] * 16), min_records_per_partition=80)
    assert _rows(plan) == [80, 80]
    assert _rows(plan_partitions(_ranges([10] * 16), min_records_per_partition=20_000)) == [160]


def test_long_ranges_are_cut_evenly() -> None:
    plan = plan_partitions(_ranges([1000]), max_records_per_partition=300)
    assert _rows(plan) == [250] * 4
    assert [parts[0].start for parts in plan] == [0, 250, 500, 750]


def test_few_ranges_are_cut_in_proportion_to_their_sizes() -> None:
    plan = plan_partitions(_ranges([900, 100]), min_partitions=5)
    assert len(plan) == 5
    assert sorted(_rows(plan)) == [100, 225, 225, 225, 225]


def test_more_partitions_than_rows_are_not_made() -> None:
    assert _rows(plan_partitions(_ranges([3]), min_partitions=10)) == [1, 1, 1]


def test_a_bound_on_partitions_packs_large_ranges_too() -> None:
    plan = plan_partitions(_ranges([70, 50, 40, 30, 10]), max_partitions=2)
    assert sorted(_rows(plan)) == [100, 100]


def test_pieces_that_meet_again_are_one_range() -> None:
    plan = plan_partitions(_ranges([100]), max_records_per_partition=10, max_partitions=1)
    assert plan == [[QueueRange("t", "broker-0", 0, 0, 100)]]


def test_tasks_travel_as_plain_values() -> None:
    task = ReadTask(
        tuple(_ranges([5, 6])), {"broker-0": {0: "h:1", 1: "h:2"}, "broker-1": {0: "h:3"}}
    )
    value = task.to_value()
    assert ReadTask.from_value(value) == task
    assert {type(item) for parts in value["ranges"] for item in parts} == {str, int}
    with pytest.raises(ValueError, match="install the same one"):
        ReadTask.from_value(value | {"version": 99})
