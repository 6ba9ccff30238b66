"""The columns of the source: their names and types in Spark, and which of the protocol's columns they are.

Both ways to choose columns, the option `columns` and a schema given by the user, mean: decode and send
only these, in this order. Spark itself never prunes columns of a Python source.
"""

from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rocketrio.spark.errors import OptionError
from rocketrio.spark.option_values import suggestion
from rocketrio.spark.options import ReadOptions

BROKER_NAME: Final = "brokerName"
QUEUE_OFFSET: Final = "queueOffset"

_COLUMNS: Final[dict[str, tuple[DataType, str]]] = {
    "topic": (StringType(), "topic"),
    BROKER_NAME: (StringType(), ""),  # no record knows its broker; the reader adds it
    "queueId": (IntegerType(), "queue_id"),
    QUEUE_OFFSET: (LongType(), "queue_offset"),
    "keys": (StringType(), "keys"),
    "tags": (StringType(), "tags"),
    "body": (BinaryType(), "body"),
    "bornTimestamp": (TimestampType(), "born_timestamp"),
    "storeTimestamp": (TimestampType(), "store_timestamp"),
    "properties": (MapType(StringType(), StringType()), "properties"),
    # From here on only when asked for.
    "messageId": (StringType(), "message_id"),
    "uniqueKey": (StringType(), "unique_key"),
    "offsetMessageId": (StringType(), "offset_message_id"),
    "flag": (IntegerType(), "flag"),
    "sysFlag": (IntegerType(), "sys_flag"),
    "reconsumeTimes": (IntegerType(), "reconsume_times"),
    "physicalOffset": (LongType(), "physical_offset"),
    "preparedTransactionOffset": (LongType(), "prepared_transaction_offset"),
    "bornHost": (StringType(), "born_host"),
    "storeHost": (StringType(), "store_host"),
    "bodyCrc": (IntegerType(), "body_crc"),
    "storeSize": (IntegerType(), "store_size"),
}
_DEFAULT_COUNT: Final = 10
_MAY_BE_NULL: Final = ("keys", "tags", "uniqueKey", "bornTimestamp", "storeTimestamp")
"""A timestamp is null where it lies beyond what Arrow can hold."""

DEFAULT_COLUMNS: Final = tuple(_COLUMNS)[:_DEFAULT_COUNT]
ALL_COLUMNS: Final = tuple(_COLUMNS)


def spark_type(name: str, options: ReadOptions) -> DataType:
    """The Spark type of a known column."""
    if name == "properties" and options.properties == "string":
        return StringType()
    return _COLUMNS[name][0]


def table_schema(options: ReadOptions) -> StructType:
    """The schema of a read without a schema of the user's. Raises OptionError for an unknown column."""
    names = options.columns
    if names is None:
        names = tuple(
            n for n in DEFAULT_COLUMNS if n != "properties" or options.properties != "none"
        )
    by_lower = {name.lower(): name for name in ALL_COLUMNS}
    fields: list[StructField] = []
    for name in names:
        known = by_lower.get(name.lower())
        if known is None:
            raise OptionError(
                f"columns: {name!r} is none{suggestion(name, ALL_COLUMNS)} There are {', '.join(ALL_COLUMNS)}"
            )
        fields.append(StructField(known, spark_type(known, options)))
    _require_properties(names, options)
    return StructType(fields)


def check_schema(schema: StructType, options: ReadOptions) -> None:
    """Raise OptionError unless every field of the schema is a column of ours with its type."""
    by_lower = {name.lower(): name for name in ALL_COLUMNS}
    for field in schema.fields:
        known = by_lower.get(field.name.lower())
        if known is None:
            raise OptionError(
                f"the schema's column {field.name!r} is none{suggestion(field.name, ALL_COLUMNS)}"
                f" There are {', '.join(ALL_COLUMNS)}"
            )
        wanted = spark_type(known, options)
        if field.dataType != wanted:
            raise OptionError(
                f"the schema's column {field.name} is {field.dataType.simpleString()},"
                f" but the source gives {wanted.simpleString()}; cast it after reading"
            )
        if known in _MAY_BE_NULL and not field.nullable:
            raise OptionError(
                f"the schema's column {field.name} is NOT NULL, but a message need not have one"
            )
    names = [field.name for field in schema.fields]
    _require_properties(names, options)
    if options.columns is not None and [n.lower() for n in names] != [
        n.lower() for n in options.columns
    ]:
        raise OptionError(
            f"the option columns ({', '.join(options.columns)}) and the schema ({', '.join(names)})"
            " say different things; give one of them"
        )


def _require_properties(names: Sequence[str], options: ReadOptions) -> None:
    if options.properties == "none" and "properties" in [name.lower() for name in names]:
        raise OptionError("the column properties is asked for, but properties=none")


def protocol_columns(names: Sequence[str], options: ReadOptions) -> dict[str, str]:
    """Our name to the protocol's for those columns, without `brokerName`."""
    by_lower = {name.lower(): source for name, (_, source) in _COLUMNS.items()}
    columns = {
        name: by_lower[name.lower()] for name in names if name.lower() != BROKER_NAME.lower()
    }
    if options.properties == "string":
        for name, source in columns.items():
            if source == "properties":
                columns[name] = "properties_text"
    return columns


def arrow_schema(schema: StructType) -> Any:
    """The Arrow schema that Spark insists on for the batches of this read."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")
