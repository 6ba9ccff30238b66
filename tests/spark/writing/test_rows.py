"""Rows as messages on the wire, compared with what the producer makes of the same messages one by one."""

import zlib
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spark.writing.rows_rig import (
    HEADERS,
    MAP,
    encoded,
    encoder,
    messages,
    record_batch,
)

from rocketrio.spark.errors import RowError
from rocketrio.spark.writing.properties import of_maps
from rocketrio.spark.writing.rows import ALONE, COMPRESSED, MOST_ROWS
from rocketrio.spark.writing.stamps import TaskStamp
from rocketrio_protocol.message import Message
from rocketrio_protocol.record.batch import decode_batch
from rocketrio_protocol.record.properties import decode_properties


def not_utf8() -> Any:
    """A string column as CAST(key AS STRING) makes of bytes; its second value is no text."""
    values = pa.array([b"good", b"k-\xff"])
    return pa.Array.from_buffers(pa.string(), len(values), values.buffers())


def test_a_body_is_a_message() -> None:
    rows = encoded({"body": [b"one", b"", b"three"]})
    assert rows.topics == ("orders",)
    assert rows.kinds is None
    assert messages(rows) == [(0, body, {"WAIT": "true"}) for body in (b"one", b"", b"three")]


def test_text_is_a_body_in_utf8() -> None:
    ((_, body, _),) = messages(encoded({"body": pa.array(["grün"])}))
    assert body == "grün".encode()


def test_every_row_has_an_id_of_its_own_over_all_record_batches() -> None:
    fields = {"body": [b"x"] * 50_000}
    maker = encoder(fields)
    ids = [
        decode_properties(decode_batch(entry)[0][2])["UNIQ_KEY"]
        for _ in range(1)
        for rows in maker.encode(record_batch(fields))
        for entry in rows.entries.to_pylist()
    ]
    assert len(set(ids)) == 50_000
    assert [len(rows) for rows in maker.encode(record_batch(fields))] == [
        MOST_ROWS,
        50_000 - MOST_ROWS,
    ]


texts = st.text(
    st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=12
)
names = texts.filter(lambda text: not text.isupper())
maps = st.none() | st.dictionaries(names, st.none() | st.just("") | texts, max_size=4)


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(
            st.binary(max_size=40),
            st.none() | st.just("") | texts,
            st.none() | texts,
            maps,
            st.none() | st.integers(-(2**31), 2**31 - 1),
        ),
        min_size=1,
        max_size=8,
    ),
    st.integers(0, 3),
)
def test_columns_make_the_messages_that_the_producer_makes(rows: list[Any], skipped: int) -> None:
    fields = {
        "body": [row[0] for row in rows],
        "keys": [row[1] for row in rows],
        "tags": [row[2] for row in rows],
        "properties": [None if row[3] is None else list(row[3].items()) for row in rows],
        "flag": [row[4] for row in rows],
    }
    batch = record_batch(fields).slice(skipped)
    expected = []
    for body, keys, tags, properties, flag in rows[skipped:]:
        given_properties = {name: value for name, value in (properties or {}).items() if value}
        message = Message(
            "orders", body, keys=keys or "", tags=tags, properties=given_properties, flag=flag or 0
        )
        expected.append((message.flag, body, message.property_map()))
    found = [messages(each) for each in encoder(fields).encode(batch)]
    assert [message for each in found for message in each] == expected


def test_kafkas_headers_are_properties() -> None:
    headers = pa.array(
        [[{"key": "a", "value": b"1"}, {"key": "a", "value": b"2"}], None, [], [{"key": "b", "value": None}]],
        HEADERS,
    )  # fmt: skip
    found = messages(encoded({"body": [b""] * 4, "properties": headers}))
    assert [named for _, _, named in found] == [{"a": "2", "WAIT": "true"}] + [{"WAIT": "true"}] * 3


