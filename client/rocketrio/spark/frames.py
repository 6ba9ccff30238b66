"""`from_rocketmq` and `stream_from_rocketmq`: topics as a DataFrame, by one call that type checkers understand.

They are equivalent to `spark.read.format("rocketmq")`, with arguments instead of string options. They refuse wrong
values at once and in Python, where Spark would report them later from inside the JVM.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Unpack

from rocketrio.spark.errors import OptionError
from rocketrio.spark.registration import check_workers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from rocketrio.spark.arguments import BatchArguments, StreamArguments
    from rocketrio.spark.reading.options import ReadOptions

_FORMAT: Final = "rocketmq"


def from_rocketmq(
    spark: "SparkSession",
    topics: str | Sequence[str] | None = None,
    *,
    schema: "StructType | str | None" = None,
    **arguments: "Unpack[BatchArguments]",
) -> "DataFrame":
    """Return the messages of topics as a DataFrame.

        from_rocketmq(spark, "orders", name_servers="10.0.0.1:9876", columns=["tags", "body"])

    `topics` is one or several names; give `subscribe_pattern` or `assign` instead to choose topics by pattern, or
    queues. `schema` chooses columns as `DataFrameReader.schema` does, `columns` chooses them by name alone. The other
    arguments are the options of docs/spark.md in snake_case, with Python's values: lists, mappings, datetimes (with a
    zone), booleans. Options whose names end in `Ms` are in seconds here, and their names have no `ms`. None means the
    default.

    Nothing is read and no broker is asked before an action needs rows. Spark plans a frame once: every later action
    reads the same offsets, so call this function again to see newer messages.

    Raises OptionError that names the argument for a value that is not valid, TypeError for an unknown argument, and
    ConfigError if workers on this machine run a Python without this package.
    """
    from rocketrio.spark.options import STREAMING_READ
    from rocketrio.spark.reading.options import parse_read_options
    from rocketrio.spark.streaming.options import STREAM_OPTIONS

    parse = partial(parse_read_options, other_options=dict.fromkeys(STREAM_OPTIONS, STREAMING_READ))
    frame = _frame(spark, spark.read, schema, {"topics": topics, **arguments}, parse)
    return _pushing(frame) if arguments.get("filter_pushdown") else frame


def stream_from_rocketmq(
    spark: "SparkSession",
    topics: str | Sequence[str] | None = None,
    *,
    schema: "StructType | str | None" = None,
    **arguments: "Unpack[StreamArguments]",
) -> "DataFrame":
    """Return new messages of topics as a streaming DataFrame; the arguments are as for `from_rocketmq`.

        orders = stream_from_rocketmq(spark, "orders", starting_offsets="earliest", consumer_group="board")
        orders.writeStream.format("console").start()

    `starting_offsets` (by default `latest`) applies only to the first start of a query. After that the query continues
    from its checkpoint.

    Raises as `from_rocketmq` does.
    """
    from rocketrio.spark.streaming.options import parse_stream_options

    given = {"topics": topics, **arguments}
    return _frame(
        spark, spark.readStream, schema, given, lambda texts: parse_stream_options(texts).read
    )


def _frame(
    spark: "SparkSession",
    reader: Any,
    schema: "StructType | str | None",
    arguments: Mapping[str, object],
    parse: Callable[[Mapping[str, str]], "ReadOptions"],
) -> "DataFrame":
    from rocketrio.cluster.variables import NAME_SERVERS_VARIABLE
    from rocketrio.spark.arguments import option_texts

    options = option_texts(arguments)
    if "nameServer" not in options and os.environ.get(NAME_SERVERS_VARIABLE):
        # The setting of this process; Spark's own processes may have another environment.
        options["nameServer"] = os.environ[NAME_SERVERS_VARIABLE]
    _check(options, parse, has_schema=schema is not None)
    check_workers(spark)
    reader = reader.format(_FORMAT).options(**options)
    frame: DataFrame = (reader if schema is None else reader.schema(schema)).load()
    return frame


def _pushing(frame: "DataFrame") -> "DataFrame":
    """Give each query on `frame` a condition that Spark pushes, so that it gets its own plan; rows stay the same."""
    try:
        from rocketrio.spark.reading.pushdown import ALWAYS_TRUE
    except ImportError:
        return frame  # PySpark 4.0 cannot push conditions, and the first action reports it.
    offset = next(
        (name for name in frame.columns if name.lower() in ("queue_offset", "offset")), None
    )
    if offset is None:
        raise OptionError(
            "filter_pushdown=True needs the column queue_offset (of schema_mode='kafka' also offset) among those read"
        )
    return frame.where(ALWAYS_TRUE.format(offset=offset))


def _check(
    options: Mapping[str, str],
    parse: Callable[[Mapping[str, str]], "ReadOptions"],
    *,
    has_schema: bool,
) -> None:
    """Raise the parser's OptionError with the names of arguments in place of the names of options."""
    from rocketrio.spark.arguments import with_arguments
    from rocketrio.spark.reading.schema import table_schema

    try:
        parsed = parse(options)
        if not has_schema:
            table_schema(parsed)
    except OptionError as error:
        raise OptionError(with_arguments(error.what)) from None
