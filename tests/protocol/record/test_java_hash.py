"""The order of properties that an Apache 4.9 broker wrote again, against those of its own log."""

from pathlib import Path

import pytest
from tests.support.replay import golden_records

from rocketrio_protocol.record.java_hash import java_ordered, java_properties_text


def test_properties_that_a_broker_re_encoded_are_in_its_order(tmp_path: Path) -> None:
    rewritten = [
        record for record in golden_records("4.9.7", tmp_path) if "REAL_TOPIC" in record.properties
    ]
    assert len(rewritten) >= 10
    for record in rewritten:
        assert java_properties_text(record.properties).encode() == record.stored_properties


@pytest.mark.parametrize(
    ("names", "ordered"),
    [
        (["Aa", "BB"], ["Aa", "BB"]),  # Equal hashes: as they were put.
        (["BB", "Aa"], ["BB", "Aa"]),
        (["q", "a", "p"], ["p", "q", "a"]),  # 16 buckets: p is 112, q 113, a 97.
    ],
)
def test_few_names_are_in_javas_order(names: list[str], ordered: list[str]) -> None:
    assert list(java_ordered(dict.fromkeys(names, "v"))) == ordered


def test_more_than_twelve_have_twice_the_buckets() -> None:
    names = [chr(code) for code in range(ord("a"), ord("m"))]
    assert list(java_ordered(dict.fromkeys(names, "v")))[:1] == ["a"]
    assert list(java_ordered(dict.fromkeys([*names, "P"], "v")))[:2] == ["a", "b"]
    few = java_ordered({"P": "v", "a": "v"})
    many = java_ordered(dict.fromkeys(["P", *names], "v"))
    assert list(few) == ["P", "a"]
    assert list(many)[-1] == "P"
