r"""Format strings for messages, as in `rpk topic consume -f`: how a message is printed, and how one is read.

    %t topic       %p queue id    %o offset        %b broker        %m message id    %u unique key
    %k keys        %g tags        %v body          %T %K %V         the lengths of topic, keys and body
    %h{ %k=%v}     each property  %H how many      %r times tried   %i messages so far, from 1
    %d stored, %D born: milliseconds since 1970; %d{iso} and %d{strftime[%F %T]} as text
    %f{key}        a field of the JSON form, as in any row
    %% %{ %}       these characters; \n \t \r \0 \\ \x1f bytes

A body that cannot be read is printed as nothing; `%f{body_error}` says why.

`{json}`, `{hex}`, `{base64}` and `{text}` after a letter choose a form: a JSON string, or null if there is none;
digits; or text that cannot steer the terminal. Otherwise bytes are printed as they are, and what is not there as
nothing.

Invariant: what a format prints, the same format reads, if no value contains the text that follows it in the format.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from rocketrio.cli.json_values import json_text
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.log_lines import printable
from rocketrio_protocol.record.properties import PROPERTY_UNIQUE_KEY

if TYPE_CHECKING:
    from rocketrio_protocol.message import MessageExt

FORMS: Final = ("json", "hex", "base64", "text")
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_HEX: Final = re.compile(r"[0-9a-fA-F]{2}")
_STRFTIME: Final = re.compile(r"strftime\[(.*)\]", re.DOTALL)

Value: TypeAlias = bytes | int | datetime | None
"""What a letter stands for in one message."""


@attrs.frozen
class Field:
    """A letter of a format, with what follows it in braces."""

    letter: str
    argument: str | None = None


Part: TypeAlias = bytes | Field


def parse_format(text: str, letters: Mapping[str, str]) -> tuple[Part, ...]:
    """Return the parts of a format; `letters` says what each letter stands for.

    Raises ConfigError that names the place and the letters.
    """
    parts: list[Part] = []
    literal = bytearray()
    index = 0
    while index < len(text):
        character = text[index]
        following = text[index + 1 : index + 2]
        if character == "\\":
            escape, index = _escape(text, index)
            literal += escape
        elif character != "%":
            literal += character.encode(errors="surrogateescape")
            index += 1
        elif following in ("%", "{", "}"):
            literal += following.encode()
            index += 2
        elif following not in letters or not following:
            known = ", ".join(f"%{letter} {what}" for letter, what in letters.items())
            raise ConfigError(f"%{following} at {index + 1} of {text!r} is not one of {known}")
        else:
            argument, index = _argument(text, index + 2)
            if literal:
                parts.append(bytes(literal))
                literal.clear()
            parts.append(Field(following, argument))
    return (*parts, bytes(literal)) if literal else tuple(parts)


def _escape(text: str, index: int) -> tuple[bytes, int]:
    following = text[index + 1 : index + 2]
    if following == "x" and _HEX.fullmatch(text[index + 2 : index + 4]):
        return bytes.fromhex(text[index + 2 : index + 4]), index + 4
    if following not in _ESCAPES or not following:
        raise ConfigError(
            rf"\{following} at {index + 1} of {text!r} is not one of \n \t \r \0 \\ and \x1f"
        )
    return _ESCAPES[following], index + 2


def _argument(text: str, index: int) -> tuple[str | None, int]:
    """Return what is in braces at this place, None if there are none, and the place behind them."""
    if text[index : index + 1] != "{":
        return None, index
    end = index + 1
    while end < len(text) and text[end] != "}":
        end += 2 if text[end] in "%\\" else 1
    if end >= len(text):
        raise ConfigError(f"the brace at {index + 1} of {text!r} is not closed; %{{ prints one")
    return text[index + 1 : end], end + 1


# --------------------------------------------------------------------------------------- printing

LETTERS: Final = {
    "t": "topic", "p": "queue", "o": "offset", "b": "broker", "m": "message id", "u": "unique key",
    "k": "keys", "g": "tags", "v": "body", "T": "length of topic", "K": "length of keys",
    "V": "length of body", "h": "properties", "H": "how many", "d": "stored", "D": "born",
    "r": "times tried", "i": "messages so far", "f": "a field",
}  # fmt: skip
_VALUES: Final[Mapping[str, Callable[[MessageExt], Value]]] = {
    "t": lambda one: one.topic.encode(),
    "p": lambda one: one.queue_id,
    "o": lambda one: one.queue_offset,
    "b": lambda one: one.broker_name.encode() or None,
    "m": lambda one: one.message_id.encode(),
    "u": lambda one: _encoded(one.properties.get(PROPERTY_UNIQUE_KEY)),
    "k": lambda one: one.keys.encode() or None,
    "g": lambda one: _encoded(one.tags),
    "v": lambda one: None if one.body_error is not None else one.body,
    "T": lambda one: len(one.topic.encode()),
    "K": lambda one: len(one.keys.encode()),
    "V": lambda one: None if one.body_error is not None else len(one.body),
    "H": lambda one: len(one.properties),
    "d": lambda one: one.store_time,
    "D": lambda one: one.born_time,
    "r": lambda one: one.reconsume_times,
}
_PROPERTY_LETTERS: Final = {"k": "name", "v": "value"}

Printer: TypeAlias = "Callable[[MessageExt, int], bytes]"
"""Prints a message, of which the number is given."""


@lru_cache
def message_printer(
    text: str, row: Callable[[MessageExt], Mapping[str, Any]], *, utc: bool = False
) -> Printer:
    """Return the function that prints a message in this format; `row` gives its fields. Raises ConfigError."""
    steps = [_step(part, row, utc) for part in parse_format(text, LETTERS)]
    return lambda message, number: b"".join([step(message, number) for step in steps])


@lru_cache
def has_body(text: str) -> bool:
    """Return whether a format prints something of the body, which is nothing if it cannot be read."""
    fields = (part for part in parse_format(text, LETTERS) if isinstance(part, Field))
    return any(field.letter in ("v", "V") for field in fields)


@lru_cache
def row_printer(text: str) -> Callable[[Mapping[str, Any], int], bytes]:
    """Return the function that prints a row of any command in this format. Raises ConfigError."""
    letters = {"f": "a field, as %f{group}", "i": "rows so far"}
    parts = parse_format(text, letters)
    for part in parts:
        if isinstance(part, Field) and part.letter == "f":
            _named(part)

    def print_row(row: Mapping[str, Any], number: int) -> bytes:
        return b"".join(
            part
            if isinstance(part, bytes)
            else str(number).encode()
            if part.letter == "i"
            else _field(row, _named(part))
            for part in parts
        )

    return print_row


def _step(part: Part, row: Callable[[MessageExt], Mapping[str, Any]], utc: bool) -> Printer:
    if isinstance(part, bytes):
        return lambda message, number: part
    letter, argument = part.letter, part.argument
    if letter == "i":
        return lambda message, number: str(number).encode()
    if letter == "f":
        name = _named(part)
        return lambda message, number: _field(row(message), name)
    if letter == "h":
        inner = parse_format(" %k=%v" if argument is None else argument, _PROPERTY_LETTERS)
        return lambda message, number: b"".join(_properties(message.properties, inner))
    shown = _time_form(argument, utc) if letter in "dD" else _form(argument)
    value = _VALUES[letter]
    return lambda message, number: shown(value(message))


def _properties(properties: Mapping[str, str], parts: Sequence[Part]) -> Iterator[bytes]:
    for name, value in properties.items():
        for part in parts:
            if isinstance(part, bytes):
                yield part
            else:
                yield _form(part.argument)((name if part.letter == "k" else value).encode())


def _form(argument: str | None) -> Callable[[Value], bytes]:
    if argument is None:
        return _raw
    if argument not in FORMS:
        raise ConfigError(f"{{{argument}}} is not one of {', '.join(FORMS)}")
    return {"json": _json, "hex": _hex, "base64": _base64, "text": _text}[argument]


def _time_form(argument: str | None, utc: bool) -> Callable[[Value], bytes]:
    zone = UTC if utc else None
    if argument is None:
        return lambda time: str(round(_time(time).timestamp() * 1000)).encode()
    if argument == "iso":
        return lambda time: _time(time).astimezone(zone).isoformat(timespec="milliseconds").encode()
    found = _STRFTIME.fullmatch(argument)
    if found is None:
        raise ConfigError(f"{{{argument}}} is neither {{iso}} nor {{strftime[%F %T]}}")
    form = found[1]
    return lambda time: _time(time).astimezone(zone).strftime(form).encode()


def _time(value: Value) -> datetime:
    assert isinstance(value, datetime)
    return value


def _raw(value: Value) -> bytes:
    if value is None:
        return b""
    return value if isinstance(value, bytes) else str(value).encode()


def _json(value: Value) -> bytes:
    if isinstance(value, bytes):
        return json.dumps(value.decode(errors="replace"), ensure_ascii=False).encode()
    return json.dumps(value).encode()


def _hex(value: Value) -> bytes:
    return _raw(value).hex().encode()


def _base64(value: Value) -> bytes:
    return base64.b64encode(_raw(value))


def _text(value: Value) -> bytes:
    return printable(_raw(value).decode(errors="backslashreplace")).encode()


def _named(part: Field) -> str:
    if not part.argument:
        raise ConfigError("%f needs the name of a field, as %f{topic}")
    return part.argument


def _field(row: Mapping[str, Any], name: str) -> bytes:
    if name not in row:
        raise ConfigError(f"there is no field {name!r}: {', '.join(row)}")
    value = row[name]
    return (value if isinstance(value, str) else json_text(value)).encode(errors="replace")


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


# ---------------------------------------------------------------------------------------- reading

READ_LETTERS: Final = {"t": "topic", "k": "keys", "g": "tags", "v": "body"}


class RecordReader:
    """Cuts a stream of bytes into records of a format: each field ends where the text that follows it begins.

    After an error the reader cannot go on, because it does not know where the next record begins.
    """

    def __init__(self, text: str) -> None:
        """Take the format. Raises ConfigError if it has no body, or no text between two fields."""
        self._parts = parse_format(text, READ_LETTERS)
        fields = [part for part in self._parts if isinstance(part, Field)]
        if "v" not in {field.letter for field in fields}:
            raise ConfigError(f"{text!r} reads no body, %v")
        if len({field.letter for field in fields}) < len(fields):
            raise ConfigError(f"{text!r} reads a field twice")
        for field in fields:
            if field.argument is not None and field.argument not in ("json", "hex", "base64"):
                raise ConfigError(f"{{{field.argument}}} is not one of json, hex, base64")
        for part, following in zip(self._parts, (*self._parts[1:], None), strict=True):
            if isinstance(part, Field) and not isinstance(following, bytes):
                raise ConfigError(
                    f"%{part.letter} of {text!r} has no end: put a text behind it, as \\n"
                )
        self._text = text
        self._buffer = b""
        self._index = 0
        self._found: dict[str, bytes] = {}
        self.records = 0
        """The records that were read."""

    @property
    def waiting(self) -> int:
        """The bytes of the record that has not ended."""
        return len(self._buffer) + sum(map(len, self._found.values()))

    def feed(self, data: bytes) -> Iterator[dict[str, bytes]]:
        """Yield the fields of each record that ends in these bytes, by letter. Raises ConfigError for a wrong one."""
        self._buffer += data
        while True:
            part = self._parts[self._index]
            if isinstance(part, bytes):
                if len(self._buffer) < len(part):
                    self._must_begin(part)
                    return
                self._must_begin(part)
                self._buffer = self._buffer[len(part) :]
            else:
                end = self._parts[self._index + 1]
                assert isinstance(end, bytes)
                at = self._buffer.find(end)
                if at < 0:
                    return
                self._found[part.letter] = self._decoded(part, self._buffer[:at])
                self._buffer = self._buffer[at:]
            self._index += 1
            if self._index == len(self._parts):
                record, self._found, self._index = self._found, {}, 0
                self.records += 1
                yield record

    def end(self) -> Iterator[dict[str, bytes]]:
        """Yield the last record if only the text behind its last field is missing. Raises ConfigError for a part."""
        last = self._parts[-1]
        is_last_field = self._index == len(self._parts) - 2 and self._buffer
        if is_last_field and isinstance(last, bytes):
            yield from self.feed(last)
        if self._buffer or self._found:
            raise ConfigError(f"record {self.records + 1} ends before {self._text!r} does")

    def _must_begin(self, literal: bytes) -> None:
        if not self._buffer.startswith(literal[: len(self._buffer)]):
            raise ConfigError(
                f"record {self.records + 1} has {self._buffer[: len(literal)]!r} where {self._text!r} has {literal!r}"
            )

    def _decoded(self, field: Field, data: bytes) -> bytes:
        from rocketrio_protocol.nesting import MESSAGE_DEPTH_LIMIT, check_depth

        try:
            if field.argument == "hex":
                return bytes.fromhex(data.decode())
            if field.argument == "base64":
                return base64.b64decode(data, validate=True)
            if field.argument == "json":
                check_depth(data, MESSAGE_DEPTH_LIMIT)
                found = json.loads(data)
                if found is None:
                    return b""
                return found.encode() if isinstance(found, str) else data
        except (ValueError, binascii.Error) as error:
            raise ConfigError(
                f"record {self.records + 1}: %{field.letter} is not {field.argument}: {error}"
            ) from None
        return data
