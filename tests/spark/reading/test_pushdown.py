"""Conditions that narrow a read: what is pushed, what Spark must still apply, and that no wanted row is left out."""

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trio
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)
from tests.spark.in_memory import COUNT, batch_options, loaded, read_options
from tests.support.running_cluster import channel_pool, load_queue, numbered
from trio.testing import MockClock

from rocketrio.consuming.subscription import ALL, Subscription
from rocketrio.spark.errors import OptionError
from rocketrio.spark.reading.offsets import MAX_OFFSET, QueueRange
from rocketrio.spark.reading.plan import EVERYTHING, Narrowing
from rocketrio.spark.reading.planning import plan_batch
from rocketrio.spark.reading.pushdown import (
    FOLDERS_VARIABLE,
    PushdownReader,
    for_one_query,
    push,
    widened,
)
from rocketrio.spark.reading.schema import table_schema

ALWAYS = Not(EqualNullSafe(("queue_offset",), -9))
"""What `ALWAYS_TRUE` is when Spark pushes it."""
T0 = datetime(2024, 1, 1, tzinfo=UTC)
T0_MS = 1_704_067_200_000


@pytest.mark.parametrize(
    ("condition", "narrowing"),
    [
        (EqualTo(("topic",), "a"), Narrowing(topics=frozenset("a"))),
        (In(("TOPIC",), ("a", "b", None)), Narrowing(topics=frozenset("ab"))),
        (EqualNullSafe(("broker_name",), "x"), Narrowing(broker_names=frozenset("x"))),
        (In(("queue_id",), (1, 2)), Narrowing(queue_ids=frozenset((1, 2)))),
        (EqualTo(("queue_offset",), 7), Narrowing(start=7, end=8)),
        (GreaterThan(("queue_offset",), 7), Narrowing(start=8)),
        (GreaterThanOrEqual(("queue_offset",), 7), Narrowing(start=7)),
        (LessThan(("queue_offset",), 7), Narrowing(end=7)),
        (LessThanOrEqual(("queue_offset",), 7), Narrowing(end=8)),
        (LessThan(("queue_offset",), -5), Narrowing(end=-5)),
        (In(("queue_offset",), (9, 3)), Narrowing(start=3, end=10)),
        (In(("queue_offset",), (3, 4)), Narrowing(start=3, end=5)),
        (In(("queue_offset",), ()), Narrowing(end=0)),
        (GreaterThan(("store_time",), T0), Narrowing(from_ms=T0_MS - 1)),
        (LessThan(("store_time",), T0), Narrowing(before_ms=T0_MS + 2)),
        (
            EqualTo(("store_time",), T0 + timedelta(microseconds=999)),
            Narrowing(from_ms=T0_MS - 1, before_ms=T0_MS + 2),
        ),
        (EqualTo(("tags",), "a"), Narrowing(tags=frozenset("a"))),
        (In(("tags",), ("a", "b")), Narrowing(tags=frozenset("ab"))),
        (IsNotNull(("queue_id",)), EVERYTHING),
        (IsNotNull(("tags",)), EVERYTHING),
        # What is not for us.
        (EqualNullSafe(("tags",), None), EVERYTHING),
        (EqualTo(("tags",), "a||b"), EVERYTHING),
        (In(("tags",), ("a", "*")), EVERYTHING),
        (IsNull(("tags",)), EVERYTHING),
        (Not(EqualTo(("queue_id",), 1)), EVERYTHING),
        (StringStartsWith(("topic",), "a"), EVERYTHING),
        (EqualTo(("keys",), "k"), EVERYTHING),
        (EqualTo(("properties", "TAGS"), "a"), EVERYTHING),
        (GreaterThan(("queue_id",), 1), EVERYTHING),
        (GreaterThan(("tags",), "a"), EVERYTHING),
        (EqualTo(("offset",), "7"), EVERYTHING),
    ],
)
def test_one_condition_becomes_a_narrowing(condition: Filter, narrowing: Narrowing) -> None:
    assert push([condition], batch_options()) == narrowing
    assert push([ALWAYS, condition], batch_options()) == narrowing


def test_spark_checks_every_condition_again() -> None:
    options = batch_options()
    conditions: list[Filter] = [EqualTo(("queue_id",), 1), IsNotNull(("queue_id",)), ALWAYS]
    left = PushdownReader(options, table_schema(options)).pushFilters(conditions)
    # the same objects: Spark goes by identity
    assert all(kept is condition for kept, condition in zip(left, conditions, strict=True))