def test_what_was_read_can_be_written_again_without_what_is_rocketmqs_own() -> None:
    read = {"KEYS": "k", "TAGS": "t", "UNIQ_KEY": "U", "MIN_OFFSET": "0", "DELAY": "3", "own": "1",
            "SPARK_ROW": "7"}  # fmt: skip
    fields = {"body": [b""], "properties": [list(read.items())]}
    ((_, _, named),) = messages(encoded(fields))
    assert named == {"KEYS": "k", "TAGS": "t", "own": "1", "WAIT": "true"}
    ((_, _, named),) = messages(encoded({**fields, "keys": ["mine"], "tags": [None]}))
    assert named == {"KEYS": "mine", "own": "1", "WAIT": "true"}


def test_maps_that_are_null_over_values_count_as_none() -> None:
    whole = pa.array([[("a", "1")], [("b", "2")], [("c", "3")]], MAP)
    masked = pa.MapArray.from_buffers(
        MAP, 3, [pa.py_buffer(b"\x05"), whole.buffers()[1]], children=[whole.values]
    )
    assert masked.to_pylist()[1] is None
    found = of_maps(masked, without=frozenset())
    assert found.to_pylist() == [b"a\x011\x02", b"", b"c\x013\x02"]


def test_rows_carry_query_batch_task_and_number() -> None:
    fields = {"body": [b""] * 2}
    maker = encoder(fields, stamp=TaskStamp("q-1", "5", 3))
    found = [
        named
        for _ in range(2)
        for rows in maker.encode(record_batch(fields))
        for _, _, named in messages(rows)
    ]
    common = {"SPARK_QUERY": "q-1", "SPARK_BATCH": "5", "SPARK_TASK": "3", "WAIT": "true"}
    assert found == [{**common, "SPARK_ROW": str(row)} for row in range(4)]


def test_large_bodies_are_compressed_where_that_pays() -> None:
    dense = bytes(range(256))
    bodies = [b"a" * 200, b"small", dense]
    rows = encoded({"body": bodies}, compress_over=100)
    assert rows.kinds.tolist() == [COMPRESSED, 0, 0]
    stored = [body for _, body, _ in messages(rows)]
    assert [zlib.decompress(stored[0]), *stored[1:]] == bodies


def test_delayed_rows_travel_alone() -> None:
    rows = encoded({"body": [b"a", b"b", b"c"], "delay_level": [None, 3, 0], "flag": [1, 2, 3]})
    assert rows.kinds.tolist() == [0, ALONE, 0]
    single = rows.singles[1]
    assert (single.body, single.flag, single.is_batch) == (b"b", 2, False)
    assert decode_properties(single.properties)["DELAY"] == "3"


def test_rows_too_large_for_a_batch_travel_alone() -> None:
    rows = encoded({"body": [b"x" * 500, b"y"]}, send_batch_size=300)
    assert rows.kinds.tolist() == [ALONE, 0]


def test_a_retry_topic_takes_no_batches() -> None:
    rows = encoded({"body": [b"a", b"b"], "topic": ["%RETRY%billing", "orders"]})
    assert rows.kinds.tolist() == [ALONE, 0]
    assert rows.singles[0].topic == "%RETRY%billing"


