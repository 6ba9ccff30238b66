"""Makes the format `rocketmq` known to Spark automatically: Spark imports every module named `pyspark_...`.

Only Spark is imported here, and nothing that may fail: an error would break the look-up of every Python source. The
class is made inside a function, so that Spark ships its code to workers instead of its name: a worker whose
interpreter lacks rocketrio can then report that.
"""

import pickle
import uuid
from collections.abc import Iterator
from typing import Any

from pyspark.sql import datasource
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType


def _ending() -> tuple[type, ...]:
    """Return the base class that declares support of Trigger.AvailableNow; PySpark has it since 4.2."""
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:
        return ()
    return (SupportsTriggerAvailableNow,)


def _stream_writer() -> type:
    """Return the base class of a writer that takes record batches, or rows in PySpark before 4.1."""
    base: type = getattr(
        datasource, "DataSourceStreamArrowWriter", datasource.DataSourceStreamWriter
    )
    return base


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
        """Creates the real reader in the process that uses it."""

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

    class PushdownReader(Reader):
        """The same for filterPushdown=true; Spark allows `pushFilters` in no other reader."""

        load_id: str | None = None
        pushed: dict[str, Any] | None = None

        def _reader(self) -> Any:
            reader = super()._reader()
            reader.load_id = self.load_id
            if self.pushed is not None:
                reader.narrow(self.pushed)
            return reader

        def pushFilters(self, filters: list[Any]) -> Any:  # noqa: N802 - Spark's name
            reader = self._reader()
            left = list(reader.pushFilters(filters))
            self.pushed = reader.pushed()
            return left

    class StreamReader(DataSourceStreamReader, *_ending()):  # type: ignore[misc]  # of PySpark 4.2
        """Creates the real stream reader in the process that uses it, once for each process."""

        def __init__(self, options: dict[str, str], schema: StructType) -> None:
            self.options = options
            self.table_schema = schema
            self.real: Any = None

        def __getstate__(self) -> dict[str, Any]:
            return {**self.__dict__, "real": None}

        def _reader(self) -> Any:
            if self.real is None:
                self.real = (
                    package().RocketMQDataSource(self.options).streamReader(self.table_schema)
                )
            return self.real

        def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
            offset: dict[str, Any] = self._reader().initialOffset()
            return offset

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            self._reader().prepareForTriggerAvailableNow()

        def getDefaultReadLimit(self) -> Any:  # noqa: N802
            return self._reader().getDefaultReadLimit()

        def latestOffset(self, *args: Any) -> dict[str, Any]:  # noqa: N802
            offset: dict[str, Any] = self._reader().latestOffset(*args)
            return offset

        def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
            offset: dict[str, Any] | None = self._reader().reportLatestOffset()
            return offset

        def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
            partitions: list[InputPartition] = self._reader().partitions(start, end)
            return partitions

        def read(self, partition: InputPartition) -> Iterator[Any]:
            rows: Iterator[Any] = self._reader().read(partition)
            return rows

        def commit(self, end: dict[str, Any]) -> None:
            self._reader().commit(end)

    class Packed:
        """A pickled writer, which only a worker that has the package unpickles."""

        def __init__(self, writer: Any) -> None:
            self.packed = pickle.dumps(writer)

        def _writer(self) -> Any:
            package()
            return pickle.loads(self.packed)

        def write(self, iterator: Iterator[Any]) -> Any:
            return self._writer().write(iterator)

        def commit(self, messages: list[Any], *batch_id: int) -> None:
            self._writer().commit(messages, *batch_id)

        def abort(self, messages: list[Any], *batch_id: int) -> None:
            self._writer().abort(messages, *batch_id)

    class Writer(Packed, DataSourceArrowWriter):
        """Creates the real writer in the process that uses it."""

    class StreamWriter(Packed, _stream_writer()):  # type: ignore[misc]  # a class of PySpark's
        """The same for streams."""

    class DefaultSource(DataSource):
        """The format `rocketmq`; rocketrio.spark.source.RocketMQDataSource does the work."""

        @classmethod
        def name(cls) -> str:
            return "rocketmq"

        def __init__(self, options: dict[str, str]) -> None:
            super().__init__(options)
            self.load_id = uuid.uuid4().hex  # Spark makes one of these for each `load()`.

        def _source(self) -> Any:
            return package().RocketMQDataSource(dict(self.options))

        def schema(self) -> StructType:
            schema: StructType = self._source().schema()
            return schema

        def reader(self, schema: StructType) -> DataSourceReader:
            real = self._source().reader(schema)  # refuses wrong options and schemas while planning
            if not hasattr(real, "narrow"):
                return Reader(dict(self.options), schema)
            reader = PushdownReader(dict(self.options), schema)
            reader.load_id = self.load_id
            return reader

        def writer(self, schema: StructType, overwrite: bool) -> Any:
            return Writer(self._source().writer(schema, overwrite))

        def streamReader(self, schema: StructType) -> Any:  # noqa: N802 - Spark's name
            self._source().streamReader(schema)  # refuses wrong options and schemas at the start
            return StreamReader(dict(self.options), schema)

        def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802
            return StreamWriter(self._source().streamWriter(schema, overwrite))

    return DefaultSource


DefaultSource = _make()
