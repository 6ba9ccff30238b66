"""Rows as PySpark 4.0 gives them become the record batches of later versions; test_writer.py has the writers."""

from pyspark.sql.types import BinaryType, IntegerType, MapType, Row, StringType, StructType
from tests.spark.writing.rows_rig import encoder, messages

from rocketrio.spark.writing.writer import ROWS, record_batches

SCHEMA = (
    StructType()
    .add("body", BinaryType())
    .add("keys", StringType())
    .add("tags", StringType())
    .add("properties", MapType(StringType(), StringType()))
    .add("flag", IntegerType())
)


def test_record_batch_has_the_given_number_of_rows() -> None:
    rows = (
        Row(bytes(2), str(number), None, {"number": str(number)}, number)
        for number in range(2 * ROWS + 1)
    )
    batches = list(record_batches(rows, SCHEMA))
    assert [batch.num_rows for batch in batches] == [ROWS, ROWS, 1]
    assert batches[-1].to_pylist() == [
        {
            "body": bytes(2),
            "keys": str(2 * ROWS),
            "tags": None,
            "properties": [("number", str(2 * ROWS))],
            "flag": 2 * ROWS,
        }
    ]
    assert not list(record_batches(iter(()), SCHEMA))


def test_they_are_encoded_as_record_batches_of_later_versions_are() -> None:
    given = iter([Row(b"one", "k", "A", {"a": "b"}, 7), Row(b"", None, None, None, None)])
    (batch,) = record_batches(given, SCHEMA)
    (rows,) = encoder(dict.fromkeys(SCHEMA.names)).encode(batch)
    assert messages(rows) == [
        (7, b"one", {"KEYS": "k", "TAGS": "A", "a": "b", "WAIT": "true"}),
        (0, b"", {"WAIT": "true"}),
    ]