def test_several_conditions_become_one_narrowing() -> None:
    conditions = [
        GreaterThan(("queue_offset",), 3), GreaterThanOrEqual(("queue_offset",), 2), LessThan(("queue_offset",), 9),
        LessThan(("queue_offset",), 7), In(("queue_id",), (1, 2)), EqualTo(("queue_id",), 2),
        GreaterThan(("store_time",), T0), LessThan(("store_time",), T0 + timedelta(seconds=1)),
        In(("tags",), ("a", "b")), EqualTo(("tags",), "b"),
    ]  # fmt: skip
    assert push(conditions, batch_options()) == Narrowing(
        start=4, end=7, queue_ids=frozenset((2,)), from_ms=T0_MS - 1, before_ms=T0_MS + 1002,
        tags=frozenset("b"),
    )  # fmt: skip


def test_kafkas_columns_have_their_own_names() -> None:
    conditions = [
        EqualTo(("partition",), 3), GreaterThan(("offset",), 3), LessThan(("timestamp",), T0),
        IsNotNull(("key",)), IsNotNull(("value",)),
    ]  # fmt: skip
    assert push(conditions, batch_options(schemaMode="kafka")) == Narrowing(
        partitions=frozenset((3,)), start=4, before_ms=T0_MS + 2
    )


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(0, MAX_OFFSET, (10, 20)), (12, 15, (12, 15)), (30, 40, (20, 20)), (0, 5, (10, 10)), (15, 12, (15, 15))],
)  # fmt: skip
def test_ranges_become_no_larger(start: int, end: int, expected: tuple[int, int]) -> None:
    part = Narrowing(start=start, end=end).within(QueueRange("t", "b", 0, 10, 20))
    assert (part.start, part.end) == expected


def test_conditions_on_tags_become_the_brokers_filter() -> None:
    tags = Narrowing(tags=frozenset("ab"))
    assert tags.subscription(ALL) == Subscription("a || b", frozenset("ab"))
    assert tags.subscription(Subscription("b || c", frozenset("bc"))) == Subscription(
        "b", frozenset("b")
    )
    assert tags.subscription(Subscription("c", frozenset("c"))) is None
    sql = Subscription("x > 1", None, "SQL92")
    assert tags.subscription(sql) == sql
    assert EVERYTHING.subscription(ALL) == ALL


def test_what_was_pushed_travels_as_plain_values() -> None:
    narrowing = Narrowing(topics=frozenset("t"), queue_ids=frozenset((1, 2)), start=3, from_ms=9)
    value = narrowing.to_value()
    assert Narrowing.from_value(value) == narrowing
    assert all(isinstance(each, list | int | None) for each in value.values())


def test_what_two_queries_leave_covers_both() -> None:
    one = Narrowing(
        topics=frozenset("t"), queue_ids=frozenset((1,)), start=3, end=9, from_ms=5, before_ms=9
    )
    other = Narrowing(queue_ids=frozenset((2,)), start=5, end=12, from_ms=7, tags=frozenset("a"))
    both = Narrowing(queue_ids=frozenset((1, 2)), start=3, end=12, from_ms=5)
    assert one.widened(other) == other.widened(one) == both
    assert one.widened(one) == one
    assert one.widened(EVERYTHING) == EVERYTHING


def test_reader_without_remaining_ranges_sends_no_request() -> None:
    options = batch_options(subExpression="a")
    reader = PushdownReader(options, table_schema(options))
    assert len(list(reader.pushFilters([EqualTo(("tags",), "b")]))) == 1
    assert reader.partitions() == []
    assert list(reader.read(None)) == []


async def _planned(cluster: Any, *conditions: Filter, **given: str) -> list[tuple[int, int, int]]:
    options = read_options(cluster, **given)
    narrowing = push(conditions, options)
    tasks = await plan_batch(options, narrowing, dial=cluster.dial)
    ranges = [part for task in tasks for part in task.ranges]
    return sorted((part.queue_id, part.start, part.end) for part in ranges)


