"""Java's comparisons, value by value."""

from math import inf, nan

import pytest

from rocketrio_protocol.filter.values import (
    INT_LIMIT,
    LONG_LIMIT,
    Long,
    NotEvaluatedError,
    Value,
    compare,
    parse_double,
    parse_whole,
)


@pytest.mark.parametrize(
    ("left", "right", "sign"),
    [
        ("a", "a", 0),
        (5, 5, 0),
        (4, 5, -1),
        (5, 5.0, 0),
        (5.5, 5, 1),
        (Long(3_000_000_000), 5, 1),
        ("7", 5, 1),
        (5, "7", -1),
        ("-7", 5, -1),
        ("+7", 7, 0),
        ("3000000000", Long(3_000_000_000), 0),
        ("5.5", 5.5, 0),
        (5.5, "5.25", 1),
        ("true", True, 0),
        ("TRUE", True, 0),
        ("yes", False, 0),
        (True, 5, -1),
        (5, True, -1),
        (True, True, 0),
        (False, True, -1),
        (nan, inf, 1),
        (nan, nan, 0),
        (-0.0, 0.0, -1),
        (0.0, 0.0, 0),
    ],
)
def test_kinds_are_brought_together_as_java_does(left: Value, right: Value, sign: int) -> None:
    result = compare(left, right)
    assert (result > 0) - (result < 0) == sign


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("abc", 5),
        ("5.0", 5),
        ("3000000000", 5),
        (5, " 5"),
        ("9223372036854775808", Long(1 << 40)),
        ("x", 5.0),
        ("", 5.0),
        (True, "true"),
        ("9" * 5000, 5),
    ],
)
def test_what_java_throws_at_is_not_evaluated(left: Value, right: Value) -> None:
    with pytest.raises(NotEvaluatedError):
        compare(left, right)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (" 5 ", 5.0),
        ("5.", 5.0),
        (".5", 0.5),
        ("5e3", 5000.0),
        ("5d", 5.0),
        ("5.5F", 5.5),
        ("Infinity", inf),
        ("-Infinity", -inf),
        ("0x1p3", 8.0),
        ("-0x.8p1d", -1.0),
        ("0x1p5000", inf),
        ("1e5000", inf),
    ],
)
def test_doubles_are_read_as_java_reads_them(text: str, number: float) -> None:
    assert parse_double(text) == number


@pytest.mark.parametrize(
    "text", ["inf", "infinity", "1_0", "0x10", "e5", ".", "5ff", "", "\u00a05"]
)
def test_text_that_is_not_a_double_in_java_is_not_one_here(text: str) -> None:
    with pytest.raises(NotEvaluatedError):
        parse_double(text)


def test_whole_numbers_end_where_java_s_do() -> None:
    assert parse_whole("2147483647", INT_LIMIT) == 2**31 - 1
    assert parse_whole("-2147483648", INT_LIMIT) == -(2**31)
    assert parse_whole("-9223372036854775808", LONG_LIMIT) == -(2**63)
    for text in ("2147483648", "-2147483649", "+", "1_0", " 1"):
        with pytest.raises(NotEvaluatedError):
            parse_whole(text, INT_LIMIT)
