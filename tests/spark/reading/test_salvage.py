"""Chunks with damage anywhere: all other messages are read, each once and in order."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.records import plain_record

from rocketrio.spark.reading.salvage import Salvaged, records_below, salvage
from rocketrio_protocol.columns.decode import COLUMN_TYPES
from rocketrio_protocol.record.compression import compress

WANTED = ("queue_offset", "body", "topic", "tags")


def _record(offset: int, **fields: object) -> bytes:
    given = {"queue_offset": offset, "body": b"body-%d" % offset, "properties": b"TAGS\x01a\x02"}
    return plain_record(**given | fields)


def _bad(offset: int, how: str) -> bytes:
    record = bytearray(_record(offset))
    if how == "size 0":
        record[0:4] = bytes(4)
    elif how == "size beyond":
        record[0:4] = (2**31 - 1).to_bytes(4)
    elif how == "magic":
        record[4:8] = b"XXXX"
    elif how == "body size":
        record[84:88] = (10**6).to_bytes(4)
    elif how == "compressed":
        return _record(offset, sys_flag=1, body=b"no zlib")
    return bytes(record)


_HOWS = ("size 0", "size beyond", "magic", "body size", "compressed")


def _salvaged(chunk: bytes, *, keeps_damaged: bool = False, check_crc: bool = False) -> Salvaged:
    found = salvage(chunk, WANTED, inflate=True, check_crc=check_crc, keeps_damaged=keeps_damaged)
    for name, array in found.columns.items():
        array.validate(full=True)
        assert array.type == COLUMN_TYPES[name]
        assert len(array) == found.row_count
    return found


@given(st.lists(st.sampled_from(("", *_HOWS)), max_size=40), st.booleans())
def test_every_whole_message_is_there_in_order(hows: list[str], keeps_damaged: bool) -> None:
    chunk = b"".join(
        _bad(offset, how) if how else _record(offset) for offset, how in enumerate(hows)
    )
    found = _salvaged(chunk, keeps_damaged=keeps_damaged)
    whole = [offset for offset, how in enumerate(hows) if not how]
    rows = zip(
        found.columns["queue_offset"].to_pylist(), found.columns["body"].to_pylist(), strict=True
    )
    assert [(o, b) for o, b in rows if b is not None] == [(o, b"body-%d" % o) for o in whole]
    # Damaged messages side by side without a visible border are one.
    assert bool(found.problems) == (len(whole) < len(hows))
    assert len(found.problems) <= len(hows) - len(whole)
    if not keeps_damaged:
        assert found.row_count == len(whole)


@pytest.mark.slow
@given(st.randoms(), st.integers(1, 30))
def test_any_altered_byte_is_survived(rng: random.Random, count: int) -> None:
    chunk = bytearray(b"".join(_record(offset) for offset in range(30)))
    for _ in range(count):
        chunk[rng.randrange(len(chunk))] = rng.randrange(256)
    found = _salvaged(bytes(chunk), keeps_damaged=rng.random() < 0.5, check_crc=True)
    assert found.row_count <= 31


@pytest.mark.parametrize("how", _HOWS)
def test_of_a_damaged_message_what_can_be_read_is_kept(how: str) -> None:
    found = _salvaged(_record(0) + _bad(1, how) + _record(2), keeps_damaged=True)
    (problem,) = found.problems
    assert problem.row == 1
    assert found.columns["body"].to_pylist() == [b"body-0", None, b"body-2"]
    offset, tags = (found.columns[name][1].as_py() for name in ("queue_offset", "tags"))
    is_told_apart = how in ("body size", "compressed")
    assert offset == problem.queue_offset == (1 if is_told_apart else None)
    assert tags == ("a" if how == "compressed" else None)


def test_a_body_that_its_checksum_contradicts_is_null() -> None:
    chunk = b"".join(_record(offset, body_crc=1 if offset == 3 else None) for offset in range(6))
    assert _salvaged(chunk).problems == []
    found = _salvaged(chunk, keeps_damaged=True, check_crc=True)
    assert found.columns["body"].null_count == 1
    assert found.columns["queue_offset"].to_pylist() == list(range(6))
    assert [problem.queue_offset for problem in found.problems] == [3]


def test_what_is_not_wanted_cannot_be_damaged() -> None:
    chunk = b"".join(_bad(offset, "compressed") for offset in range(20))
    found = salvage(chunk, ["queue_offset"], inflate=True, check_crc=False, keeps_damaged=False)
    assert found.row_count == 20
    assert found.problems == []


def test_stored_bodies_need_not_be_readable() -> None:
    found = salvage(
        _bad(1, "compressed"), ["body"], inflate=False, check_crc=False, keeps_damaged=False
    )
    assert found.columns["body"].to_pylist() == [b"no zlib"]


def test_block_of_damage_alone_has_no_rows() -> None:
    assert _salvaged(b"x" * 500).row_count == 0
    assert _salvaged(b"x" * 500, keeps_damaged=True).row_count == 1
    assert _salvaged(compress(b"abc")).row_count == 0


def test_records_beyond_an_end_are_cut_off_and_damage_is_not() -> None:
    chunk = _record(1) + b"x" * 100 + _record(2) + _bad(3, "body size") + _record(4)
    assert records_below(chunk, 3) == _record(1) + b"x" * 100 + _record(2)
    assert records_below(chunk, 4) == chunk[: -len(_record(4))]
