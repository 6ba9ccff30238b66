"""Narrows a read by conditions of the query, for `filterPushdown=true` on PySpark 4.1 and later.

    topic, broker_name, queue_id (kafka: partition)   = IN
    queue_offset (kafka: offset)                      = < <= > >= IN, by bounds
    store_time (kafka: timestamp)                     = < <= > >= by the offsets of those times, widened by 1 ms
    tags                                              = IN        as the broker's filter, which compares hashes

Spark applies all conditions again, because it gives every query on a DataFrame the plan that was made last. Python
plans every query except one without any condition. If every query has the condition `ALWAYS_TRUE`, Python plans that
one too; other queries are refused if they would read another query's plan.

    planning    widened(...)        this query's conditions and all before them, as one
    a task      for_one_query(...)  refuses a narrow plan in any query but the first that reads it

Both append a line to a file in the folder that Spark gives its Python workers and removes at its end, because the next
planning, like the next task, may run in another process.

It is a reader class of its own because Spark refuses a reader with `pushFilters` unless its setting for that is on.
Invariant: a condition of one query never omits a row that another query on the same DataFrame wants.
Invariant: a plan covers every condition that was pushed on its load before it was made.
Invariant: if nothing can be recorded, nothing is narrowed.
"""

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import attrs
import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
    Not,
)
from pyspark.sql.types import StructType

from rocketrio.spark.errors import OptionError
from rocketrio.spark.reading.options import ReadOptions
from rocketrio.spark.reading.plan import EVERYTHING, Narrowing
from rocketrio.spark.reading.reader import RocketMQBatchReader

_NAMES: Final = {
    "topic": "topics",
    "broker_name": "broker_names",
    "queue_id": "queue_ids",
    "partition": "partitions",
}
"""Columns that have one value for a queue, and the field of Narrowing for each."""
_OFFSETS: Final = ("queue_offset", "offset")
_TIMES: Final = ("store_time", "timestamp")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_COMPARISONS: Final = (
    EqualTo,
    EqualNullSafe,
    In,
    GreaterThan,
    GreaterThanOrEqual,
    LessThan,
    LessThanOrEqual,
)

_QUERY: Final = "spark.sql.execution.id"
_IMPOSSIBLE_OFFSET: Final = -9
ALWAYS_TRUE: Final = f"NOT ({{offset}} <=> {_IMPOSSIBLE_OFFSET})"
"""A condition that every row meets, also with nulls, and that Spark pushes."""


FOLDERS_VARIABLE: Final = "SPARK_LOCAL_DIRS"
"""Spark's scratch folders, separated by commas; Spark sets it for the Python processes of planning and of tasks."""


logger = logging.getLogger("rocketrio.spark.pushdown")


class PushdownReader(RocketMQBatchReader):
    """A batch reader to which Spark passes the query's conditions."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self.load_id: str | None = None
        """The id that all readers of one `load()` share; None if the reader shares nothing."""
        self.narrowing = EVERYTHING
        self._plan_id: str | None = None
        """The id of a plan that only one query may read."""

    def pushFilters(self, filters: list[Filter]) -> Sequence[Filter]:  # noqa: N802 - Spark's name
        """Remember what narrows the read; return the conditions that Spark must still apply, which are all."""
        narrowing = push(filters, self._options)
        if self.load_id is not None:
            narrowing = widened(self.load_id, narrowing)
            is_pushed_always = any(map(_is_always_true, filters))
            self._plan_id = None if is_pushed_always or narrowing == EVERYTHING else uuid4().hex
        self.narrowing = narrowing
        return filters

    def pushed(self) -> dict[str, Any]:
        """Return plain values for `narrow` in another process."""
        return {"narrowing": self.narrowing.to_value(), "plan_id": self._plan_id}

    def narrow(self, pushed: dict[str, Any]) -> None:
        """Narrow the read as `pushFilters` did in another process."""
        self.narrowing = Narrowing.from_value(pushed["narrowing"])
        self._plan_id = pushed["plan_id"]

    def partitions(self) -> list[InputPartition]:
        """Return the tasks of the narrowed read. Raises SparkSourceError."""
        if self._narrowed_options is None:
            return []
        return self._planned(self._narrowed_options, self.narrowing)

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Return the rows of one partition. Raises SparkSourceError."""
        task = TaskContext.get()
        if self._plan_id is not None and task is not None:
            for_one_query(self._plan_id, task.getLocalProperty(_QUERY) or "")
        if self._narrowed_options is None:
            return iter(())
        return self._rows(partition, self._narrowed_options)

    @property
    def _narrowed_options(self) -> ReadOptions | None:
        """The options with a filter by the wanted tags; None if no message can pass."""
        subscription = self.narrowing.subscription(self._options.subscription)
        if subscription is None:
            return None
        return attrs.evolve(self._options, subscription=subscription)


def push(filters: Iterable[Filter], options: ReadOptions) -> Narrowing:
    """Return the narrowing by these conditions, all of which must hold."""
    narrowing = EVERYTHING
    for condition in filters:
        if isinstance(condition, _COMPARISONS):
            narrowing = _narrowed(narrowing, _column(condition), condition)
    return narrowing


def _is_always_true(condition: Filter) -> bool:
    """Return True if the condition is `ALWAYS_TRUE`."""
    match condition:
        case Not(EqualNullSafe() as inner):
            return _column(inner) in _OFFSETS and inner.value == _IMPOSSIBLE_OFFSET
    return False


