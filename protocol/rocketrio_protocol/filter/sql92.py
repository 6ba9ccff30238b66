"""Compiles an SQL92 subscription into a predicate over message properties.

    a > 5 AND (region = 'eu' OR region IS NULL) AND name NOT STARTSWITH 'test'

The parser (lark, LALR) builds the closures bottom-up while it parses; the values of a grammar rule are operands.

Answers to: SelectorParser, SqlFilter; RocketMQ reference, section 2.6.
Unlike Java: text that follows a whole expression is an error, not ignored; 0.0 is a number like any other.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

import attrs
from lark import Lark, Token, Transformer
from lark.exceptions import LarkError, UnexpectedInput, UnexpectedToken, VisitError

from rocketrio_protocol.errors import Error
from rocketrio_protocol.filter import operators
from rocketrio_protocol.filter.operators import Evaluate
from rocketrio_protocol.filter.values import INT_LIMIT, LONG_LIMIT, Long, Value, compare

EXPRESSION_SIZE_LIMIT: Final = 8 << 10
"""The most characters of an expression; parsing an expression of this size takes the broker 35 ms."""
DEPTH_LIMIT: Final = 100
"""The most operators inside each other; each costs a frame of Python's stack when a message is checked."""
_KEPT_SIZE: Final = 150_000
"""The most characters of all compiled expressions that are kept: pulls send theirs, even wrong ones, again and again.
A compiled expression takes about 110 bytes of memory per character: 16 MiB in all."""
_TEXT_SHOWN: Final = (
    100  # characters of a wrong expression in its error, which goes back to the peer
)

Matcher: TypeAlias = Callable[[bytes], bool]
"""Returns whether a message is selected, from its properties as they are stored."""

_GRAMMAR: Final = r"""
start: disjunction
?disjunction: conjunction (_OR conjunction)+ -> any_of
    | conjunction
?conjunction: equality (_AND equality)+ -> all_of
    | equality
?equality: comparison
    | equality "=" comparison -> equal
    | equality _UNEQUAL comparison -> not_equal
    | equality _IS _NULL -> is_null
    | equality _IS _NOT _NULL -> is_not_null
?comparison: unary
    | comparison ORDER unary -> ordering
    | comparison TEST STRING -> text_test
    | comparison _NOT TEST STRING -> not_text_test
    | comparison _BETWEEN unary _AND unary -> between
    | comparison _NOT _BETWEEN unary _AND unary -> not_between
    | comparison _IN "(" STRING ("," STRING)* ")" -> is_in
    | comparison _NOT _IN "(" STRING ("," STRING)* ")" -> is_not_in
?unary: primary
    | "+" unary
    | "-" unary -> minus
    | _NOT unary -> negation
?primary: STRING -> string
    | WHOLE -> whole
    | FLOAT -> double
    | _TRUE -> true
    | _FALSE -> false
    | _NULL -> null
    | NAME -> name
    | "(" disjunction ")"

_OR.2: /OR(?![\w$])/i
_AND.2: /AND(?![\w$])/i
_NOT.2: /NOT(?![\w$])/i
_IS.2: /IS(?![\w$])/i
_IN.2: /IN(?![\w$])/i
_NULL.2: /NULL(?![\w$])/i
_TRUE.2: /TRUE(?![\w$])/i
_FALSE.2: /FALSE(?![\w$])/i
_UNEQUAL.2: "<>"
_BETWEEN.2: /BETWEEN(?![\w$])/i
TEST.2: /(CONTAINS|STARTSWITH|ENDSWITH)(?![\w$])/i
NAME: /[a-z_$][a-z0-9_$]*/i
FLOAT.2: /[0-9]+\.[0-9]*(e[+-]?[0-9]+)?|\.[0-9]+(e[+-]?[0-9]+)?|[0-9]+e[+-]?[0-9]+/i
WHOLE: /0|[1-9][0-9]*l?/i
STRING: /'(''|[^'])*'/
ORDER: "<=" | ">=" | "<" | ">"
BLANK: /[ \t\n\r\f]+/
%ignore BLANK
"""

# Each alternative matches to the end of the text if its string or comment is not closed, so that no part of a text is
# scanned again for each beginning in it. No group is possessive: with a lookahead inside such a group, Python before
# 3.11.4 matches wrongly.
_STRING_OR_BLOCK: Final = r"(?P<string>'[^']*(?:''[^']*)*(?:'|\Z))|(?P<block>/\*(?s:.*?)(?:\*/|\Z))"
_LEXICAL: Final = re.compile(_STRING_OR_BLOCK + r"|(?P<line>--[^\n\r]*+(?:[\n\r]|\Z))")
_LAST_LINE: Final = re.compile(_STRING_OR_BLOCK)

