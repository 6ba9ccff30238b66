"""Where Spark finds the format `rocketmq` by itself: it imports every module whose name begins with `pyspark_`.

Only Spark is imported here, and nothing that may fail: an error would break the look-up of every Python
source. The class is made inside a function, so that Spark ships its code to workers instead of its name:
a worker whose interpreter lacks rocketrio can then say so.
"""

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType


def _make() -> type[DataSource]:
    def package() -> Any:
        import sys

        try:
            from rocketrio.spark import source
        except ImportError as error:
            raise ImportError(
                f"this Python worker runs {sys.executable}, which cannot use rocketrio ({error});"
                " PYSPARK_PYTHON must name the interpreter that has rocketrio[spark], on every machine"
            ) from error
        return source

    class Reader(DataSourceReader):
        """Makes the real reader where it is used."""

        def __init__(self, options: dict[str, str], schema: StructType) -> None:
            self.options = options
            self.table_schema = schema

        def _reader(self) -> Any:
            return package().RocketMQDataSource(self.options).reader(self.table_schema)

        def partitions(self) -> list[InputPartition]:
            partitions: list[InputPartition] = self._reader().partitions()
            return partitions

        def read(self, partition: InputPartition) -> Iterator[Any]:
            rows: Iterator[Any] = self._reader().read(partition)
            return rows

    class DefaultSource(DataSource):
        """The format `rocketmq`; rocketrio.spark.source.RocketMQDataSource does the work."""

        @classmethod
        def name(cls) -> str:
            return "rocketmq"

        def _source(self) -> Any:
            return package().RocketMQDataSource(dict(self.options))

        def schema(self) -> StructType:
            schema: StructType = self._source().schema()
            return schema

        def reader(self, schema: StructType) -> DataSourceReader:
            self._source().reader(schema)  # refuses wrong options and schemas while planning
            return Reader(dict(self.options), schema)

        def writer(self, schema: StructType, overwrite: bool) -> Any:
            return self._source().writer(schema, overwrite)

        def streamReader(self, schema: StructType) -> Any:  # noqa: N802 - Spark's name
            return self._source().streamReader(schema)

        def simpleStreamReader(self, schema: StructType) -> Any:  # noqa: N802
            return self._source().simpleStreamReader(schema)

        def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802
            return self._source().streamWriter(schema, overwrite)

    return DefaultSource


DefaultSource = _make()
