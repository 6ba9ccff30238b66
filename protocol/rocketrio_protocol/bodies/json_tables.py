"""Decodes JSON tables so that a damaged entry costs only that entry, not the table.

A table is a map, a list, or a class with such members. An entry of the wrong type is omitted and reported. A single
value of the wrong type gets its default, and is reported too. Another value in place of a table is an error, because it
must not be mistaken for an empty table.

Unlike Java: there one bad entry empties the whole table, or stops the start of the broker.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar, get_args, get_origin

import msgspec

from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.frame import Body
from rocketrio_protocol.nesting import check_depth

T = TypeVar("T")

TEXT_LIMIT: Final = 200
"""Characters of the report about one omitted entry."""


def loads_table(
    data: Body, kind: type[T], *, what: str = "body", lenient: bool = True
) -> tuple[T, list[str]]:
    """Return the table, and a line about each omitted entry.

    Raises RemoteProtocolError if the text is not a JSON object with such tables.
    """
    try:
        return fastjson.loads(data, kind, what=what, lenient=lenient), []
    except RemoteProtocolError as error:
        skipped: list[str] = []
        try:
            check_depth(data)
            value = json.loads(fastjson.standard(data, lenient=lenient), parse_int=_integer)
            table: T = _table(value, kind, what, skipped)
        except ValueError:  # msgspec.ValidationError is a ValueError.
            raise error from None
        return table, skipped


def _integer(digits: str) -> int | str:
    try:
        return int(digits)
    except ValueError:  # Python refuses thousands of digits.
        return digits


def _table(value: Any, kind: Any, where: str, skipped: list[str]) -> Any:
    """Convert a table, omitting entries of the wrong type. Raises msgspec.ValidationError."""
    kind = _table_kind(kind)
    origin, parts = get_origin(kind), get_args(kind)
    if origin is dict and isinstance(value, dict):
        table = {}
        for name, entry in value.items():
            with _skipping(f"{where}.{name}", skipped):
                key = _whole(name, parts[0])
                table[key] = _entry(entry, parts[1], f"{where}.{name}", skipped)
        return table
    if origin is list and isinstance(value, list):
        entries = []
        for number, entry in enumerate(value):
            with _skipping(f"{where}[{number}]", skipped):
                entries.append(_entry(entry, parts[0], f"{where}[{number}]", skipped))
        return entries
    if origin is None and isinstance(value, dict):
        return _members(value, kind, where, skipped)
    return _whole(value, kind)


def _table_kind(kind: Any) -> Any:
    """Return the map, list or class X of a type X or X | None; None for single values."""
    for one in (kind, *get_args(kind)):
        if get_origin(one) in (dict, list):
            return one
        if isinstance(one, type) and issubclass(one, msgspec.Struct):
            return one
    return None


def _entry(value: Any, kind: Any, where: str, skipped: list[str]) -> Any:
    """Convert an entry: a nested table may lose entries of its own, a record is complete or omitted."""
    is_table = get_origin(kind) in (dict, list)
    return _table(value, kind, where, skipped) if is_table else _whole(value, kind)


def _members(
    value: dict[str, Any], kind: type[msgspec.Struct], where: str, skipped: list[str]
) -> msgspec.Struct:
    members = {}
    for field in msgspec.structs.fields(kind):
        name, member_where = field.encode_name, f"{where}.{field.encode_name}"
        if name not in value:
            continue
        if _table_kind(field.type) is not None:
            members[field.name] = _table(value[name], field.type, member_where, skipped)
        else:
            with _skipping(member_where, skipped):
                members[field.name] = _whole(value[name], field.type)
    try:
        return kind(**members)
    except TypeError as error:
        raise msgspec.ValidationError(f"{where}: {error}") from error


def _whole(value: Any, kind: Any) -> Any:
    return msgspec.convert(value, kind, strict=False, str_keys=True)


@contextmanager
def _skipping(where: str, skipped: list[str]) -> Iterator[None]:
    try:
        yield
    except msgspec.ValidationError as error:
        skipped.append(f"{where}: {error}"[:TEXT_LIMIT])
