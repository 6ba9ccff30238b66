"""Converts rows to record batches for PySpark 4.0, whose streaming writers get rows; later versions pass batches."""

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from pyspark.sql import datasource
from pyspark.sql.conversion import LocalDataToArrowConversion
from pyspark.sql.types import Row, StructType

GETS_RECORD_BATCHES: Final = hasattr(datasource, "DataSourceStreamArrowWriter")
"""Whether streaming writers get record batches, as batch writers do in every version."""
STREAM_WRITER: Final[type] = getattr(
    datasource, "DataSourceStreamArrowWriter", datasource.DataSourceStreamWriter
)
"""The base class of streaming writers."""
ROWS: Final = 8192
"""The largest number of rows in a record batch that is made here."""


def record_batches(rows: Iterator[Row], schema: StructType) -> Iterator[Any]:
    """Yield the rows of a task as record batches of at most `ROWS` rows."""
    while some := list(islice(rows, ROWS)):
        table = LocalDataToArrowConversion.convert(some, schema, use_large_var_types=False)
        yield from table.to_batches()
