"""Columns and schemas: what may be chosen, and that Spark's own idea of the Arrow types is met."""

import pytest
from pyspark.sql.types import BinaryType, LongType, MapType, StringType, StructType

from rocketrio.spark.errors import OptionError
from rocketrio.spark.reading.options import ReadOptions, parse_read_options
from rocketrio.spark.reading.schema import (
    ALL_COLUMNS,
    DEFAULT_COLUMNS,
    arrow_schema,
    check_schema,
    protocol_columns,
    table_schema,
)
from rocketrio_protocol.columns.decode import COLUMN_TYPES


def _options(**given: str) -> ReadOptions:
    return parse_read_options({"nameServer": "h:1", "subscribe": "t", **given})


def test_default_columns() -> None:
    schema = table_schema(_options())
    assert tuple(schema.names) == DEFAULT_COLUMNS == (
        "topic", "brokerName", "queueId", "queueOffset", "keys", "tags", "body", "bornTimestamp",
        "storeTimestamp", "properties",
    )  # fmt: skip
    assert all(field.nullable for field in schema.fields)


def test_chosen_columns_in_their_order_and_any_letter_case() -> None:
    assert table_schema(_options(columns="BODY,queueoffset,messageId")).names == [
        "body", "queueOffset", "messageId",
    ]  # fmt: skip


def test_forms_of_the_properties() -> None:
    assert table_schema(_options())["properties"].dataType == MapType(StringType(), StringType())
    assert table_schema(_options(properties="string"))["properties"].dataType == StringType()
    assert "properties" not in table_schema(_options(properties="none")).names
    with pytest.raises(OptionError, match="properties=none"):
        table_schema(_options(properties="none", columns="properties"))


@pytest.mark.parametrize("form", ["map", "string"])
def test_arrow_types_are_those_that_are_decoded(form: str) -> None:
    options = _options(columns=",".join(ALL_COLUMNS), properties=form)
    schema = arrow_schema(table_schema(options))
    for name, source in protocol_columns(schema.names, options).items():
        assert schema.field(name).type == COLUMN_TYPES[source], name
    assert set(schema.names) - set(protocol_columns(schema.names, options)) == {"brokerName"}


_BODY = StructType().add("body", BinaryType())
_PROPERTIES = StructType().add("properties", MapType(StringType(), StringType()))


def test_a_users_schema_chooses_columns() -> None:
    check_schema(_BODY.add("queueOffset", LongType()), _options())
    check_schema(StructType().add("BODY", BinaryType()), _options())
    check_schema(_PROPERTIES, _options())
    check_schema(StructType().add("properties", StringType()), _options(properties="string"))
    check_schema(StructType().add("body", BinaryType()), _options(columns="body"))


@pytest.mark.parametrize(
    ("schema", "given", "why"),
    [
        (StructType().add("payload", BinaryType()), {}, "'payload' is none. There are topic"),
        (
            StructType().add("value", BinaryType()),
            {},
            "'value' is a column of schemaMode=kafka. Otherwise there are topic",
        ),
        (
            StructType().add("queueOffset", LongType(), nullable=False),
            {"onCorruptMessage": "null"},
            "queueOffset is NOT NULL",
        ),
        (StructType().add("bodi", BinaryType()), {}, "did you mean body?"),
        (StructType().add("body", StringType()), {}, "body is string, but the source gives binary"),
        (
            StructType().add("queueId", LongType()),
            {},
            "queueId is bigint, but the source gives int",
        ),
        (StructType().add("tags", StringType(), nullable=False), {}, "tags is NOT NULL"),
        (StructType().add("body", BinaryType()), {"columns": "tags"}, "say different things"),
        (_PROPERTIES, {"properties": "none"}, "properties=none"),
        (StructType(), {}, "the schema has no column"),
        (
            StructType().add("keys", StringType()).add("KEYS", StringType()),
            {},
            "the schema has the column keys more than once",
        ),
        (
            StructType().add("properties", MapType(StringType(), StringType(), False)),
            {},
            "is MapType(StringType(), StringType(), False), but the source gives"
            " MapType(StringType(), StringType(), True)",
        ),
    ],
)
def test_schemas_that_cannot_be(schema: StructType, given: dict[str, str], why: str) -> None:
    with pytest.raises(OptionError) as caught:
        check_schema(schema, _options(**given))
    assert why in str(caught.value)


def test_an_unknown_column_names_the_known_ones() -> None:
    with pytest.raises(OptionError, match=r"'offsets' is none.* There are topic, brokerName"):
        table_schema(_options(columns="offsets"))
    with pytest.raises(OptionError, match="'offset' is a column of schemaMode=kafka"):
        table_schema(_options(columns="offset"))


def test_a_ported_job_finds_the_columns_of_kafka() -> None:
    schema = table_schema(_options(schemaMode="kafka"))
    assert schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int>"
    )
    schema = table_schema(_options(schemaMode="kafka", includeHeaders="true"))
    assert schema["headers"].dataType.simpleString() == "array<struct<key:string,value:binary>>"


def test_with_columns_of_kafka_all_others_can_be_asked_for() -> None:
    options = _options(schemaMode="kafka", columns="VALUE,brokerName,queueId,properties")
    assert table_schema(options).names == ["value", "brokerName", "queueId", "properties"]
    assert protocol_columns(["value", "brokerName", "offset", "partition"], options) == {
        "value": "body",
        "offset": "queue_offset",
    }
    check_schema(StructType().add("Value", BinaryType()), _options(schemaMode="kafka"))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"columns": "headers"}, "headers is asked for, but not includeHeaders=true"),
        ({"columns": "value", "includeHeaders": "true"}, "headers is not among those asked for"),
        ({"columns": "values"}, "did you mean value?"),
    ],
)
def test_columns_of_kafka_that_cannot_be(given: dict[str, str], why: str) -> None:
    with pytest.raises(OptionError) as caught:
        table_schema(_options(schemaMode="kafka", **given))
    assert why in str(caught.value)


def test_types_are_sparks() -> None:
    assert table_schema(_options())["queueOffset"].dataType == LongType()