def _column(condition: Filter) -> str:
    """Return the column of a condition in lower case, or "" for a field inside a column."""
    attribute: tuple[str, ...] = getattr(condition, "attribute", ())
    return attribute[0].lower() if len(attribute) == 1 else ""


def _narrowed(narrowing: Narrowing, name: str, condition: Any) -> Narrowing:
    """Narrow by one comparison; return the same value for a comparison that cannot be used."""
    if not isinstance(condition, In) and condition.value is None:
        return narrowing  # `<=> NULL` wants rows without a value.
    is_equality = isinstance(condition, EqualTo | EqualNullSafe | In)
    if is_equality and name in _NAMES:
        return _among(narrowing, _NAMES[name], _values(condition))
    if is_equality and name == "tags":
        tags = _values(condition)
        if all(isinstance(tag, str) and _is_tag(tag) for tag in tags):
            return _among(narrowing, "tags", tags)
    if name in _OFFSETS:
        return _by_offset(narrowing, condition)
    if name in _TIMES:
        return _by_time(narrowing, condition)
    return narrowing


def _values(condition: Any) -> list[Any]:
    """Return the values that a column may equal; null equals nothing."""
    values = condition.value if isinstance(condition, In) else [condition.value]
    return [value for value in values if value is not None]


def _is_tag(text: str) -> bool:
    """Return True if a list of tags can contain the text."""
    return bool(text) and text == text.strip() and text != "*" and "||" not in text


def _among(narrowing: Narrowing, field: str, values: Iterable[Any]) -> Narrowing:
    known: frozenset[Any] | None = getattr(narrowing, field)
    given = frozenset(values)
    changes: dict[str, Any] = {field: given if known is None else known & given}
    return attrs.evolve(narrowing, **changes)


def _by_offset(narrowing: Narrowing, condition: Any) -> Narrowing:
    offsets = _values(condition)
    if not all(isinstance(offset, int) for offset in offsets):
        return narrowing
    if not offsets:
        return attrs.evolve(narrowing, end=0)
    if isinstance(condition, In):
        low, high = min(offsets), max(offsets) + 1
    else:
        low, high = _bounds(condition, condition.value)
    start = narrowing.start if low is None else max(narrowing.start, low)
    end = narrowing.end if high is None else min(narrowing.end, high)
    return attrs.evolve(narrowing, start=start, end=end)


def _by_time(narrowing: Narrowing, condition: Any) -> Narrowing:
    times = _values(condition)
    if not times or not all(isinstance(time, datetime) and time.tzinfo for time in times):
        return narrowing
    # Columns have no microseconds, and a broker may be off by one: add a millisecond on either side.
    first = (min(times) - _EPOCH) // timedelta(milliseconds=1) - 1
    last = (max(times) - _EPOCH) // timedelta(milliseconds=1) + 2
    from_ms, before_ms = narrowing.from_ms, narrowing.before_ms
    if not isinstance(condition, LessThan | LessThanOrEqual):
        from_ms = first if from_ms is None else max(from_ms, first)
    if not isinstance(condition, GreaterThan | GreaterThanOrEqual):
        before_ms = last if before_ms is None else min(before_ms, last)
    return attrs.evolve(narrowing, from_ms=from_ms, before_ms=before_ms)


def _bounds(condition: Any, value: int) -> tuple[int | None, int | None]:
    """Return the least number that meets a comparison, and the number after the largest one."""
    match condition:
        case GreaterThan():
            return value + 1, None
        case GreaterThanOrEqual():
            return value, None
        case LessThan():
            return None, value
        case LessThanOrEqual():
            return None, value + 1
        case _:
            return value, value + 1


def widened(load_id: str, narrowing: Narrowing) -> Narrowing:
    """Return what a plan must cover to be right for all conditions pushed on that load so far."""
    line = msgspec.json.encode(narrowing.to_value())
    noted = _note(f"rocketrio-pushed-{load_id}", line)
    if noted is None:
        logger.warning(
            "filterPushdown narrows nothing, a variable names no folder variable=%s",
            FOLDERS_VARIABLE,
        )
        return EVERYTHING
    covered = narrowing
    for each in noted:
        covered = covered.widened(Narrowing.from_value(msgspec.json.decode(each)))
    return covered


def for_one_query(plan_id: str, query_id: str) -> None:
    """Record that a query reads a plan. Raises OptionError if another query has read it."""
    noted = _note(f"rocketrio-planned-{plan_id}", query_id.encode())
    if noted is not None and noted[0] != query_id.encode():
        raise OptionError(
            "filterPushdown=true: Spark gives this query the plan of an earlier query on the same DataFrame, whose"
            " conditions may omit rows. Use from_rocketmq(..., filter_pushdown=True), or load the DataFrame again"
        )


def _note(name: str, line: bytes) -> list[bytes] | None:
    """Append a line to a file and return all its lines, or None if Spark gives no folder."""
    folder = os.environ.get(FOLDERS_VARIABLE, "").split(",")[0]
    if not folder:
        return None
    # Short lines are appended whole, even if several processes append.
    with (Path(folder) / name).open("a+b") as file:
        file.write(line + b"\n")
        file.flush()
        file.seek(0)
        return file.read().splitlines()
