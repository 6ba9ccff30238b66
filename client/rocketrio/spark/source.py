"""`RocketMQDataSource`: what Spark calls for `spark.read.format("rocketmq")`.

    (spark.read.format("rocketmq")
        .option("nameServer", "10.0.0.1:9876")
        .option("subscribe", "orders")
        .option("columns", "queueOffset,body")
        .load())

Reading as a stream and writing are refused the way Spark expects of a source that cannot do them.
"""

from typing import NoReturn

from pyspark.errors import PySparkNotImplementedError
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    SimpleDataSourceStreamReader,
)
from pyspark.sql.types import StructType

from rocketrio.spark.options import ReadOptions, parse_read_options
from rocketrio.spark.reader import RocketMQBatchReader
from rocketrio.spark.schema import table_schema

FORMAT_NAME = "rocketmq"


class RocketMQDataSource(DataSource):
    """RocketMQ topics as DataFrames; see docs/spark.md for every option."""

    @classmethod
    def name(cls) -> str:
        """What `format(...)` is given."""
        return FORMAT_NAME

    def _read_options(self) -> ReadOptions:
        return parse_read_options(dict(self.options))

    def schema(self) -> StructType:
        """The columns of a read for which the user gave no schema. Raises OptionError."""
        return table_schema(self._read_options())

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch reader of those columns. Raises OptionError."""
        return RocketMQBatchReader(self._read_options(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        _refuse("writing to rocketmq from Spark; send with rocketrio.open_producer")

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        _refuse(f"readStream of {_BATCH_ONLY}")

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:  # noqa: N802
        _refuse(f"readStream of {_BATCH_ONLY}")

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        _refuse("writeStream to rocketmq; send with rocketrio.open_producer")


_BATCH_ONLY = (
    "rocketmq; this version reads batches (spark.read, with startingOffsets and endingOffsets)"
)


def _refuse(feature: str) -> NoReturn:
    raise PySparkNotImplementedError(
        errorClass="NOT_IMPLEMENTED", messageParameters={"feature": feature}
    )
