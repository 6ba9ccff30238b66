"""Base of all header classes, and their conversion from and to `ext_fields`, a map of strings.

An attribute is spelled `producer_group` here and `producerGroup` on the wire; `msgspec.field(name="a")` sets another
wire name. A request without an attribute that has no default is refused, as in Java. Numbers are decimal text, booleans
are `true` or `false`, and None is omitted.

Headers are structs of msgspec, because each process makes 130 of these classes when it starts; attrs would take a
seventh of a start for them. Encoder and decoder of a class are compiled on first use: a loop over the fields would take
four times as long (docs/decisions/0051-header-codecs.md).

Invariant: a number is accepted exactly when Java's parseInt or parseLong accepts it.
Answers to: CommandCustomHeader, RemotingCommand.decodeCommandCustomHeader.
"""

import typing
from collections.abc import Callable
from types import NoneType, UnionType
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import attrs
import msgspec
from msgspec.structs import FieldInfo, fields

from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.frame import Body

ExtFields = dict[str, str]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_LONG: typing.Final = ("offset", "timestamp", "version", "millis", "broker_id")
"""Endings of the attributes that are long in Java; all other numbers are int."""
_LONG_LIMIT: typing.Final = 1 << 63
_INT_LIMIT: typing.Final = 1 << 31
_DIGITS_LIMIT: typing.Final = 1000  # int() refuses more than 4300.
_SAFE_DIGITS: typing.Final = 18  # Every number with this many digits fits 64 bits.
_SMALL_INTS: typing.Final = 1024  # Queue ids, counts and flags.
_ABSENT: typing.Final = "".join(("0", "0"))
"""Marks a missing optional number; made at run time, so that no received string is the same object."""
_TEXT_SHOWN: typing.Final = (
    80  # characters of a wrong field that its error, which is sent to the peer, quotes
)

# One entry a class.
_ENCODERS: typing.Final[dict[type, Callable[[Any], ExtFields]]] = {}
_DECODERS: typing.Final[dict[type, Callable[[ExtFields], Any]]] = {}


# gc=False: a header holds numbers and texts alone, and so is never in a cycle.
class Header(msgspec.Struct, rename="camel", gc=False):
    """Base of all headers, whose attributes are ext fields."""

    def to_ext_fields(self) -> ExtFields:
        """Return the fields as strings, ready to send."""
        cls = type(self)
        return (_ENCODERS.get(cls) or _compile_encoder(cls))(self)

    @classmethod
    def from_ext_fields(cls, ext_fields: ExtFields) -> Self:
        """Decode the fields. Raises RemoteProtocolError that names a missing or wrong field."""
        try:
            header: Self = (_DECODERS.get(cls) or _compile_decoder(cls))(ext_fields)
        except KeyError:
            required = (each.encode_name for each in fields(cls) if each.required)
            missing = next(name for name in required if name not in ext_fields)
            raise RemoteProtocolError(
                f"{cls.__name__}: the required field {missing!r} is missing"
            ) from None
        except ValueError:
            raise RemoteProtocolError(_wrong_field(cls, ext_fields)) from None
        return header


class EmptyHeader(Header):
    """The header of an answer without fields."""


class RequestHeader(Header):
    """Base of the headers of requests; `code` is the request code."""

    code: ClassVar[RequestCode]
    answers: ClassVar[type[Header]] = EmptyHeader
    """The header of the answer. A class whose answers have a body that one function reads names it too, as `body`."""


@attrs.frozen
class AnswerBody(Generic[T_co]):
    """Reads the body of an answer."""

    read: Callable[[Body], T_co]


def json_body(kind: type[T], *, what: str) -> AnswerBody[T]:
    """Return the reader of a body in JSON; an error of it names `what`."""
    return AnswerBody(lambda body: fastjson.loads(body, kind, what=what))


def optional(body: AnswerBody[T]) -> AnswerBody[T | None]:
    """Return the reader of a body that is empty if there is no such thing."""
    return AnswerBody(lambda data: body.read(data) if data else None)


class AnsweredBy(Protocol[T_co]):
    """A request whose answer has this header."""

    @property
    def answers(self) -> type[T_co]:
        """The class of the header."""


class AnsweredWith(Protocol[T_co]):
    """A request whose answer has this body."""

    @property
    def body(self) -> AnswerBody[T_co]:
        """The reader of the body."""


def true_text(text: str) -> bool:
    """Return whether a string means true: `true` in any case, as in Java, or the `1` of C++ clients."""
    return text == "true" or text == "1" or text.lower() == "true"


