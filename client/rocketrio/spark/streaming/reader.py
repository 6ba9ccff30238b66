"""The stream reader: it passes Spark's calls about a stream to the loop of this process, and reads in tasks.

Offsets go to Spark as dicts that are always built in the same order, because Spark compares them as text. Tasks read as
those of a batch do (`reader`).

Invariant: a reader holds plain values and no connection: it is pickled and sent to executors.
Invariant: a start is never guessed (`CallOrder`).
Unlike the Python API's example: nothing relies on `stop`, which Spark calls rarely; the driver process may be killed.
"""

import enum
from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

import attrs
import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from rocketrio.client import ClientInstance
from rocketrio.spark.errors import OptionError
from rocketrio.spark.option_kinds import shown
from rocketrio.spark.reading.offsets import (
    MAX_OFFSET,
    OffsetTable,
    QueueRange,
    format_offsets,
    parse_more,
    parse_offset_table,
)
from rocketrio.spark.reading.options import ReadOptions
from rocketrio.spark.reading.planning import cold_starts, partitioned, read_task
from rocketrio.spark.reading.reader import RocketMQBatchReader
from rocketrio.spark.runtime import process_runtime
from rocketrio.spark.streaming.driver import Limit, StreamDriver
from rocketrio.spark.streaming.options import StreamOptions
from rocketrio_protocol.message import MessageQueue

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # PySpark 4.0 and 4.1
    HAS_LIMITS = False
    _Ends: Any = object
else:
    HAS_LIMITS = True
    _Ends = SupportsTriggerAvailableNow

INCARNATIONS: Final = "incarnations"
"""The table of a checkpoint that says which of several topics of one name was read (docs/decisions/0068)."""
RETIRED: Final = "retired"
"""The table of a checkpoint with the queues that were let go because their brokers are out of service."""
POLL_TIMEOUT: Final = 60.0
"""Seconds for one call of Spark's, in addition to waits that the options set; the requests in it have limits of their
own, whose sum is less."""


class RocketMQStreamReader(DataSourceStreamReader, _Ends):  # type: ignore[misc]  # object on PySpark 4.0
    """Reads new messages of topics, batch after batch."""

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        if not HAS_LIMITS and options.is_limited:
            raise OptionError(
                "maxOffsetsPerTrigger, maxBytesPerTrigger and minOffsetsPerTrigger need PySpark 4.2;"
                " older ones do not say from where a batch is to be limited"
            )
        self._options = options
        self._reader = RocketMQBatchReader(options.read, schema)
        self._driver: StreamDriver | None = None
        self._last: dict[str, Any] | None = None
        self._order = CallOrder()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_driver": None, "_last": None, "_order": CallOrder()}

    # ------------------------------------------------------------------------------------ positions

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where a new query starts. Raises SparkSourceError."""
        self._order.asked_for_start()
        return self._initial()

    def _initial(self) -> dict[str, Any]:
        start = self._ask(StreamDriver.initial, extra_timeout=self._options.failure_timeout)
        return self._returned(self._value(start))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read what exists now, then end. Raises BrokerUnreachableError."""
        self._ask(StreamDriver.set_target, extra_timeout=self._options.failure_timeout)

    def getDefaultReadLimit(self) -> "ReadLimit":  # noqa: N802
        """Return how much a batch may read. Never ReadAllAvailable: that is what Spark passes for Trigger.Once."""
        options = self._options
        if options.max_rows is None and options.max_size is not None:
            return ReadMaxBytes(options.max_size)
        return ReadMaxRows(MAX_OFFSET if options.max_rows is None else options.max_rows)

    def latestOffset(self, *args: Any) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next batch after `start`, within `limit`; PySpark 4.0 and 4.1 pass neither.

        It is the same as `start` if there is nothing new. Raises SparkSourceError for a loss or a long outage.
        """
        start, limit = args if args else (self._unsaid_start(), None)
        table = _table(start)
        self._state().continue_in(_more(start, INCARNATIONS))
        self._state().continue_without(_more(start, RETIRED))
        extra_timeout = self._options.poll_interval
        end = self._ask(StreamDriver.latest, table, self._limit(limit), extra_timeout=extra_timeout)
        if end == table and self._state().let_go(end) == _more(start, RETIRED):
            return self._returned(start)
        return self._returned(self._value(end))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the ends of the queues, for the progress of the query."""
        if self._last is None:
            return None
        return _value(self._state().newest(_table(self._last)))

    def commit(self, end: dict[str, Any]) -> None:
        """Note that Spark has finished everything up to `end`."""
        self._ask(StreamDriver.finished, _table(end))

    # ------------------------------------------------------------------------------------- batches

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of one batch, none for an empty one. Raises SparkSourceError."""
        self._order.planned()
        self._returned(end)
        first, last = _table(start), _table(end)
        before, now = _more(start, INCARNATIONS), _more(end, INCARNATIONS)
        begun_again = {queue for queue in before.keys() & now.keys() if before[queue] < now[queue]}
        ranges = self._state().ranges(first, last, begun_again)
        if ranges and now:
            extra_timeout = self._options.poll_interval
            lost = self._ask(StreamDriver.created_again, first, now, extra_timeout=extra_timeout)
            ranges = [part for part in ranges if part.queue not in lost]
        if not ranges:
            return []
        read = self._options.read
        queues = [part.queue for part in ranges]
        extra_timeout = self._options.failure_timeout
        addresses = self._ask(StreamDriver.addresses, queues, extra_timeout=extra_timeout)
        topics = tuple(dict.fromkeys(part.topic for part in ranges))
        firsts = {}
        if read.schema_mode == "kafka":
            firsts = self._ask(StreamDriver.first_partitions, topics)
        planned = partitioned(ranges, read)
        cold = self._ask(_cold_starts, planned, read)
        return [
            InputPartition(read_task(parts, addresses, cold, firsts).to_value())
            for parts in planned
        ]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Return the rows of one task, on an executor. Raises SparkSourceError."""
        return self._reader.read(partition)

    # -------------------------------------------------------------------------------------- inside

    def _state(self) -> StreamDriver:
        if self._driver is None:
            self._driver = StreamDriver(self._options)
        return self._driver

    def _ask(self, question: Any, *args: Any, extra_timeout: float = 0.0) -> Any:
        driver = self._state()
        runtime = process_runtime()

        async def ask() -> Any:
            read = self._options.read
            client = await runtime.client(read.name_servers, read.access)
            return await question(driver, client, *args)

        return runtime.call(ask, timeout=POLL_TIMEOUT + extra_timeout)

    def _unsaid_start(self) -> dict[str, Any]:
        is_fresh = self._order.asked_for_end()
        start = self._initial() if is_fresh else self._last
        assert start is not None, "an end was returned, or a batch planned"
        return start

    def _limit(self, limit: Any) -> Limit:
        options = self._options
        # Older versions pass no limit; a batch there may be the only one (Trigger.Once, AvailableNow).
        if limit is None or isinstance(limit, ReadAllAvailable):
            return Limit(is_only_batch=True, is_surely_last=limit is not None)
        max_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return Limit(max_rows, options.max_size)

    def _value(self, table: OffsetTable) -> dict[str, Any]:
        """Return an offset for the checkpoint, with what its next reader must know of it."""
        driver = self._state()
        return _value(
            table, **{INCARNATIONS: driver.incarnations(table), RETIRED: driver.let_go(table)}
        )

    def _returned(self, value: dict[str, Any]) -> dict[str, Any]:
        self._last = value
        return value


