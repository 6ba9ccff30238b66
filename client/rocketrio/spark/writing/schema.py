"""The columns of a write: the part of a message that each column of a DataFrame gives, and its allowed types.

    body | value            binary or string; the only column that is required
    topic                   unless the option `topic` gives it for all rows
    key | keys, tags        as RocketMQ's KEYS and TAGS
    properties              map<string,string>;  headers  array<struct<key,value>> as Kafka's, one of the two
    sharding_key            rows with the same key go to the same queue, in order
    partition               a position in the topic's sorted list of queues, as `schemaMode=kafka` numbers them
    queue_id, broker_name   that queue of that broker; the name may be omitted if only one broker has the queue
    delay_level, flag

Columns that say where a message was in its source topic (its offset, its times) are known too, but not written.

Answers to: KafkaWriter.validateQuery.
Unlike Kafka's sink: an unknown column is an error and not ignored, because it may be misspelt.
"""

from collections.abc import Callable, Mapping
from typing import Final

import attrs
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
)

from rocketrio.spark.errors import SchemaError
from rocketrio.spark.option_kinds import suggestion
from rocketrio.spark.writing.options import WriteOptions


def _is_text(kind: DataType) -> bool:
    return isinstance(kind, StringType)


def _is_text_or_bytes(kind: DataType) -> bool:
    return isinstance(kind, StringType | BinaryType)


def _is_whole(kind: DataType) -> bool:
    return isinstance(kind, ByteType | ShortType | IntegerType | LongType)


def _is_map(kind: DataType) -> bool:
    return isinstance(kind, MapType) and _is_text(kind.keyType) and _is_text(kind.valueType)


def _is_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = kind.elementType.fields
    return (
        [field.name.lower() for field in fields] == ["key", "value"]
        and _is_text(fields[0].dataType)
        and _is_text_or_bytes(fields[1].dataType)
    )


_TEXT_OR_BYTES: Final = (_is_text_or_bytes, "binary or string")
_TEXT: Final = (_is_text, "string")
_WHOLE: Final = (_is_whole, "int")

_ROLES: Final[Mapping[str, tuple[str, Callable[[DataType], bool], str]]] = {
    "body": ("body", *_TEXT_OR_BYTES),
    "value": ("body", *_TEXT_OR_BYTES),
    "topic": ("topic", *_TEXT),
    "keys": ("keys", *_TEXT_OR_BYTES),
    "key": ("keys", *_TEXT_OR_BYTES),
    "tags": ("tags", *_TEXT),
    "properties": ("properties", _is_map, "map<string,string>"),
    "headers": ("properties", _is_headers, "array<struct<key:string,value:binary>>"),
    "sharding_key": ("sharding_key", *_TEXT_OR_BYTES),
    "partition": ("partition", *_WHOLE),
    "queue_id": ("queue_id", *_WHOLE),
    "broker_name": ("broker_name", *_TEXT),
    "delay_level": ("delay_level", *_WHOLE),
    "flag": ("flag", *_WHOLE),
}
"""Column to the field of WriteColumns, a check of its type, and the name of that type for errors."""

NOT_WRITTEN: Final = (
    "queue_offset", "born_time", "store_time", "message_id", "unique_key", "offset_message_id",
    "sys_flag", "reconsume_times", "physical_offset", "prepared_transaction_offset", "born_host", "store_host",
    "body_crc", "store_size", "offset", "timestamp", "timestampType",
)  # fmt: skip
"""Columns of this source or Kafka's that give no part of a message to send."""

_NOT_YET: Final = ("delay_time_ms", "deliver_time")


@attrs.frozen
class WriteColumns:
    """The position of each column in the DataFrame, or None if it has no such column."""

    body: int
    topic: int | None = None
    keys: int | None = None
    tags: int | None = None
    properties: int | None = None
    sharding_key: int | None = None
    partition: int | None = None
    queue_id: int | None = None
    broker_name: int | None = None
    delay_level: int | None = None
    flag: int | None = None


def write_columns(schema: StructType, options: WriteOptions) -> WriteColumns:
    """Find the columns of a write. Raises SchemaError that names the column, its type, and what it should be."""
    by_lower = {name.lower(): name for name in _ROLES}
    ignored = {name.lower() for name in NOT_WRITTEN}
    not_yet = {name.lower() for name in _NOT_YET}
    places: dict[str, int] = {}
    names: dict[str, str] = {}
    for place, field in enumerate(schema.fields):
        lower = field.name.lower()
        if lower in not_yet:
            raise SchemaError(
                f"column {field.name}: not supported yet: delays other than by level; give delay_level (1 to 18)"
            )
        if lower not in by_lower:
            if lower not in ignored:
                raise SchemaError(_unknown(field.name))
            continue
        role, fits, wanted = _ROLES[by_lower[lower]]
        if role in places:
            raise SchemaError(
                f"columns {names[role]} and {field.name} set the same field of a message; drop one of them"
            )
        if not fits(field.dataType):
            raise SchemaError(
                f"column {field.name} must be {wanted}, not {field.dataType.simpleString()}"
                f"{': to_json(struct(...)) makes one of several columns' if role == 'body' else ''}"
            )
        places[role], names[role] = place, field.name
    if options.topic is not None:
        places.pop("topic", None)
    _check_whole(places, names, options)
    return WriteColumns(**places)


def _unknown(name: str) -> str:
    near = suggestion(name, tuple(_ROLES))
    return (
        f"column {name!r} is not a field of a message{near} Available: {', '.join(_ROLES)}; drop it,"
        " or put it into the body or the properties"
    )


def _check_whole(
    places: Mapping[str, int], names: Mapping[str, str], options: WriteOptions
) -> None:
    """Raise SchemaError unless all required columns exist and none exclude each other."""
    if "body" not in places:
        raise SchemaError("there must be a column body (or value), binary or string")
    if "topic" not in places and options.topic is None:
        raise SchemaError("give the option topic, or a column topic of strings")
    ways = [role for role in ("sharding_key", "partition", "queue_id") if role in places]
    if len(ways) > 1:
        raise SchemaError(
            f"columns {' and '.join(names[way] for way in ways)} each choose a queue; give one of them"
        )
    if "broker_name" in places and "queue_id" not in places:
        raise SchemaError(
            "column broker_name is given without queue_id: give both, or partition, the place in the"
            " topic's sorted list of queues, or neither"
        )
