"""Arrow arrays made from buffers are those that `pa.array` makes, and they need no import of pandas."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketrio_protocol.columns.arrays import map_array, number_array, repeated, text_array
from rocketrio_protocol.columns.properties import MAP_TYPE

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@given(st.lists(st.one_of(st.none(), TEXT)))
def test_text_array_of_texts_equals_arrows(values: list[str | None]) -> None:
    made = text_array(values, pa.string())
    made.validate(full=True)
    assert made.equals(pa.array(values, pa.string()))


@given(st.lists(st.one_of(st.none(), st.binary(max_size=8))))
def test_text_array_of_bytes_equals_arrows(values: list[bytes | None]) -> None:
    made = text_array(values, pa.binary())
    made.validate(full=True)
    assert made.equals(pa.array(values, pa.binary()))


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@given(st.lists(st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1))))
def test_number_array_equals_arrows(kind: type[np.signedinteger], values: list[int | None]) -> None:
    missing = np.array([value is None for value in values], bool)
    made = number_array(np.array([value or 0 for value in values], kind), missing)
    made.validate(full=True)
    assert made.equals(pa.array(values, pa.from_numpy_dtype(kind)))


def test_every_second_number_of_an_array() -> None:
    assert number_array(np.arange(10, dtype=np.int32)[::2]).to_pylist() == [0, 2, 4, 6, 8]


@given(st.lists(st.lists(st.tuples(TEXT, TEXT), max_size=3)))
def test_map_array_equals_arrows(rows: list[list[tuple[str, str]]]) -> None:
    made = map_array(rows)
    made.validate(full=True)
    assert made.equals(pa.array(rows, MAP_TYPE))


def test_repeated_texts_are_an_array() -> None:
    assert repeated(["a", "", "öl"], 2).to_pylist() == ["a", "", "öl", "a", "", "öl"]
    assert repeated(["a"], 0).to_pylist() == []


_WITHOUT_PANDAS = """
import sys
from rocketrio_protocol.columns.decode import COLUMN_TYPES, decode_columns
from rocketrio_protocol.record.encode import encode_record
from tests.support.records import plain_fields

for count in (3, 300):
    names = ["KEYS", "TAGS", "mine"]  # not the same ones in every message
    chunk = b"".join(
        encode_record(**plain_fields(properties=f"{names[place % 3]}\\x01{place}".encode()))
        for place in range(count)
    )
    assert len(decode_columns(chunk, COLUMN_TYPES)["body"]) == count
assert "pandas" not in sys.modules
"""


@pytest.mark.slow
def test_decoding_every_column_imports_no_pandas() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_PANDAS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
