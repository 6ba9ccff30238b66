"""The writers of a batch and of a stream, which Spark calls: `write` in a task, `commit` or `abort` on the driver.

`write` waits for every acknowledgement, so committed rows are stored. Messages of a failed or repeated task stay: rows
are written at least once. With `dedupProperties=true` readers can drop repeated rows.

Invariant: wrong options and columns are refused when a writer is created, on the driver; it does no I/O before `write`.
Answers to: KafkaBatchWrite, KafkaStreamingWrite.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import Any, Final

import attrs
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import Row, StructType

from rocketrio.spark.runtime import process_runtime
from rocketrio.spark.writing.options import WriteOptions
from rocketrio.spark.writing.rows import RowEncoder
from rocketrio.spark.writing.schema import WriteColumns, write_columns
from rocketrio.spark.writing.sending import Sender
from rocketrio.spark.writing.stamps import TaskStamp
from rocketrio.spark.writing.written import Written

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
"""The local property of a streaming query's tasks that names their micro-batch."""

_GETS_RECORD_BATCHES: Final = hasattr(datasource, "DataSourceStreamArrowWriter")
"""Whether streaming writers get record batches, as batch writers do in every version."""
STREAM_WRITER: Final[type] = getattr(
    datasource, "DataSourceStreamArrowWriter", datasource.DataSourceStreamWriter
)
"""The base class of streaming writers."""
ROWS: Final = 8192
"""The largest number of rows in a record batch that is made here."""

logger = logging.getLogger("rocketrio.spark.write")


@attrs.frozen
class TaskWritten(WriterCommitMessage):
    """What one task reports to the driver."""

    task_id: int
    written: Written


class RocketMQWriter(DataSourceArrowWriter):
    """Writes one batch."""

    def __init__(self, options: WriteOptions, schema: StructType, *, job_id: str) -> None:
        self._options = options
        self._columns = write_columns(schema, options)
        self._job_id = options.stamp_id or job_id

    def write(self, iterator: Iterator[Any]) -> TaskWritten:
        """Send the rows of one task; they are stored when this returns. Raises SparkSourceError."""
        task = task_context()
        batch = ""
        # Within foreachBatch, each micro-batch has its own row numbers.
        if self._options.stamp_id is not None:
            batch = task.getLocalProperty(_BATCH_ID) or ""
        stamp = TaskStamp(self._job_id, batch, task.partitionId())
        return write_rows(iterator, self._options, self._columns, stamp)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log what was written."""
        log_commit(messages, what="batch")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log what was sent before the failure; it stays stored."""
        log_abort(messages, what="batch")


class RocketMQStreamWriter(STREAM_WRITER):  # type: ignore[misc]  # a class of PySpark's
    """Writes the micro-batches of a streaming query; Spark creates a new one for each."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._columns = write_columns(schema, options)

    def write(self, iterator: Iterator[Any]) -> TaskWritten:
        """Send the rows of one task; they are stored when this returns. Raises SparkSourceError."""
        task = task_context()
        query, batch = task.getLocalProperty(_QUERY_ID), task.getLocalProperty(_BATCH_ID)
        assert query is not None, "Spark tells each task of a stream its query"
        assert batch is not None, "and its batch"
        stamp = TaskStamp(query, batch, task.partitionId())
        batches = iterator if _GETS_RECORD_BATCHES else record_batches(iterator, self._schema)
        return write_rows(batches, self._options, self._columns, stamp)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Log what was written."""
        log_commit(messages, what=f"micro-batch {batchId}")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Log what was sent before the failure; it stays stored."""
        log_abort(messages, what=f"micro-batch {batchId}")


def task_context() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "Spark writes in tasks"
    return task


def write_rows(
    batches: Iterator[Any], options: WriteOptions, columns: WriteColumns, stamp: TaskStamp
) -> TaskWritten:
    """Encode record batches in this thread while the loop sends the previous ones."""
    runtime = process_runtime()
    sender = Sender(runtime.client, options)
    encoder: RowEncoder | None = None
    with closing(runtime.blocks(sender.run)) as wishes:
        for wanted in wishes:
            if encoder is None:
                encoder = RowEncoder(
                    columns,
                    options,
                    wanted.unique_ids,
                    stamp.task,
                    stamp if options.stamps_rows else None,
                )
            batch = next(batches, None)
            if batch is None:
                wanted.end()
            else:
                wanted.give(encoder.encode(batch))
    return TaskWritten(stamp.task, sender.written)


def log_commit(messages: Sequence[WriterCommitMessage | None], *, what: str) -> Written:
    """Log the totals, as a warning if some rows are stored less safely than the brokers' settings ask."""
    total, _ = _totals(messages)
    level = logging.WARNING if total.unsafe_rows else logging.INFO
    logger.log(level, "written what=%s tasks=%d totals=%s", what, len(messages), total)
    return total


def log_abort(messages: Sequence[WriterCommitMessage | None], *, what: str) -> Written:
    """Log what is known to have been sent, which cannot be undone."""
    total, failed = _totals(messages)
    logger.warning(
        "aborted, what was sent stays what=%s unknown_tasks=%d finished_tasks=%d totals=%s",
        what, failed, len(messages) - failed, total,
    )  # fmt: skip
    return total


def _totals(messages: Sequence[WriterCommitMessage | None]) -> tuple[Written, int]:
    total, failed = Written(), 0
    for message in messages:
        if isinstance(message, TaskWritten):
            total.merge(message.written)
        else:
            failed += 1
    return total, failed


def record_batches(rows: Iterator[Row], schema: StructType) -> Iterator[Any]:
    """Yield the rows of a task as record batches of at most `ROWS` rows, for PySpark 4.0."""
    from pyspark.sql.conversion import LocalDataToArrowConversion

    while some := list(islice(rows, ROWS)):
        table = LocalDataToArrowConversion.convert(some, schema, use_large_var_types=False)
        yield from table.to_batches()
