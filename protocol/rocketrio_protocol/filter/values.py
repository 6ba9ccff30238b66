"""The values of an expression, and how Java compares two of them.

    property          str, or None if the message does not have it
    5  5000000000  5L     int (Java's Integer) or Long: by size, as Java does, whatever its suffix
    5.0  .5  5E3          float (Java's Double)
    TRUE FALSE            bool

A string compared with a number is parsed as a number of that kind. If that is impossible it is an error, and after an
error anywhere the message is not selected.

Answers to: ComparisonExpression.__compare, ConstantExpression; Integer, Long and Double's valueOf and compareTo.
"""

import re
from typing import Final, TypeAlias

INT_LIMIT: Final = 1 << 31
LONG_LIMIT: Final = 1 << 63
NOT_COMPARABLE: Final = -1
"""The result in Java of comparing what has no order, a boolean with a number: less."""

_INTEGER: Final = re.compile(r"[+-]?\d+")
_DECIMAL: Final = re.compile(
    r"[+-]?(NaN|Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?)"
)
_HEX_FLOAT: Final = re.compile(
    r"([+-]?0[xX]([0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
_JAVA_BLANKS: Final = "".join(map(chr, range(0x21)))  # the characters that String.trim removes
_DIGITS_LIMIT: Final = 1000  # int() refuses a text of more than 4300


class Long(int):
    """A whole number beyond 32 bits, or the negation of one; strings compared with it may have 64 bits."""

    __slots__ = ()


Value: TypeAlias = str | int | float | bool | None


class NotEvaluatedError(ValueError):
    """An expression for which Java would throw: the message is not selected."""


def parse_whole(text: str, limit: int) -> int:
    """Parse like Integer.valueOf or Long.valueOf. Raises NotEvaluatedError."""
    if _INTEGER.fullmatch(text) is None or len(text) > _DIGITS_LIMIT:
        raise NotEvaluatedError(f"{text!r} is not a whole number")
    number = int(text)
    if not -limit <= number < limit:
        raise NotEvaluatedError(f"{text!r} is too large")
    return number


def parse_double(text: str) -> float:
    """Parse like Double.valueOf. Raises NotEvaluatedError."""
    text = text.strip(_JAVA_BLANKS)
    if _DECIMAL.fullmatch(text) is not None:
        return float(text.rstrip("fFdD") if text[-1] in "fFdD" else text)
    found = _HEX_FLOAT.fullmatch(text)
    if found is None:
        raise NotEvaluatedError(f"{text!r} is not a number")
    try:
        return float.fromhex(found[1])
    except OverflowError:
        return float("-inf" if text[0] == "-" else "inf")


def parse_boolean(text: str) -> bool:
    """Parse like Boolean.valueOf: `true` in any case is true, anything else is false."""
    return text.lower() == "true"


def compare(left: Value, right: Value) -> int:
    """Return a number below, at or above 0, like Java's compareTo after conversion to one kind.

    Raises NotEvaluatedError.
    """
    left_kind, right_kind = type(left), type(right)
    if left_kind is right_kind:
        return _compare_same(left, right)
    if left_kind is str:
        assert isinstance(left, str)
        return _compare_same(*_read_as(left, right))
    if right_kind is str:
        assert isinstance(right, str)
        if left_kind is bool:
            # Java casts the boolean to a string here, which throws.
            raise NotEvaluatedError(f"{left!r} cannot be compared with {right!r}")
        one, other = _read_as(right, left)
        return _compare_same(other, one)
    if left_kind is bool or right_kind is bool:
        return NOT_COMPARABLE
    assert isinstance(left, int | float)
    assert isinstance(right, int | float)
    if left_kind is float or right_kind is float:
        return _compare_doubles(float(left), float(right))
    return _compare_same(int(left), int(right))


def _read_as(text: str, other: Value) -> tuple[Value, Value]:
    """Return the text as a value of the other value's kind, and the other value."""
    kind = type(other)
    if kind is bool:
        return parse_boolean(text), other
    if kind is Long:
        return parse_whole(text, LONG_LIMIT), other
    if kind is int:
        return parse_whole(text, INT_LIMIT), other
    return parse_double(text), other


def _compare_same(left: Value, right: Value) -> int:
    if type(left) is float:
        assert isinstance(right, float)
        return _compare_doubles(left, right)
    return (left > right) - (left < right)  # type: ignore[operator]


def _compare_doubles(left: float, right: float) -> int:
    """Compare like Double.compare: NaN is above everything and equal to itself, -0.0 is below 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    if left == right and left != 0.0:
        return 0
    return (_order(left) > _order(right)) - (_order(left) < _order(right))


def _order(number: float) -> int:
    if number != number:
        return 2
    return 0 if str(number) == "-0.0" else 1
