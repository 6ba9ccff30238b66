"""The writer that Spark calls for a stream: like that of a batch, but called for each micro-batch.

Answers to: KafkaStreamingWrite.
"""

from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from rocketrio.spark.writing.older_spark import (
    GETS_RECORD_BATCHES,
    STREAM_WRITER,
    record_batches,
)
from rocketrio.spark.writing.options import WriteOptions
from rocketrio.spark.writing.schema import write_columns
from rocketrio.spark.writing.stamps import TaskStamp
from rocketrio.spark.writing.writer import (
    BATCH_ID,
    TaskWritten,
    log_abort,
    log_commit,
    task_context,
    write_rows,
)

_QUERY_ID: Final = "sql.streaming.queryId"


class RocketMQStreamWriter(STREAM_WRITER):  # type: ignore[misc]  # a class of PySpark's
    """Writes the micro-batches of a streaming query; Spark creates a new one for each."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._columns = write_columns(schema, options)

    def write(self, iterator: Iterator[Any]) -> TaskWritten:
        """Send the rows of one task; they are stored when this returns. Raises SparkSourceError."""
        task = task_context()
        query, batch = task.getLocalProperty(_QUERY_ID), task.getLocalProperty(BATCH_ID)
        assert query is not None, "Spark tells each task of a stream its query"
        assert batch is not None, "and its batch"
        stamp = TaskStamp(query, batch, task.partitionId())
        batches = iterator if GETS_RECORD_BATCHES else record_batches(iterator, self._schema)
        return write_rows(batches, self._options, self._columns, stamp)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Log what was written."""
        log_commit(messages, what=f"micro-batch {batchId}")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Log what was sent before the failure; it stays stored."""
        log_abort(messages, what=f"micro-batch {batchId}")