def _table(value: dict[str, Any]) -> dict[MessageQueue, int]:
    text = msgspec.json.encode(value).decode()
    try:
        table = parse_offset_table(text, option="it")
    except OptionError as error:
        raise _unreadable(text) from error
    # Words like `latest` (negative offsets) are resolved before an offset is passed to Spark.
    if any(at < 0 for at in table.values()):
        raise _unreadable(text)
    return table


def _more(value: dict[str, Any], name: str) -> dict[MessageQueue, int]:
    try:
        return parse_more(value, name, option="it")
    except OptionError as error:
        raise _unreadable(msgspec.json.encode(value).decode()) from error


def _unreadable(text: str) -> OptionError:
    return OptionError(
        f"the checkpoint has an offset that cannot be read: {shown(text)}",
        remedy="Another source or another release wrote it, or it was changed: give the query a new checkpointLocation,"
        " and say by startingOffsets where it begins",
    )


def _value(table: OffsetTable, **more: OffsetTable) -> dict[str, Any]:
    value: dict[str, Any] = msgspec.json.decode(format_offsets(table, **more))
    return value


async def _cold_starts(
    driver: StreamDriver, client: ClientInstance, planned: list[list[QueueRange]], read: ReadOptions
) -> dict[QueueRange, int]:
    """Return the ranges that a stream far behind reads from a slave; for small batches no broker is asked."""
    return await cold_starts(client, chain.from_iterable(planned), read)


class _Stage(enum.Enum):
    NEW = "asked nothing"
    END_ASKED = "asked for an end, as by a fresh query"
    START_ASKED = "then for the start of its batch 0"
    RUNNING = "batches were planned"


@attrs.define
class CallOrder:
    """The calls that one reader has received; they show where a batch starts, which PySpark 4.0 and 4.1 do not pass.

        fresh query           latestOffset, initialOffset, partitions(start, end)
        restart               partitions(end, end), latestOffset, partitions(end, next)
        batch 0 once more     partitions(end, end), initialOffset, partitions(start, end)

    So if latestOffset is the first call on a reader, the query is fresh and batch 0 starts where the options say; after
    that a batch starts where the previous one ended. With `spark.sql.streaming.triggerAvailableNowWrapper.enabled`
    these versions ask for the end first, after a restart too; the call that follows shows this, and is refused.
    """

    _stage: _Stage = _Stage.NEW

    def asked_for_end(self) -> bool:
        """Return True if a fresh query asks, which has no start yet. Raises OptionError if Spark's wrapper asks."""
        if self._stage in (_Stage.END_ASKED, _Stage.START_ASKED):
            raise _wrapped()
        if self._stage is _Stage.NEW:
            self._stage = _Stage.END_ASKED
        return self._stage is _Stage.END_ASKED

    def asked_for_start(self) -> None:
        """Note that Spark asked where the query starts."""
        if self._stage is _Stage.END_ASKED:
            self._stage = _Stage.START_ASKED

    def planned(self) -> None:
        """Note that Spark plans a batch. Raises OptionError for calls of Spark's wrapper."""
        if self._stage is _Stage.END_ASKED:
            raise _wrapped()
        self._stage = _Stage.RUNNING


def _wrapped() -> OptionError:
    return OptionError(
        "spark.sql.streaming.triggerAvailableNowWrapper.enabled=true makes this PySpark ask how far to read before it"
        " says from where; Trigger.AvailableNow in several batches needs PySpark 4.2. Unset it: AvailableNow is then"
        " one batch with everything"
    )