_TESTS: Final[dict[str, Callable[[str, str], bool]]] = {
    "CONTAINS": str.__contains__,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


class ExpressionError(Error):
    """The text is not an SQL92 expression, or Java refuses it; the error says where and why."""


@attrs.frozen
class _Operand:
    """One part of an expression."""

    evaluate: Evaluate
    is_boolean: bool = False
    is_constant: bool = False
    value: Value = None
    """The value of a constant; None for others."""
    is_property: bool = False
    depth: int = 1

    def __attrs_post_init__(self) -> None:
        if self.depth > DEPTH_LIMIT:
            raise ExpressionError(f"more than {DEPTH_LIMIT} operators are nested")


def _condition(evaluate: Evaluate, *operands: _Operand) -> _Operand:
    return _Operand(evaluate, is_boolean=True, depth=_depth(operands) + 1)


def _depth(operands: Sequence[_Operand]) -> int:
    return max(operand.depth for operand in operands)


def _constant(value: Value, *, is_boolean: bool = False) -> _Operand:
    return _Operand(operators.constant(value), is_boolean, is_constant=True, value=value)


def _as_boolean(operand: _Operand) -> Evaluate:
    if operand.is_boolean:
        return operand.evaluate
    if operand.is_property:
        return operators.as_boolean(operand.evaluate)
    raise ExpressionError("a condition is needed where there is only a value")


def _text(token: Token) -> str:
    return token[1:-1].replace("''", "'")


class _Builder(Transformer[Token, Any]):
    """Builds the closures, with one method per rule of the grammar; refuses what Java's parser refuses."""

    def start(self, parts: list[_Operand]) -> Evaluate:
        return _as_boolean(parts[0])

    def any_of(self, parts: list[_Operand]) -> _Operand:
        return _condition(operators.any_of([_as_boolean(part) for part in parts]), *parts)

    def all_of(self, parts: list[_Operand]) -> _Operand:
        return _condition(operators.all_of([_as_boolean(part) for part in parts]), *parts)

    def negation(self, parts: list[_Operand]) -> _Operand:
        return _condition(operators.negation(_as_boolean(parts[0])), *parts)

    # ------------------------------------------------------------------------------------ equality

    def equal(self, parts: list[_Operand]) -> _Operand:
        left, right = parts
        if any(part.is_constant and part.value is None for part in parts):
            raise ExpressionError("NULL is compared with IS NULL and IS NOT NULL")
        if left.is_constant and left.is_boolean and right.is_constant and not right.is_boolean:
            raise ExpressionError(f"{left.value} cannot be compared with {right.value!r}")
        if left.is_property and isinstance(right.value, str):
            return _condition(operators.equals_text(left.evaluate, right.value), *parts)
        return _condition(operators.equals(left.evaluate, right.evaluate), *parts)

    def not_equal(self, parts: list[_Operand]) -> _Operand:
        return self.negation([self.equal(parts)])

    def is_null(self, parts: list[_Operand]) -> _Operand:
        return _condition(operators.is_null(parts[0].evaluate), *parts)

    def is_not_null(self, parts: list[_Operand]) -> _Operand:
        return self.negation([self.is_null(parts)])

    # ------------------------------------------------------------------------------------ ordering

    def ordering(self, parts: list[Any]) -> _Operand:
        left, symbol, right = parts
        return self._ordering(left, str(symbol), right)

    def _ordering(self, left: _Operand, symbol: str, right: _Operand) -> _Operand:
        for part in (left, right):
            is_number = isinstance(part.value, int | float) and not isinstance(part.value, bool)
            if part.is_boolean or (part.is_constant and not is_number):
                raise ExpressionError(f"{symbol} compares numbers and properties, nothing else")
        if left.is_property and isinstance(right.value, int):
            evaluate = operators.ordering_to_whole(left.evaluate, right.value, symbol)
        else:
            evaluate = operators.ordering(left.evaluate, right.evaluate, symbol)
        return _condition(evaluate, left, right)

    def between(self, parts: list[_Operand]) -> _Operand:
        value, low, high = parts
        if any(bound.is_constant and bound.value is None for bound in (low, high)):
            raise ExpressionError("BETWEEN cannot have NULL as a bound")
        both = [self._ordering(value, ">=", low), self._ordering(value, "<=", high)]
        if low.is_constant and high.is_constant and compare(high.value, low.value) < 0:
            raise ExpressionError(f"the bounds of BETWEEN fall from {low.value} to {high.value}")
        return self.all_of(both)

    def not_between(self, parts: list[_Operand]) -> _Operand:
        value, low, high = parts
        return self.any_of([self._ordering(value, "<", low), self._ordering(value, ">", high)])

    # ----------------------------------------------------------------------------------------- text

    def text_test(self, parts: list[Any], *, wanted: bool = True) -> _Operand:
        left, name, text = parts
        test = _TESTS[name.upper()]
        return _condition(
            operators.text_test(left.evaluate, test, _text(text), wanted=wanted), left
        )

    def not_text_test(self, parts: list[Any]) -> _Operand:
        return self.text_test(parts, wanted=False)

    def is_in(self, parts: list[Any], *, wanted: bool = True) -> _Operand:
        left, *texts = parts
        if not left.is_property:
            raise ExpressionError("only a property can be IN a list")
        return _condition(
            operators.is_in(left.evaluate, [_text(text) for text in texts], wanted=wanted), left
        )

    def is_not_in(self, parts: list[Any]) -> _Operand:
        return self.is_in(parts, wanted=False)

    # --------------------------------------------------------------------------------------- values

    def minus(self, parts: list[_Operand]) -> _Operand:
        return _Operand(operators.minus(parts[0].evaluate), depth=_depth(parts) + 1)

    def string(self, parts: list[Token]) -> _Operand:
        return _constant(_text(parts[0]))

    def whole(self, parts: list[Token]) -> _Operand:
        digits = parts[0].rstrip("lL")
        if len(digits) > len(str(LONG_LIMIT)) or (number := int(digits)) >= LONG_LIMIT:
            raise ExpressionError(f"{digits} does not fit 64 bits")
        return _constant(number if number < INT_LIMIT else Long(number))

    def double(self, parts: list[Token]) -> _Operand:
        number = float(parts[0])
        if number == float("inf"):
            raise ExpressionError(f"{parts[0]} is too large")
        return _constant(number)

    def true(self, parts: list[Token]) -> _Operand:
        return _constant(True, is_boolean=True)

    def false(self, parts: list[Token]) -> _Operand:
        return _constant(False, is_boolean=True)

    def null(self, parts: list[Token]) -> _Operand:
        return _constant(None, is_boolean=True)

    def name(self, parts: list[Token]) -> _Operand:
        return _Operand(operators.property_of(str(parts[0])), is_property=True)


@lru_cache(1)
def _parser() -> Lark:
    """Return the parser, made for the first expression, because that takes some 20 ms."""
    return Lark(_GRAMMAR, parser="lalr", lexer="basic", transformer=_Builder())


def _without_comments(text: str) -> str:
    """Return the expression with a blank for each character of a comment, so that positions stay the same.

    A line comment ends with its line; without a line break `--` is two signs, as in Java. Raises ExpressionError for
    a block comment without an end.
    """

    def blank(match: re.Match[str]) -> str:
        found, kind = match[0], match.lastgroup
        if kind == "string":
            return found
        if kind == "line" and found[-1] not in "\n\r":
            return "--" + _LAST_LINE.sub(blank, found[2:])
        if kind == "block" and (not found.endswith("*/") or found == "/*/"):
            raise ExpressionError("a comment has no end")
        return " " * len(found)

    return _LEXICAL.sub(blank, text)


class _Kept:
    """The most recently used compiled expressions, up to `size_limit` characters together."""

    def __init__(self, size_limit: int) -> None:
        self.size = 0
        self._size_limit = size_limit
        self._compiled: dict[str, Matcher | str] = {}

    def __contains__(self, text: str) -> bool:
        return text in self._compiled

    def get(self, text: str) -> Matcher | str | None:
        found = self._compiled.pop(text, None)
        if found is not None:
            self._compiled[text] = found  # Moved to the end: it is now the last one to be removed.
        return found

    def put(self, text: str, compiled: Matcher | str) -> Matcher | str:
        self._compiled[text] = compiled
        self.size += len(text)
        while self.size > self._size_limit:
            oldest = next(iter(self._compiled))
            del self._compiled[oldest]
            self.size -= len(oldest)
        return compiled


_kept: Final = _Kept(_KEPT_SIZE)


def is_compiled(text: str) -> bool:
    """Return whether the expression is kept from an earlier use."""
    return text in _kept


def compile_sql92(text: str) -> Matcher:
    """Compile an expression into a function that selects messages. Raises ExpressionError, which says what is wrong."""
    if len(text) > EXPRESSION_SIZE_LIMIT:
        raise ExpressionError(
            f"an expression of {len(text)} characters; {EXPRESSION_SIZE_LIMIT} is the limit"
        )
    compiled = _kept.get(text)
    if compiled is None:
        compiled = _kept.put(text, _compile(text))
    if isinstance(compiled, str):
        raise ExpressionError(compiled)
    return compiled


def _compile(text: str) -> Matcher | str:
    """Return the function that selects messages, or a text that says what is wrong."""
    shown = repr(text if len(text) <= _TEXT_SHOWN else text[:_TEXT_SHOWN] + "...")
    try:
        evaluate: Evaluate = _parser().parse(_without_comments(text))  # type: ignore[assignment]  # what `start` gave
    except ExpressionError as error:
        return error.what
    except VisitError as error:
        if isinstance(error.orig_exc, ExpressionError):
            return error.orig_exc.what
        raise
    except UnexpectedInput as error:
        is_end = isinstance(error, UnexpectedToken) and error.token.type == "$END"
        where = "its end" if is_end else f"character {(error.pos_in_stream or 0) + 1}"
        return f"{shown} is not an SQL92 expression, as {where} shows"
    except LarkError as error:
        return f"{shown} is not an SQL92 expression: {error}"

    def matches(properties: bytes) -> bool:
        try:
            return evaluate(properties) is True
        except ValueError:  # Where Java would throw, the message is not selected.
            return False

    return matches
