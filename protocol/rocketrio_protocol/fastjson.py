"""JSON as Java's fastjson 1.x writes it, both ways.

It leaves integer map keys unquoted, `{0:"10.0.0.1:10911"}`, and writes maps keyed by objects as
`{{"brokerName":"b","queueId":0,"topic":"T"}:12}`. `loads` reads both beside plain JSON; an object key becomes its
JSON text, and numbers and booleans may be written as strings, as C++ clients do. `dumps` writes Java's form, members
in alphabetical order, None left out. `dumps_pretty` is the form of the files under `config/`: tabs, no blank after
the colon.

Answers to: RemotingSerializable.toJson; RocketMQ reference, sections 2.1 and 5.7.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import attrs
import msgspec

from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.frame import Body

T = TypeVar("T")

# Strings are matched first so that nothing inside one is taken for a key. A number or an object in front of a colon
# can only be a key: JSON has no other place for it.
_STRING = rb'"(?:[^"\\]|\\.)*+"'
_LOOSE_KEY = re.compile(
    rb"(?P<string>" + _STRING + rb")"
    rb"|(?P<object>\{(?:[^{}\"]|" + _STRING + rb")*+\})(?=\s*:)"
    rb"|(?P<number>-?\d+)(?=\s*:)",
    re.DOTALL,
)


def loads(data: Body, kind: type[T], *, what: str = "body") -> T:
    """Read JSON of either form into `kind`. Raises RemoteProtocolError that names `what`."""
    try:
        return msgspec.json.decode(data, type=kind, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError) as first:
        if isinstance(first, msgspec.ValidationError):
            raise _unreadable(what, first) from first
    try:
        loose = _LOOSE_KEY.sub(_quoted, bytes(data))
        return msgspec.json.decode(loose, type=kind, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _unreadable(what, error) from error


def dumps(value: Any) -> bytes:
    """JSON on one line, as it goes over the wire."""
    return _write(value, indent=None).encode()


def dumps_standard(value: Any) -> bytes:
    """The same with every key quoted, for readers that know only JSON; no key may be an object."""
    return _LOOSE_KEY.sub(_quoted, dumps(value))


def dumps_pretty(value: Any) -> bytes:
    """JSON as in the files under `config/`."""
    return _write(value, indent="").encode()


def _quoted(match: re.Match[bytes]) -> bytes:
    if match["string"] is not None:
        return match["string"]
    if match["number"] is not None:
        return b'"' + match["number"] + b'"'
    return msgspec.json.encode(_LOOSE_KEY.sub(_quoted, match["object"]).decode())


def _unreadable(what: str, error: Exception) -> RemoteProtocolError:
    return RemoteProtocolError(f"The JSON {what} cannot be read: {error}")


def _write(value: Any, *, indent: str | None) -> str:
    if isinstance(value, Mapping):
        pairs = [(key, member) for key, member in value.items() if member is not None]
        return _write_object(pairs, indent=indent)
    if isinstance(value, msgspec.Struct):
        return _write_object(sorted(_struct_members(value)), indent=indent)
    if attrs.has(type(value)):
        return _write_object(sorted(_attrs_members(value)), indent=indent)
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, str | bytes):
        return _write_array(list(value), indent=indent)
    return msgspec.json.encode(value).decode()


def _write_object(pairs: list[tuple[Any, Any]], *, indent: str | None) -> str:
    if not pairs:
        return "{}"
    inner = None if indent is None else indent + "\t"
    members = [(key, f"{_write_key(key)}:{_write(value, indent=inner)}") for key, value in pairs]
    if inner is None:
        return "{" + ",".join(text for _, text in members) + "}"
    if isinstance(pairs[0][0], int):  # fastjson keeps a map of numbers on one line.
        return "{" + ",".join(text for _, text in members) + "\n" + (indent or "") + "}"
    lines = ",\n".join(inner + text for _, text in members)
    return "{\n" + lines + "\n" + (indent or "") + "}"


def _write_array(values: list[Any], *, indent: str | None) -> str:
    if indent is None or not values:
        return "[" + ",".join(_write(value, indent=None) for value in values) + "]"
    inner = indent + "\t"
    lines = ",\n".join(inner + _write(value, indent=inner) for value in values)
    return "[\n" + lines + "\n" + indent + "]"


def _write_key(key: Any) -> str:
    if isinstance(key, int):
        return str(int(key))
    return _write(key, indent=None)


def _struct_members(value: msgspec.Struct) -> list[tuple[str, Any]]:
    fields = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
    return [
        (name, member)
        for attribute, name in fields
        if (member := getattr(value, attribute)) is not None and member is not msgspec.UNSET
    ]


def _attrs_members(value: Any) -> list[tuple[str, Any]]:
    return [
        (_camel(field.name), member)
        for field in attrs.fields(type(value))
        if (member := getattr(value, field.name)) is not None
    ]


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
