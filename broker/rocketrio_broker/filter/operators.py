"""What each operator of an expression does: a closure over the closures of its operands.

A closure takes the properties of one message as they are stored, and gives a value; of a boolean one True, False or
None, which is "unknown".

    AND  False if one is False, else None if one is None, else True     OR  the same with True
    a = b   None without a, False without b, True without both      a < b and so on   None without one of them

Invariant: operands are looked at from the left, and only as far as Java looks: what it does not look at cannot fail.
Answers to: LogicExpression, ComparisonExpression, UnaryExpression, UnaryInExpression, PropertyExpression.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from rocketrio_broker.filter.values import (
    INT_LIMIT,
    LONG_LIMIT,
    Long,
    Value,
    compare,
    parse_double,
    parse_whole,
)
from rocketrio_protocol.record.properties import NAME_VALUE_SEPARATOR, stored_value

Evaluate: TypeAlias = Callable[[bytes], Value]

ORDERINGS: Final[dict[str, Callable[[int, int], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def constant(value: Value) -> Evaluate:
    return lambda properties: value


def property_of(name: str) -> Evaluate:
    """The property's text, None where the message has none."""
    label = (name + NAME_VALUE_SEPARATOR).encode()

    def evaluate(properties: bytes) -> Value:
        value = stored_value(properties, label)
        return value.decode("utf-8", "replace") if value else None

    return evaluate


# ------------------------------------------------------------------------------------------------- logic


def all_of(operands: Sequence[Evaluate]) -> Evaluate:
    """AND."""
    return _unless_one_is(False, operands)


def any_of(operands: Sequence[Evaluate]) -> Evaluate:
    """OR."""
    return _unless_one_is(True, operands)


def _unless_one_is(decisive: bool, operands: Sequence[Evaluate]) -> Evaluate:
    """That value if one operand has it, else None if one is None, else the other one."""
    otherwise = not decisive

    def evaluate(properties: bytes) -> Value:
        result: Value = otherwise
        for operand in operands:
            value = operand(properties)
            if value is decisive:
                return decisive
            if value is None:
                result = None
        return result

    return evaluate


def negation(operand: Evaluate) -> Evaluate:
    """NOT."""

    def evaluate(properties: bytes) -> Value:
        value = operand(properties)
        return None if value is None else not value

    return evaluate


def as_boolean(operand: Evaluate) -> Evaluate:
    """A property where a condition is wanted: text is never true."""

    def evaluate(properties: bytes) -> Value:
        return None if operand(properties) is None else False

    return evaluate


# ------------------------------------------------------------------------------------------- comparisons


def equals(left: Evaluate, right: Evaluate) -> Evaluate:
    def evaluate(properties: bytes) -> Value:
        one, other = left(properties), right(properties)
        if one is None:
            return True if other is None else None
        return other is not None and compare(one, other) == 0

    return evaluate


def equals_text(left: Evaluate, text: str) -> Evaluate:
    """The same where the right is a string and the left a property: no kinds to look at."""

    def evaluate(properties: bytes) -> Value:
        value = left(properties)
        return None if value is None else value == text

    return evaluate


def is_null(operand: Evaluate) -> Evaluate:
    return lambda properties: operand(properties) is None


def ordering(left: Evaluate, right: Evaluate, symbol: str) -> Evaluate:
    holds = ORDERINGS[symbol]

    def evaluate(properties: bytes) -> Value:
        one = left(properties)
        if one is None:
            return None
        other = right(properties)
        if other is None:
            return None
        if isinstance(one, str) and isinstance(other, str):
            return holds(compare(parse_double(one), parse_double(other)), 0)
        return holds(compare(one, other), 0)

    return evaluate


def ordering_to_whole(left: Evaluate, number: int, symbol: str) -> Evaluate:
    """The same where the right is a whole number and the left a property."""
    holds = ORDERINGS[symbol]
    limit = LONG_LIMIT if isinstance(number, Long) else INT_LIMIT

    def evaluate(properties: bytes) -> Value:
        value = left(properties)
        if value is None:
            return None
        assert isinstance(value, str)
        return holds(parse_whole(value, limit), number)

    return evaluate


def is_in(left: Evaluate, texts: Sequence[str], *, wanted: bool) -> Evaluate:
    """IN, and with `wanted` False NOT IN."""
    elements = frozenset(texts)

    def evaluate(properties: bytes) -> Value:
        value = left(properties)
        return None if value is None else (value in elements) is wanted

    return evaluate


def text_test(
    left: Evaluate, test: Callable[[str, str], bool], text: str, *, wanted: bool
) -> Evaluate:
    """CONTAINS and its like; neither they nor their NOT forms hold without a text on either side."""
    if not text:
        return constant(False)

    def evaluate(properties: bytes) -> Value:
        value = left(properties)
        return isinstance(value, str) and test(value, text) is wanted

    return evaluate


def minus(operand: Evaluate) -> Evaluate:
    """A number with the other sign; nothing else has one, text neither."""

    def evaluate(properties: bytes) -> Value:
        value = operand(properties)
        if value is None or isinstance(value, str | bool):
            return None
        return Long(-value) if isinstance(value, Long) else -value

    return evaluate
