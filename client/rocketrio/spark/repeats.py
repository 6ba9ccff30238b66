"""Drops repeated rows of a write with `dedupProperties=true`: in consumers, and in DataFrames.

    async for message in drop_repeats(consumer): ...         # the position moves past repeats too
    await consumer.run(handle_once(bill))
    spark.read.format("rocketmq")...load().transform(drop_repeated_rows)

A consumer remembers in memory which rows are done: a bitmap of 512 bytes for each 4096 rows of a task. Spark repeats
only recent work, so the rows of the tasks that wrote least recently are forgotten first. To detect repeats after a
restart of the consumer too, store `str(row_stamp(message))` as a key with what the handler writes.

Invariant: a row is done when its handler has returned, so a message that failed and comes again is not a repeat.
Invariant: if a row comes twice, only one message is with a handler at a time; the other waits for its result.
Invariant: messages without a stamp are never dropped, even if a log that became shorter uses an offset again.
"""

from collections import OrderedDict
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

import attrs
import trio

from rocketrio.spark.errors import SchemaError
from rocketrio.spark.writing.stamps import (
    SPARK_BATCH,
    SPARK_QUERY,
    SPARK_ROW,
    SPARK_TASK,
    RowStamp,
    Stamped,
    row_stamp,
)
from rocketrio_protocol.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS_REMEMBERED: Final = 16 * 1024 * 1024
"""The largest number of rows, in 4096 bitmaps: 3 MiB. If tasks write few rows, these are the last 4096 tasks."""

_ROWS_OF_MAP: Final = 4096
_STAMP: Final = "__rocketmq_stamp"
_PLACE: Final = ("topic", "broker_name", "queue_id", "queue_offset")

M = TypeVar("M", bound=Stamped)
R = TypeVar("R")


