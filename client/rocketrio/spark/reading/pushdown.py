"""Conditions of a query that narrow what is read, for `filterPushdown=true` on PySpark 4.1 and later.

    topic, brokerName, queueId (kafka: partition)   = IN        exactly: Spark does not look again
    queueOffset (kafka: offset)                     = < <= > >= exactly; IN by its bounds
    storeTimestamp (kafka: timestamp)               = < <= > >= by the offsets of those times, widened by 1 ms
    tags                                            = IN        as the broker's filter, which compares hashes

Why a reader of its own: Spark refuses one that has `pushFilters` where its conf for that is not set.
Not for a DataFrame that several queries use: Spark gives each what the last one pushed (docs/decisions/0032).
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

import attrs
import pyarrow as pa
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from rocketrio.spark.reading.narrowing import EVERYTHING, Narrowing
from rocketrio.spark.reading.options import ReadOptions
from rocketrio.spark.reading.reader import RocketMQBatchReader
from rocketrio.spark.reading.schema import known_columns

_NAMES: Final = {
    "topic": "topics",
    "brokername": "broker_names",
    "queueid": "queue_ids",
    "partition": "partitions",
}
"""Columns of which a queue has one value, and the field of Narrowing."""
_OFFSETS: Final = ("queueoffset", "offset")
_TIMES: Final = ("storetimestamp", "timestamp")
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

Pushed: TypeAlias = tuple[Narrowing, bool]
"""What is left, and whether Spark need not look again."""


class PushdownReader(RocketMQBatchReader):
    """A batch reader that Spark tells its conditions."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self.narrowing = EVERYTHING

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Remember what can narrow the read; the conditions that Spark must still apply."""
        self.narrowing, left = push(filters, self._options)
        return left

    def narrow(self, pushed: dict[str, Any]) -> None:
        """As `pushFilters` in another process did."""
        self.narrowing = Narrowing.from_value(pushed)

    def partitions(self) -> list[InputPartition]:
        """The tasks of what is left. Raises SparkSourceError."""
        if self._narrowed_options is None:
            return []
        return self._planned(self._narrowed_options, self.narrowing)

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of one partition. Raises SparkSourceError."""
        if self._narrowed_options is None:
            return iter(())
        return self._rows(partition, self._narrowed_options)

    @property
    def _narrowed_options(self) -> ReadOptions | None:
        """With the filter that the conditions on tags make; None where nothing can pass."""
        subscription = self.narrowing.subscription(self._options.subscription)
        if subscription is None:
            return None
        return attrs.evolve(self._options, subscription=subscription)


def push(filters: Iterable[Filter], options: ReadOptions) -> tuple[Narrowing, list[Filter]]:
    """What the conditions, all of which must hold, leave to read, and those that Spark must apply all the same."""
    columns = {name.lower(): column for name, column in known_columns(options).items()}
    narrowing = EVERYTHING
    left: list[Filter] = []
    # With onCorruptMessage=null a row may lack anything, which no range can tell.
    never_null = options.on_corrupt_message != "null"
    for condition in filters:
        name = _column(condition)
        is_exact = False
        if isinstance(condition, IsNotNull):
            is_exact = name in columns and not columns[name].may_be_null
        elif isinstance(condition, _COMPARISONS):
            pushed = _narrowed(narrowing, name, condition)
            if pushed is not None:
                narrowing, is_exact = pushed
        if not (is_exact and never_null):
            left.append(condition)
    return narrowing, left


def _column(condition: Filter) -> str:
    """The column of a condition in lower case; empty for a field inside one."""
    attribute: tuple[str, ...] = getattr(condition, "attribute", ())
    return attribute[0].lower() if len(attribute) == 1 else ""


def _narrowed(narrowing: Narrowing, name: str, condition: Any) -> Pushed | None:
    """What one comparison makes of the rest; None where it says nothing to us."""
    if not isinstance(condition, In) and condition.value is None:
        return None  # `<=> NULL` asks for rows that have none.
    is_equality = isinstance(condition, EqualTo | EqualNullSafe | In)
    if is_equality and name in _NAMES:
        return _among(narrowing, _NAMES[name], _values(condition)), True
    if is_equality and name == "tags":
        tags = _values(condition)
        if not all(isinstance(tag, str) and _is_tag(tag) for tag in tags):
            return None
        return _among(narrowing, "tags", tags), False
    if name in _OFFSETS:
        return _by_offset(narrowing, condition)
    if name in _TIMES:
        return _by_time(narrowing, condition)
    return None


def _values(condition: Any) -> list[Any]:
    """What a column is to equal; null equals nothing."""
    values = condition.value if isinstance(condition, In) else [condition.value]
    return [value for value in values if value is not None]


def _is_tag(text: str) -> bool:
    """Whether a list of tags can hold it."""
    return bool(text) and text == text.strip() and text != "*" and "||" not in text


def _among(narrowing: Narrowing, field: str, values: Iterable[Any]) -> Narrowing:
    known: frozenset[Any] | None = getattr(narrowing, field)
    given = frozenset(values)
    changes: dict[str, Any] = {field: given if known is None else known & given}
    return attrs.evolve(narrowing, **changes)


def _by_offset(narrowing: Narrowing, condition: Any) -> Pushed | None:
    offsets = _values(condition)
    if not all(isinstance(offset, int) for offset in offsets):
        return None
    if isinstance(condition, In):
        if not offsets:
            return attrs.evolve(narrowing, end=0), True
        low, high = min(offsets), max(offsets) + 1
        is_exact = len(set(offsets)) == high - low
    else:
        low, high = _bounds(condition, condition.value)
        is_exact = True
    start = narrowing.start if low is None else max(narrowing.start, low)
    end = narrowing.end if high is None else min(narrowing.end, high)
    return attrs.evolve(narrowing, start=start, end=end), is_exact


def _by_time(narrowing: Narrowing, condition: Any) -> Pushed | None:
    times = _values(condition)
    if not times or not all(isinstance(time, datetime) and time.tzinfo for time in times):
        return None
    # Microseconds are of no column, and a broker may be off by one: a millisecond more on either side.
    first = (min(times) - _EPOCH) // timedelta(milliseconds=1) - 1
    last = (max(times) - _EPOCH) // timedelta(milliseconds=1) + 2
    from_ms, before_ms = narrowing.from_ms, narrowing.before_ms
    if not isinstance(condition, LessThan | LessThanOrEqual):
        from_ms = first if from_ms is None else max(from_ms, first)
    if not isinstance(condition, GreaterThan | GreaterThanOrEqual):
        before_ms = last if before_ms is None else min(before_ms, last)
    return attrs.evolve(narrowing, from_ms=from_ms, before_ms=before_ms), False


def _bounds(condition: Any, value: int) -> tuple[int | None, int | None]:
    """Of the numbers that meet a comparison the least, and the one behind the largest."""
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
