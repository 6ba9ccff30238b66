"""The columns of the source: their names and types in Spark, and the protocol's column for each.

Both ways to choose columns, the option `columns` and a schema given by the user, mean: decode and send only these, in
this order. Spark itself never removes unused columns of a Python source.
With `schemaMode=kafka` the columns of Spark's Kafka source come first, and all others can still be chosen.
"""

import inspect
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
from pyspark.sql.types import (
    ArrayType,
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
from rocketrio.spark.option_kinds import suggestion
from rocketrio.spark.reading.options import ReadOptions

BROKER_NAME: Final = "broker_name"
QUEUE_OFFSET: Final = "queue_offset"
PARTITION: Final = "partition"
TIMESTAMP_TYPE: Final = "timestampType"
HEADERS: Final = "headers"


@attrs.frozen
class RowColumn:
    """A column that can be read."""

    kind: DataType
    source: str = ""
    """The protocol's column; empty if the reader adds the column because records do not contain it."""
    may_be_null: bool = False
    """True if an undamaged message may have no value. A timestamp is null if no Python datetime can hold it."""


_STRING, _BINARY, _INT, _LONG, _TIMESTAMP = (
    StringType(), BinaryType(), IntegerType(), LongType(), TimestampType(),
)  # fmt: skip

_COLUMNS: Final[Mapping[str, RowColumn]] = {
    "topic": RowColumn(_STRING, "topic"),
    BROKER_NAME: RowColumn(_STRING),
    "queue_id": RowColumn(_INT, "queue_id"),
    QUEUE_OFFSET: RowColumn(_LONG, "queue_offset"),
    "keys": RowColumn(_STRING, "keys", may_be_null=True),
    "tags": RowColumn(_STRING, "tags", may_be_null=True),
    "body": RowColumn(_BINARY, "body"),
    "born_time": RowColumn(_TIMESTAMP, "born_time", may_be_null=True),
    "store_time": RowColumn(_TIMESTAMP, "store_time", may_be_null=True),
    "properties": RowColumn(MapType(_STRING, _STRING), "properties"),
    # The columns from here on are not read by default.
    "message_id": RowColumn(_STRING, "message_id"),
    "unique_key": RowColumn(_STRING, "unique_key", may_be_null=True),
    "offset_message_id": RowColumn(_STRING, "offset_message_id"),
    "flag": RowColumn(_INT, "flag"),
    "sys_flag": RowColumn(_INT, "sys_flag"),
    "reconsume_times": RowColumn(_INT, "reconsume_times"),
    "physical_offset": RowColumn(_LONG, "physical_offset"),
    "prepared_transaction_offset": RowColumn(_LONG, "prepared_transaction_offset"),
    "born_host": RowColumn(_STRING, "born_host"),
    "store_host": RowColumn(_STRING, "store_host"),
    "body_crc": RowColumn(_INT, "body_crc"),
    "store_size": RowColumn(_INT, "store_size"),
    "deliver_time": RowColumn(_TIMESTAMP, "deliver_time", may_be_null=True),
}
_DEFAULT_COUNT: Final = 10

_HEADER: Final = StructType([StructField("key", _STRING), StructField("value", _BINARY)])
_KAFKA_COLUMNS: Final[Mapping[str, RowColumn]] = {
    "key": RowColumn(_BINARY, "keys", may_be_null=True),
    "value": RowColumn(_BINARY, "body"),
    "topic": RowColumn(_STRING, "topic"),
    PARTITION: RowColumn(_INT),
    "offset": RowColumn(_LONG, "queue_offset"),
    "timestamp": RowColumn(_TIMESTAMP, "store_time", may_be_null=True),
    TIMESTAMP_TYPE: RowColumn(_INT),
    HEADERS: RowColumn(ArrayType(_HEADER), "properties"),
}
"""The columns of Spark's Kafka source, in its order; `headers` only with includeHeaders."""

DEFAULT_COLUMNS: Final = tuple(_COLUMNS)[:_DEFAULT_COUNT]
ALL_COLUMNS: Final = tuple(_COLUMNS)
KAFKA_COLUMNS: Final = tuple(_KAFKA_COLUMNS)


def known_columns(options: ReadOptions) -> Mapping[str, RowColumn]:
    """Return the columns that can be read with these options."""
    columns = dict(_COLUMNS)
    if options.properties == "string":
        columns["properties"] = RowColumn(_STRING, "properties_text")
    return columns if options.schema_mode == "rocketmq" else {**_KAFKA_COLUMNS, **columns}


def _default_names(options: ReadOptions) -> tuple[str, ...]:
    if options.schema_mode == "kafka":
        return tuple(name for name in KAFKA_COLUMNS if name != HEADERS or options.include_headers)
    return tuple(n for n in DEFAULT_COLUMNS if n != "properties" or options.properties != "none")


def table_schema(options: ReadOptions) -> StructType:
    """Return the schema of a read if the user gives none. Raises OptionError for an unknown column."""
    names = _default_names(options) if options.columns is None else options.columns
    columns = known_columns(options)
    by_lower = {name.lower(): name for name in columns}
    fields: list[StructField] = []
    for name in names:
        known = by_lower.get(name.lower())
        if known is None:
            raise OptionError(f"columns: {name!r} {_unknown(name, options)}")
        fields.append(StructField(known, columns[known].kind))
    _require_asked(names, options)
    return StructType(fields)


def _unknown(name: str, options: ReadOptions) -> str:
    columns = tuple(known_columns(options))
    if name.lower() in map(str.lower, KAFKA_COLUMNS):
        return f"is a column of schemaMode=kafka. Otherwise available: {', '.join(columns)}"
    return f"is not a column{suggestion(name, columns)} Available: {', '.join(columns)}"


def check_schema(schema: StructType, options: ReadOptions) -> None:
    """Raise OptionError unless every field of the schema is a column of this source with the same type."""
    columns = known_columns(options)
    by_lower = {name.lower(): name for name in columns}
    for field in schema.fields:
        known = by_lower.get(field.name.lower())
        if known is None:
            raise OptionError(f"the schema's column {field.name!r} {_unknown(field.name, options)}")
        wanted = columns[known]
        if field.dataType != wanted.kind:
            given, ours = field.dataType.simpleString(), wanted.kind.simpleString()
            if given == ours:  # They differ in nullability, which that text omits.
                given, ours = str(field.dataType), str(wanted.kind)
            raise OptionError(
                f"the schema's column {field.name} is {given}, but the source gives {ours}; cast it after reading"
            )
        if not field.nullable and (wanted.may_be_null or _is_null_if_damaged(known, options)):
            raise OptionError(
                f"the schema's column {field.name} is NOT NULL, but a message need not have one"
            )
    names = [field.name for field in schema.fields]
    if not names:
        raise OptionError("the schema has no column")
    if twice := [name for name, count in Counter(map(str.lower, names)).items() if count > 1]:
        raise OptionError(f"the schema has the column {twice[0]} more than once")
    _require_asked(names, options)
    if options.columns is not None and [n.lower() for n in names] != [
        n.lower() for n in options.columns
    ]:
        raise OptionError(
            f"the option columns ({', '.join(options.columns)}) and the schema ({', '.join(names)})"
            " say different things; give one of them"
        )


def _is_null_if_damaged(name: str, options: ReadOptions) -> bool:
    of_the_range = (BROKER_NAME, PARTITION, TIMESTAMP_TYPE)
    return options.on_corrupt_message == "null" and name not in of_the_range


def _require_asked(names: Sequence[str], options: ReadOptions) -> None:
    given = [name.lower() for name in names]
    if options.properties == "none" and "properties" in given:
        raise OptionError("the column properties is asked for, but properties=none")
    if HEADERS in given and not options.include_headers:
        raise OptionError("the column headers is asked for, but not includeHeaders=true")
    if HEADERS not in given and options.include_headers:
        raise OptionError(
            "includeHeaders=true, but the column headers is not among those asked for"
        )


def protocol_columns(names: Sequence[str], options: ReadOptions) -> dict[str, str]:
    """Map those columns to the protocol's columns, omitting columns that records do not contain."""
    by_lower = {name.lower(): column.source for name, column in known_columns(options).items()}
    return {name: by_lower[name.lower()] for name in names if by_lower[name.lower()]}


def arrow_schema(schema: StructType) -> Any:
    """Return the Arrow schema that Spark requires for the batches of this read."""
    from pyspark.sql.pandas.types import to_arrow_schema

    if "timezone" not in inspect.signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema)  # PySpark 4.0 and 4.1 take no zone: it is UTC.
    return to_arrow_schema(schema, timezone="UTC")