class Repeats:
    """Remembers which rows are done."""

    def __init__(self, *, rows_remembered: int = ROWS_REMEMBERED) -> None:
        """Create an empty memory; `rows_remembered` is rounded up to 4096 for each task that wrote."""
        if rows_remembered < 1:
            raise ConfigError(f"{rows_remembered=}: at least 1")
        self._most_maps = -(-rows_remembered // _ROWS_OF_MAP)
        self._maps: OrderedDict[tuple[str, str, str, int, int], bytearray] = OrderedDict()
        self.in_work: dict[RowStamp, trio.Event] = {}
        """Rows that a handler has now, each with the event that is set when the handler has ended."""

    def __repr__(self) -> str:
        return f"<Repeats maps={len(self._maps)}/{self._most_maps}>"

    def is_repeat(self, message: Stamped) -> bool:
        """Return True if the row of this message is already done."""
        stamp = row_stamp(message)
        return stamp is not None and self.has(stamp)

    def remember(self, message: Stamped) -> None:
        """Record that the row of this message is done."""
        stamp = row_stamp(message)
        if stamp is not None:
            self.add(stamp)

    def has(self, stamp: RowStamp) -> bool:
        """Return True if this row is done."""
        rows = self._maps.get(_key(stamp))
        return rows is not None and bool(rows[stamp.row % _ROWS_OF_MAP >> 3] & 1 << (stamp.row & 7))

    def add(self, stamp: RowStamp) -> None:
        """Record that this row is done."""
        key = _key(stamp)
        rows = self._maps.get(key)
        if rows is None:
            rows = self._maps[key] = bytearray(_ROWS_OF_MAP >> 3)
            if len(self._maps) > self._most_maps:
                self._maps.popitem(last=False)
        else:
            self._maps.move_to_end(key)
        rows[stamp.row % _ROWS_OF_MAP >> 3] |= 1 << (stamp.row & 7)


def _key(stamp: RowStamp) -> tuple[str, str, str, int, int]:
    return stamp.topic, stamp.query, stamp.batch, stamp.task, stamp.row // _ROWS_OF_MAP


def drop_repeats(messages: AsyncIterable[M], *, repeats: Repeats | None = None) -> AsyncIterator[M]:
    """Iterate over the messages of a consumer, each row once; a row is done when the next message is requested.

    Pass `repeats` to share the remembered rows. Errors of the consumer are raised here. A cancel, or leaving the loop,
    leaves the row of the current message not done.
    """
    return _WithoutRepeats(aiter(messages), Repeats() if repeats is None else repeats)


@attrs.define
class _WithoutRepeats(AsyncIterator[M]):
    """An iterator, not a generator, so that nothing has to be closed when its loop is left."""

    _messages: AsyncIterator[M]
    _repeats: Repeats
    _in_hand: M | None = None

    async def __anext__(self) -> M:
        if self._in_hand is not None:
            self._repeats.remember(self._in_hand)
            self._in_hand = None
        while True:
            message = await anext(self._messages)
            if not self._repeats.is_repeat(message):
                self._in_hand = message
                return message


def handle_once(
    handler: Callable[[M], Awaitable[R]], *, repeats: Repeats | None = None
) -> Callable[[M], Awaitable[R | None]]:
    """Return a handler for `Consumer.run` that calls `handler` once for each row.

    A message whose row another handler has at that moment waits until that handler has ended. A failure or a cancel
    leaves the row not done: its message comes again, and a waiting message is handled next. Pass `repeats` to share the
    remembered rows.
    """
    seen = Repeats() if repeats is None else repeats

    async def handle(message: M) -> R | None:
        stamp = row_stamp(message)
        if stamp is None:
            return await handler(message)
        while stamp in seen.in_work:
            await seen.in_work[stamp].wait()
        if seen.has(stamp):
            return None
        ended = seen.in_work[stamp] = trio.Event()
        try:
            result = await handler(message)
            seen.add(stamp)
        finally:
            del seen.in_work[stamp]
            ended.set()
        return result

    return handle


def drop_repeated_rows(frame: "DataFrame", *, within: str | None = None) -> "DataFrame":
    """Return a DataFrame that was read from topics with each written row once; rows without a stamp all stay.

    A stream remembers rows for `within`, an interval of `store_time` like `1 hour`: longer than the longest restart.
    Raises SchemaError if a column that it needs is missing (a read has them by default), and ConfigError for a stream
    without `within` or a batch with it.
    """
    from pyspark.sql.functions import coalesce, col, concat_ws, lit, when
    from pyspark.sql.types import MapType

    wanted = [*_PLACE, "properties", *(["store_time"] if frame.isStreaming else [])]
    missing = [name for name in wanted if name not in frame.columns]
    if missing:
        raise SchemaError(f"to know repeats, read the columns {', '.join(missing)} too")
    if not isinstance(frame.schema["properties"].dataType, MapType):
        raise SchemaError(
            "to know repeats, read the properties as a map, not with properties=string"
        )
    if frame.isStreaming != (within is not None):
        raise ConfigError(
            "a stream needs within='1 hour', or how long a restart may take, at most; a batch has none"
        )
    properties = col("properties")
    names = (SPARK_QUERY, SPARK_BATCH, SPARK_TASK, SPARK_ROW)
    said = [coalesce(properties[name], lit("")) for name in names]
    # A log that became shorter uses offsets again for other messages, which have a later store time.
    place = [*_PLACE, *(["store_time"] if "store_time" in frame.columns else [])]
    stamp = when(
        properties[SPARK_ROW].isNotNull(), concat_ws("/", lit("row"), col("topic"), *said)
    ).otherwise(concat_ws("/", lit("place"), *[col(name).cast("string") for name in place]))
    stamped = frame.withColumn(_STAMP, stamp)
    if within is None:
        return stamped.dropDuplicates([_STAMP]).drop(_STAMP)
    marked = stamped.withWatermark("store_time", within)
    return marked.dropDuplicatesWithinWatermark([_STAMP]).drop(_STAMP)