def test_each_row_has_its_topic() -> None:
    rows = encoded({"body": [b"a", b"b", b"c"], "topic": ["x", "y", "x"]})
    assert rows.topics == ("x", "y")
    assert rows.topic_places.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("fields", "options", "said"),
    [
        ({"body": [b"a", None]}, {}, "its body is null; RocketMQ has no messages without a body"),
        ({"body": [b"a", b"b" * 11]}, {"max_message_size": 10}, "its body has 11 bytes; maxMessageBytes=10"),
        ({"body": [b"a"] * 2, "topic": ["t", None]}, {}, "its topic is null; give one, or the option"),
        ({"body": [b"a"] * 2, "topic": ["t", "a b"]}, {}, "topic 'a b' cannot be sent to"),
        ({"body": [b"a"] * 3, "tags": [None, "a || b", "t"]}, {}, "the tag 'a || b' is one for subscriptions"),
        ({"body": [b"a"] * 2, "tags": ["t", "*"]}, {}, "a message has one tag"),
        ({"body": [b"a"] * 2, "tags": ["t", "x\x01y"]}, {}, r"TAGS is b'x\x01y'; \x01 and \x02 cannot"),
        ({"body": [b"a"] * 2, "properties": [[("a", "1")], [("b", "2"), ("c", "\x02")]]}, {},
         r"the value of a property is b'\x02'"),
        ({"body": [b"a"] * 2, "properties": [None, [("a\x02", "1")]]}, {}, "the name of a property is b'a"),
        ({"body": [b"a"] * 2, "properties": [[], [("a", "1"), ("", "1")]]}, {}, "a property has no name"),
        ({"body": [b"a"] * 2, "properties": [[], [("a", "v" * 40_000)]]}, {},
         "its properties have 40055 bytes; 32511 is the limit"),
        ({"body": [b"a"] * 2, "properties": pa.array([None, [{"key": "a", "value": b"\xff"}]], HEADERS)}, {},
         r"the value of a header is b'\xff', which is not UTF-8"),
        ({"body": [b"a"] * 2, "delay_level": [18, 19]}, {}, "its delay_level is 19, none of 0 to 18"),
        ({"body": [b"a"] * 2, "delay_level": [None, -1]}, {}, "its delay_level is -1, none of 0 to 18"),
        ({"body": [b"a"] * 2, "partition": [0, -1]}, {}, "its partition is -1, none of 0 to"),
        ({"body": [b"a"] * 2, "flag": pa.array([0, 2**31])}, {}, "its flag is 2147483648, none of"),
        ({"body": [b"a"] * 2, "sharding_key": pa.array([b"k", b"\xfe"])}, {}, "its sharding_key is b"),
    ],
)  # fmt: skip
def test_each_wrong_row_is_named(fields: dict[str, Any], options: Any, said: str) -> None:
    maker = encoder(fields, **options)
    maker._next_row = 100
    with pytest.raises(RowError) as caught:
        maker.encode(record_batch(fields))
    assert "[ROCKETMQ_ROW] row 101 of task 3 cannot be a message: " in str(caught.value)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("role", "said"),
    [
        ("keys", "its key is"),
        ("tags", "its tags is"),
        ("topic", "its topic is"),
        ("sharding_key", "its sharding_key is"),
        ("broker_name", "its broker_name is"),
    ],
)
def test_a_text_of_sparks_that_is_none_is_a_wrong_row(role: str, said: str) -> None:
    fields = {"body": [b"a"] * 2, role: not_utf8(), "queue_id": pa.array([0, 0])}
    with pytest.raises(
        RowError, match=rf"row 1 of task 3.*: {said} b'k-\\xff', which is not UTF-8"
    ):
        encoder(fields).encode(record_batch(fields))


@pytest.mark.parametrize(
    ("names", "values", "said"),
    [
        (not_utf8(), ["1", "2"], "the name of a property is"),
        (["a", "b"], not_utf8(), "the value of a property is"),
    ],
)
def test_so_is_a_property_of_such_texts(names: Any, values: Any, said: str) -> None:
    fields = {"body": [b"a"] * 2, "properties": pa.MapArray.from_arrays([0, 1, 2], names, values)}
    with pytest.raises(
        RowError, match=rf"row 1 of task 3.*: {said} b'k-\\xff', which is not UTF-8"
    ):
        encoder(fields).encode(record_batch(fields))


def test_a_wrong_row_is_named_with_its_key() -> None:
    fields = {"body": [None], "keys": ["order-7"]}
    with pytest.raises(RowError, match="row 0 of task 3, key 'order-7' cannot be a message"):
        encoder(fields).encode(record_batch(fields))


def test_a_key_of_bytes_that_are_no_text_is_shown_as_what_it_has_of_text() -> None:
    fields = {"body": [b"a"], "keys": pa.array([b"k-\xff"])}
    with pytest.raises(RowError, match="row 0 of task 3, key 'k-\ufffd' cannot be a message"):
        encoder(fields).encode(record_batch(fields))
