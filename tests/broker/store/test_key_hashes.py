import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.store.generated_logs import ODD_PROPERTIES, TOPICS, LogWriter

from rocketrio_broker.store.key_hashes import key_hash_columns, key_hashes
from rocketrio_broker.store.property_columns import PropertyColumns
from rocketrio_protocol.record.java_hash import index_key_hash, java_string_hash
from rocketrio_protocol.record.properties import decode_properties

UNIQUE = "7F000001000018B4AAC2000000000001"


def expected(topic: str, properties: bytes) -> list[int]:
    values = decode_properties(properties)
    keys = [values.get("UNIQ_KEY", ""), *values.get("KEYS", "").split(" ")]
    return [index_key_hash(topic, key) for key in keys if key]


@pytest.mark.parametrize(
    "properties",
    [
        b"",
        f"UNIQ_KEY\1{UNIQUE}".encode(),
        f"KEYS\1a b  c\2UNIQ_KEY\1{UNIQUE}\2TAGS\1x\2".encode(),
        b"UNIQ_KEY\1short\2KEYS\1k",
        f"UNIQ_KEY\1{UNIQUE * 2}".encode(),
        f"UNIQ_KEY\1first\2UNIQ_KEY\1{UNIQUE}".encode(),
        f"UNIQ_KEY\1{UNIQUE}\2UNIQ_KEY\1second".encode(),
        f"MY_UNIQ_KEY\1{UNIQUE}".encode(),
        "UNIQ_KEY\1é7F00001000018B4AAC200000000000\2KEYS\1ü".encode(),
        b"UNIQ_KEY\1" + b"\xff" * 32,
    ],
)
def test_hashes_are_those_of_the_protocol(properties: bytes) -> None:
    assert key_hashes(b"orders", properties) == expected("orders", properties)


@given(st.text("0123456789ABCDEF", min_size=32, max_size=32), st.sampled_from(["t", "orders", "ö"]))
def test_every_unique_id_hashes_as_in_java(unique: str, topic: str) -> None:
    assert key_hashes(topic.encode(), f"UNIQ_KEY\1{unique}".encode()) == [
        index_key_hash(topic, unique)
    ]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(TOPICS),
            st.one_of(
                st.sampled_from(ODD_PROPERTIES),
                st.integers(0, 1 << 20).map(lambda seed: LogWriter(seed)._properties()),
                st.text("aB7 é\ud7ff", max_size=60).map(lambda keys: f"KEYS\1{keys}".encode()),
            ),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_hashes_of_many_records_are_those_of_each(records: list[tuple[bytes, bytes]]) -> None:
    gathered = b"".join(b"?" + properties for _, properties in records)
    sizes = np.array([len(properties) + 1 for _, properties in records])
    hashes, rows = key_hash_columns(
        [topic for topic, _ in records], PropertyColumns(gathered, sizes)
    )
    assert list(zip(rows.tolist(), hashes.tolist(), strict=True)) == [
        (row, key_hash)
        for row, (topic, properties) in enumerate(records)
        for key_hash in key_hashes(topic, properties)
    ]


def test_lowest_number_of_java_has_no_absolute_value_in_columns_either() -> None:
    # What "t#" and seven exclamation marks lack of -2^31, written in base 31, goes on top of the marks.
    prefix = java_string_hash("t#" + "!" * 7)
    missing = (-0x80000000 - prefix) % (1 << 32)
    key = bytes(ord("!") + missing // 31**place % 31 for place in reversed(range(7)))
    assert java_string_hash(f"t#{key.decode()}") == -0x80000000
    properties = PropertyColumns(b"?KEYS\1" + key, np.array([len(key) + 6]))
    assert key_hash_columns([b"t"], properties)[0].tolist() == [0]
    assert key_hashes(b"t", b"KEYS\1" + key) == [0]