def value_type(field: FieldInfo) -> type:
    """Return the type of an attribute without None: `int` for both `int` and `int | None`."""
    hint = field.type
    if isinstance(hint, UnionType):
        (hint,) = [part for part in typing.get_args(hint) if part is not NoneType]
    assert hint in (int, str, bool), f"{field.name}: ext fields hold scalars"
    return typing.cast(type, hint)


def is_long(field: FieldInfo) -> bool:
    """Return whether a number is a long in Java, with 64 bits, rather than an int with 32."""
    return field.name.endswith(_LONG)


def _limit(field: FieldInfo) -> int:
    return _LONG_LIMIT if is_long(field) else _INT_LIMIT


def _compile_decoder(cls: type) -> Callable[[ExtFields], Any]:
    texts, arguments, longs = [], [], []
    names: dict[str, Any] = {"cls": cls, "true_text": true_text, "absent": _ABSENT}
    names["ints"] = _INTS
    for field in fields(cls):
        name, parse = field.encode_name, value_type(field)
        text, default = f"t_{field.name}", f"default_{field.name}"
        read = {int: "ints[%s]", str: "%s", bool: "true_text(%s)"}[parse]
        names[default] = field.default
        if parse is int and _limit(field) == _LONG_LIMIT:
            found = f"ext[{name!r}]" if field.required else f"ext.get({name!r}, absent)"
            texts.append(f"    {text} = {found}")
            number = f"int({text})"
            arguments.append(
                number if field.required else f"{default} if {text} is absent else {number}"
            )
            longs.append(text)
        elif field.required:
            arguments.append(read % f"ext[{name!r}]")
        else:
            found = read % "v"
            arguments.append(f"{found} if (v := ext.get({name!r})) is not None else {default}")
    lines = ["def decode(ext):", *texts, f"    h = cls({', '.join(arguments)})"]
    if longs:
        # Nearly always all are short strings of digits, which cannot be out of range. Check others one by one.
        names["check_longs"] = _check_longs
        together = "".join(f"{{{text}}}" for text in longs)
        sizes = "".join(f" or len({text}) > {_SAFE_DIGITS}" for text in longs)
        lines.append(
            f'    if not f"{together}".isdecimal(){sizes}: check_longs({", ".join(longs)})'
        )
    exec("\n".join([*lines, "    return h"]), names)
    _DECODERS[cls] = names["decode"]
    return _DECODERS[cls]


class _Ints(dict[str, int]):
    """Small numbers by their text, which is twice as fast as `int`; other texts are parsed."""

    def __missing__(self, text: str) -> int:
        return _parsed(text, _INT_LIMIT)


_INTS: typing.Final = _Ints({str(number): number for number in range(-1, _SMALL_INTS)})


def _check_longs(*texts: str) -> None:
    for text in texts:
        _parsed(text, _LONG_LIMIT)


def _parsed(text: str, limit: int) -> int:
    """Parse a number as Java's parseInt and parseLong do; `int` alone would also accept spaces and underscores."""
    if text[text[:1] in ("+", "-") :].isdecimal() and len(text) <= _DIGITS_LIMIT:
        number = int(text)
        if -limit <= number < limit:
            return number
        raise ValueError(f"which does not fit in {limit.bit_length()} bits")
    raise ValueError("which is not a number")


def _compile_encoder(cls: type) -> Callable[[Any], ExtFields]:
    always, sometimes = [], []
    for field in fields(cls):
        name, value = field.encode_name, f"h.{field.name}"
        text = {int: "str(%s)", str: "%s", bool: "'true' if %s else 'false'"}[value_type(field)]
        optional = NoneType in typing.get_args(field.type)
        if optional:
            sometimes.append(f"    if {value} is not None: ext[{name!r}] = {text % value}")
        else:
            always.append(f"{name!r}: {text % value}")
    lines = ["def encode(h):", f"    ext = {{{', '.join(always)}}}", *sometimes, "    return ext"]
    names: dict[str, Any] = {}
    exec("\n".join(lines), names)
    _ENCODERS[cls] = names["encode"]
    return _ENCODERS[cls]


def _wrong_field(cls: type, ext_fields: ExtFields) -> str:
    for field in fields(cls):
        text = ext_fields.get(field.encode_name)
        if text is not None and value_type(field) is int:
            what = f"{cls.__name__}: the field {field.encode_name!r} is {text[:_TEXT_SHOWN]!r}"
            try:
                _parsed(text, _limit(field))
            except ValueError as error:
                return f"{what}, {error}"
    return f"{cls.__name__}: a field cannot be read"
