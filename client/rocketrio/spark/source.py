"""`RocketMQDataSource`: the class that Spark calls for `spark.read.format("rocketmq")`.

    (spark.read.format("rocketmq")
        .option("nameServer", "10.0.0.1:9876")
        .option("subscribe", "orders")
        .option("columns", "queue_offset,body")
        .load())

Every part is created on the driver, refuses wrong options there, and does no I/O before it is used.
"""

from typing import Final
from uuid import uuid4

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from rocketrio.spark.errors import OptionError
from rocketrio.spark.options import STREAMING_READ, WRITE, known_texts
from rocketrio.spark.reading.options import READ_OPTIONS, ReadOptions, parse_read_options
from rocketrio.spark.reading.reader import RocketMQBatchReader
from rocketrio.spark.reading.schema import table_schema
from rocketrio.spark.streaming.options import STREAM_OPTIONS, StreamOptions, parse_stream_options
from rocketrio.spark.streaming.reader import RocketMQStreamReader
from rocketrio.spark.writing.options import WRITE_OPTIONS, parse_write_options

FORMAT_NAME = "rocketmq"

_OF_WRITES: Final = {name: WRITE for name in WRITE_OPTIONS if name not in READ_OPTIONS}
_OF_OTHER_USES: Final = {**_OF_WRITES, **dict.fromkeys(STREAM_OPTIONS, STREAMING_READ)}


class RocketMQDataSource(DataSource):
    """RocketMQ topics as DataFrames; see docs/spark.md for every option."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`."""
        return FORMAT_NAME

    def _read_options(self) -> ReadOptions:
        return parse_read_options(dict(self.options), other_options=_OF_OTHER_USES)

    def _stream_options(self) -> StreamOptions:
        return parse_stream_options(dict(self.options), other_options=_OF_WRITES)

    def schema(self) -> StructType:
        """Return the columns of a read if the user gave no schema. Raises OptionError."""
        # Spark does not say whether a batch or a stream follows; each reader refuses the options of the other.
        known_texts(
            dict(self.options),
            known=(*READ_OPTIONS, *STREAM_OPTIONS),
            what="a read (spark.read, spark.readStream)",
            other_options=_OF_WRITES,
        )
        streams = {name.lower() for name in STREAM_OPTIONS}
        if streams & {name.lower() for name in self.options}:
            return table_schema(self._stream_options().read)
        return table_schema(self._read_options())

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a batch reader of those columns. Raises OptionError."""
        options = self._read_options()
        if not options.filter_pushdown:
            return RocketMQBatchReader(options, schema)
        try:
            from rocketrio.spark.reading.pushdown import PushdownReader
        except ImportError as error:
            raise OptionError("filterPushdown=true needs PySpark 4.1") from error
        return PushdownReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return a reader that reads those columns of new messages as they arrive. Raises OptionError."""
        return RocketMQStreamReader(self._stream_options(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer of a DataFrame with that schema. Raises OptionError, SchemaError."""
        from rocketrio.spark.writing.writer import RocketMQWriter

        if overwrite:
            raise OptionError(
                "mode overwrite: a topic's messages cannot be replaced; give .mode('append')"
            )
        options = parse_write_options(dict(self.options), is_streaming=False)
        return RocketMQWriter(options, schema, job_id=uuid4().hex)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return a writer of a stream's micro-batches. Raises OptionError, SchemaError."""
        from rocketrio.spark.writing.writer import RocketMQStreamWriter

        if overwrite:
            raise OptionError(
                "outputMode complete: a topic's messages cannot be replaced by those of each trigger; give"
                " outputMode('append'), with a watermark for aggregates, or write batches of outputMode('update')"
                " in foreachBatch"
            )
        return RocketMQStreamWriter(
            parse_write_options(dict(self.options), is_streaming=True), schema
        )
