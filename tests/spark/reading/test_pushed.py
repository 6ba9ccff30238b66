"""What queries on one DataFrame push, over all their processes: plans wide enough for all, or read by one query."""

from pathlib import Path

import pytest
from pyspark.sql.datasource import EqualNullSafe, EqualTo, Filter, Not

from rocketrio.spark.errors import OptionError
from rocketrio.spark.reading.narrowing import EVERYTHING, Narrowing
from rocketrio.spark.reading.options import parse_read_options
from rocketrio.spark.reading.pushdown import PushdownReader
from rocketrio.spark.reading.pushed import FOLDERS_VARIABLE, for_one_query, widened
from rocketrio.spark.reading.schema import table_schema

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
        with pytest.raises(OptionError, match="load anew"):
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
    options = parse_read_options({"nameServer": "h:1", "subscribe": "orders"})
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