async def test_plans_are_narrowed_by_queue_offset_and_time(autojump_clock: MockClock) -> None:
    async with loaded() as cluster, channel_pool(cluster.dial) as pool:
        await trio.sleep(60)
        middle = datetime.fromtimestamp(cluster.wall_clock.now_ms() / 1000, UTC)
        await load_queue(pool, cluster.master.broker.address, "orders", 0, numbered(0, 10))

        assert await _planned(cluster, EqualTo(("queue_id",), 1)) == [(1, 0, COUNT)]
        assert await _planned(cluster, EqualTo(("topic",), "bills")) == []
        assert await _planned(cluster, EqualTo(("broker_name",), "broker-b")) == []
        assert await _planned(
            cluster, GreaterThan(("queue_offset",), 290), LessThan(("queue_offset",), 295)
        ) == [(0, 291, 295), (1, 291, 295)]
        newer = GreaterThanOrEqual(("store_time",), middle)
        assert await _planned(cluster, newer) == [(0, COUNT, COUNT + 10)]
        older = LessThan(("store_time",), middle - timedelta(seconds=1))
        assert await _planned(cluster, older) == [(0, 0, COUNT), (1, 0, COUNT)]
        assert await _planned(cluster, newer, older) == []
        kafka = {"schemaMode": "kafka"}
        assert await _planned(cluster, EqualTo(("partition",), 1), **kafka) == [(1, 0, COUNT)]
        # Also of a part of the topic: numbers are those of the whole.
        kafka["assign"] = '{"orders":{"broker-a":[1]}}'
        assert await _planned(cluster, EqualTo(("partition",), 0), **kafka) == []


@pytest.mark.slow
async def test_no_row_that_meets_the_conditions_is_left_out(autojump_clock: MockClock) -> None:
    rng = random.Random(7)
    async with loaded(queues=1, count=1) as cluster, channel_pool(cluster.dial) as pool:
        times = [cluster.wall_clock.now_ms()]
        for _ in range(40):
            await trio.sleep(rng.choice((0, 0.001, 0.002, 0.5)))
            times.append(cluster.wall_clock.now_ms())
            await load_queue(pool, cluster.master.broker.address, "orders", 0, numbered(0, 1))
        for _ in range(30):
            low, high = sorted(rng.sample(times, 2))
            conditions = (
                GreaterThanOrEqual(("store_time",), _at(low)),
                LessThanOrEqual(("store_time",), _at(high)),
            )
            ((_, start, end),) = await _planned(cluster, *conditions)
            wanted = [place for place, time in enumerate(times) if low <= time <= high]
            assert start <= wanted[0]
            assert wanted[-1] < end
            near = [place for place, time in enumerate(times) if low - 1 <= time <= high + 1]
            assert (start, end) == (near[0], near[-1] + 1)


def _at(milliseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


QUEUE_1, QUEUE_2 = Narrowing(queue_ids=frozenset((1,))), Narrowing(queue_ids=frozenset((2,)))
ALWAYS = Not(EqualNullSafe(("queue_offset",), -9))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDERS_VARIABLE, f"{tmp_path},/nowhere")
    return tmp_path


def test_a_plan_covers_what_was_pushed_before_it_on_the_same_load() -> None:
    assert widened("a", QUEUE_1) == QUEUE_1
    assert widened("b", QUEUE_2) == QUEUE_2
    both = Narrowing(queue_ids=frozenset((1, 2)))
    assert widened("a", QUEUE_2) == both
    assert widened("a", QUEUE_1) == both
    assert widened("a", EVERYTHING) == EVERYTHING
    assert widened("a", QUEUE_1) == EVERYTHING


def test_a_plan_for_one_query_is_refused_to_another() -> None:
    for _ in range(3):
        for_one_query("plan", "7")
    for _ in range(2):
        with pytest.raises(OptionError, match="load the DataFrame again"):
            for_one_query("plan", "8")
    for_one_query("plan", "7")
    for_one_query("another", "8")


def test_where_nothing_can_be_noted_nothing_is_narrowed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv(FOLDERS_VARIABLE)
    assert widened("a", QUEUE_1) == EVERYTHING
    assert "narrows nothing" in caplog.text
    for_one_query("plan", "7")
    for_one_query("plan", "8")


def _pushed(load_id: str, *filters: Filter) -> PushdownReader:
    options = batch_options()
    reader = PushdownReader(options, table_schema(options))
    reader.load_id = load_id
    reader.pushFilters(list(filters))
    return reader


def test_only_narrow_plans_without_the_constant_condition_are_for_one_query() -> None:
    queue_1 = EqualTo(("queue_id",), 1)
    assert _pushed("a", queue_1).pushed()["plan_id"] is not None
    assert _pushed("b", queue_1, ALWAYS).pushed()["plan_id"] is None
    assert _pushed("c", EqualTo(("keys",), "k")).pushed()["plan_id"] is None
    assert _pushed("c", queue_1).pushed()["plan_id"] is None  # all is read after the one before


def test_what_was_pushed_reaches_the_reader_of_a_task() -> None:
    planned = _pushed("a", EqualTo(("queue_id",), 1))
    reader = _pushed("b")
    reader.narrow(planned.pushed())
    assert reader.narrowing == QUEUE_1
    assert reader.pushed() == planned.pushed()
