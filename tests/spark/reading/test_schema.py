"""Columns and schemas: what may be chosen, and that Spark's own idea of the Arrow types is met."""

import pytest
from pyspark.sql.types import BinaryType, LongType, MapType, StringType, StructType
from tests.spark.in_memory import batch_options

from rocketrio.consuming.frames import COLUMNS
from rocketrio.spark.errors import OptionError
from rocketrio.spark.reading.schema import (
    ALL_COLUMNS,
    DEFAULT_COLUMNS,
    arrow_schema,
    check_schema,
    protocol_columns,
    table_schema,
)
from rocketrio_protocol.columns.decode import COLUMN_TYPES


def test_schema_without_options_has_the_default_columns() -> None:
    schema = table_schema(batch_options())
    assert tuple(schema.names) == DEFAULT_COLUMNS == (
        "topic", "broker_name", "queue_id", "queue_offset", "keys", "tags", "body", "born_time",
        "store_time", "properties",
    )  # fmt: skip
    assert all(field.nullable for field in schema.fields)


def test_chosen_columns_in_their_order_and_any_letter_case() -> None:
    assert table_schema(batch_options(columns="BODY,QUEUE_offset,message_id")).names == [
        "body", "queue_offset", "message_id",
    ]  # fmt: skip


def test_forms_of_the_properties() -> None:
    assert table_schema(batch_options())["properties"].dataType == MapType(
        StringType(), StringType()
    )
    assert table_schema(batch_options(properties="string"))["properties"].dataType == StringType()
    assert "properties" not in table_schema(batch_options(properties="none")).names
    with pytest.raises(OptionError, match="properties=none"):
        table_schema(batch_options(properties="none", columns="properties"))


@pytest.mark.parametrize("form", ["map", "string"])
def test_arrow_types_are_those_that_are_decoded(form: str) -> None:
    options = batch_options(columns=",".join(ALL_COLUMNS), properties=form)
    schema = arrow_schema(table_schema(options))
    for name, source in protocol_columns(schema.names, options).items():
        assert schema.field(name).type == COLUMN_TYPES[source], name
    assert set(schema.names) - set(protocol_columns(schema.names, options)) == {"broker_name"}


_BODY = StructType().add("body", BinaryType())
_PROPERTIES = StructType().add("properties", MapType(StringType(), StringType()))


def test_a_users_schema_chooses_columns() -> None:
    check_schema(_BODY.add("queue_offset", LongType()), batch_options())
    check_schema(StructType().add("BODY", BinaryType()), batch_options())
    check_schema(_PROPERTIES, batch_options())
    check_schema(StructType().add("properties", StringType()), batch_options(properties="string"))
    check_schema(StructType().add("body", BinaryType()), batch_options(columns="body"))


@pytest.mark.parametrize(
    ("schema", "given", "why"),
    [
        (
            StructType().add("payload", BinaryType()),
            {},
            "'payload' is not a column. Available: topic",
        ),
        (
            StructType().add("value", BinaryType()),
            {},
            "'value' is a column of schemaMode=kafka. Otherwise available: topic",
        ),
        (
            StructType().add("queue_offset", LongType(), nullable=False),
            {"onCorruptMessage": "null"},
            "queue_offset is NOT NULL",
        ),
        (StructType().add("bodi", BinaryType()), {}, "did you mean body?"),
        (StructType().add("body", StringType()), {}, "body is string, but the source gives binary"),
        (
            StructType().add("queue_id", LongType()),
            {},
            "queue_id is bigint, but the source gives int",
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
        check_schema(schema, batch_options(**given))
    assert why in str(caught.value)


def test_columns_are_those_of_the_library() -> None:
    assert set(ALL_COLUMNS) == {*COLUMN_TYPES, "broker_name"} - {"properties_text"}
    assert set(DEFAULT_COLUMNS) == set(COLUMNS)
    for name, source in protocol_columns(ALL_COLUMNS, batch_options()).items():
        assert name == source


@pytest.mark.parametrize(
    ("former", "name"),
    [
        ("brokerName", "broker_name"),
        ("queueId", "queue_id"),
        ("queueOffset", "queue_offset"),
        ("bornTimestamp", "born_time"),
        ("store_timestamp", "store_time"),
        ("deliverTimestamp", "deliver_time"),
        ("messageId", "message_id"),
        ("reconsumeTimes", "reconsume_times"),
        ("preparedTransactionOffset", "prepared_transaction_offset"),
    ],
)
def test_a_former_name_of_a_column_is_refused_with_the_one_there_is(former: str, name: str) -> None:
    with pytest.raises(OptionError, match=f"{former!r} is not a column; did you mean {name}?"):
        table_schema(batch_options(columns=f"body,{former}"))


def test_an_unknown_column_names_the_known_ones() -> None:
    with pytest.raises(
        OptionError, match=r"'offsets' is not a column.* Available: topic, broker_name"
    ):
        table_schema(batch_options(columns="offsets"))
    with pytest.raises(OptionError, match="'offset' is a column of schemaMode=kafka"):
        table_schema(batch_options(columns="offset"))


def test_a_ported_job_finds_the_columns_of_kafka() -> None:
    schema = table_schema(batch_options(schemaMode="kafka"))
    assert schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int>"
    )
    schema = table_schema(batch_options(schemaMode="kafka", includeHeaders="true"))
    assert schema["headers"].dataType.simpleString() == "array<struct<key:string,value:binary>>"


def test_with_columns_of_kafka_all_others_can_be_asked_for() -> None:
    options = batch_options(schemaMode="kafka", columns="VALUE,broker_name,queue_id,properties")
    assert table_schema(options).names == ["value", "broker_name", "queue_id", "properties"]
    assert protocol_columns(["value", "broker_name", "offset", "partition"], options) == {
        "value": "body",
        "offset": "queue_offset",
    }
    check_schema(StructType().add("Value", BinaryType()), batch_options(schemaMode="kafka"))


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
        table_schema(batch_options(schemaMode="kafka", **given))
    assert why in str(caught.value)


def test_types_are_sparks() -> None:
    assert table_schema(batch_options())["queue_offset"].dataType == LongType()
