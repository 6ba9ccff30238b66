"""The operators of an expression, each a closure over the closures of its operands.

A closure takes the stored properties of one message and returns a value; a boolean operator returns True, False or
None, which is "unknown".

    AND  False if one is False, else None if one is None, else True     OR  the same with True
    a = b   None without a, False without b, True without both      a < b and so on   None without one of them

Invariant: operands are evaluated from the left, only as far as in Java: an operand that is not evaluated cannot fail.
Answers to: LogicExpression, ComparisonExpression, UnaryExpression, UnaryInExpression, PropertyExpression.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from rocketrio_protocol.filter.values import (
    INT_LIMIT,
    LONG_LIMIT,
    Long,
    Value,
    compare,
    parse_double,
    parse_whole,
)
from rocketrio_protocol.record.properties import property_label, stored_value

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
    """Return a closure for the property's text, or None if the message does not have it."""
    label = property_label(name)

    def evaluate(properties: bytes) -> Value:
        value = stored_value(properties, label)
        return value.decode("utf-8", "replace") if value else None

    return evaluate


# ------------------------------------------------------------------------------------------------- logic


def all_of(operands: Sequence[Evaluate]) -> Evaluate:
    """Combine with AND."""
    return _unless_one_is(False, operands)


def any_of(operands: Sequence[Evaluate]) -> Evaluate:
    """Combine with OR."""
    return _unless_one_is(True, operands)


def _unless_one_is(decisive: bool, operands: Sequence[Evaluate]) -> Evaluate:
    """Return `decisive` if one operand is that, else None if one is None, else the other value."""
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
    """Apply NOT."""

    def evaluate(properties: bytes) -> Value:
        value = operand(properties)
        return None if value is None else not value

    return evaluate


def as_boolean(operand: Evaluate) -> Evaluate:
    """Use a property as a condition: text is never true."""

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
    """Compare a property with a string; a faster form of `equals`."""

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
    """Order a property and a whole number; a faster form of `ordering`."""
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
    """Apply IN, or NOT IN if `wanted` is False."""
    elements = frozenset(texts)

    def evaluate(properties: bytes) -> Value:
        value = left(properties)
        return None if value is None else (value in elements) is wanted

    return evaluate


def text_test(
    left: Evaluate, test: Callable[[str, str], bool], text: str, *, wanted: bool
) -> Evaluate:
    """Apply CONTAINS, STARTSWITH or ENDSWITH; they and their NOT forms are false if either side has no text."""
    if not text:
        return constant(False)

    def evaluate(properties: bytes) -> Value:
        value = left(properties)
        return isinstance(value, str) and test(value, text) is wanted

    return evaluate


def minus(operand: Evaluate) -> Evaluate:
    """Negate a number; the result is None for all else, also for text."""

    def evaluate(properties: bytes) -> Value:
        value = operand(properties)
        if value is None or isinstance(value, str | bool):
            return None
        return Long(-value) if isinstance(value, Long) else -value

    return evaluate
