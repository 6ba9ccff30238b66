"""Values and hashes of many records against the functions that look at one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.store.generated_logs import ODD_PROPERTIES, LogWriter

from rocketrio_broker.store.property_columns import PropertyColumns, power_of_31
from rocketrio_protocol.record.java_hash import java_string_hash
from rocketrio_protocol.record.properties import stored_value

LABELS = [b"TAGS\1", b"KEYS\1", b"UNIQ_KEY\1"]

BEYOND_ASCII = [
    b"\xc3\xa9",
    b"\xf0\x9f\x98\x80",
    b"\xe4",
    b"\xf0\x9f\x98",
    b"\x80",
    b"\xff",
    b"\xed\xa0\x80",
]
"""One unit of UTF-16, two, sequences that are cut off, and bytes that are no UTF-8."""


def columns_of(stored: list[bytes]) -> PropertyColumns:
    gathered = b"".join(b"?" + properties for properties in stored)
    return PropertyColumns(gathered, np.array([len(one) + 1 for one in stored]))


def values_of(columns: PropertyColumns, label: bytes, count: int) -> list[bytes]:
    found = [b""] * count
    values = columns.values(label)
    for owner, start, end in zip(values.owners, values.starts, values.ends, strict=True):
        found[owner] = columns.piece(int(start), int(end))
    return found


PROPERTIES = st.one_of(
    st.sampled_from(ODD_PROPERTIES),
    st.integers(0, 1 << 20).map(lambda seed: LogWriter(seed)._properties()),
    st.lists(st.sampled_from([*LABELS, b"\1", b"\2", b" ", b"x", b"\0", *BEYOND_ASCII])).map(
        b"".join
    ),
)


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(st.lists(PROPERTIES, min_size=1, max_size=12))
def test_values_and_hashes_are_those_of_single_records(stored: list[bytes]) -> None:
    columns = columns_of(stored)
    assert [columns.stored(row) for row in range(len(stored))] == stored
    assert columns.rows_with_zeros() == [row for row, one in enumerate(stored) if 0 in one]
    for label in LABELS:
        assert values_of(columns, label, len(stored)) == [
            stored_value(properties, label) for properties in stored
        ]
        values = columns.values(label)
        texts = [stored_value(stored[owner], label) for owner in values.owners]
        assert columns.hashes(values).tolist() == [
            java_string_hash(text.decode("utf-8", "replace")) & 0xFFFFFFFF for text in texts
        ]
        words = columns.words(values)
        assert [
            (owner, columns.piece(int(start), int(end)))
            for owner, start, end in zip(words.owners, words.starts, words.ends, strict=True)
        ] == [
            (owner, word)
            for owner, text in zip(values.owners, texts, strict=True)
            for word in text.split(b" ")
            if word
        ]


@pytest.mark.parametrize("size", [1, 47, 48, 49, 1000, 1024, 1025, 5000])
def test_long_and_short_pieces_hash_alike(size: int) -> None:
    stored = [b"TAGS\1" + bytes((65 + n + at) % 90 + 33 for at in range(size)) for n in range(4)]
    columns = columns_of(stored)
    assert columns.hashes(columns.values(b"TAGS\1")).tolist() == [
        java_string_hash(one[5:].decode()) & 0xFFFFFFFF for one in stored
    ]


def test_power_of_31_is_taken_modulo_2_to_32() -> None:
    exponents = [0, 1, 1023, 1024, 1025, 99_999, 4_000_000]
    assert power_of_31(np.array(exponents)).tolist() == [pow(31, n, 1 << 32) for n in exponents]
