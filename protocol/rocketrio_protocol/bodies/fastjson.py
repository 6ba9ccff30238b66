"""Encodes and decodes JSON as Java's fastjson 1.x does.

fastjson leaves integer map keys unquoted, `{0:"10.0.0.1:10911"}`, and writes maps keyed by objects as
`{{"brokerName":"b","queueId":0,"topic":"T"}:12}`. `loads` accepts both forms and plain JSON. An object key becomes its
JSON text; numbers and booleans may be strings, as from C++ clients; null stands for the default. `dumps` writes Java's
form: members in alphabetical order, None omitted. `dumps_pretty` is the form of the files under `config/`: with tabs,
and no space after the colon.

Answers to: RemotingSerializable.toJson; RocketMQ reference, sections 2.1 and 5.7.
"""

import codecs
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from functools import lru_cache, wraps
from typing import Annotated, Any, Final, Self, TypeVar

import attrs
import msgspec

from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.frame import Body
from rocketrio_protocol.nesting import NestedTooDeeplyError, check_depth

REQUEST_SIZE_LIMIT: Final = 1 << 20
"""Bytes of JSON in an ordinary request: 10,000 queues to lock. Strict JSON of that size is decoded in 10 ms."""

LENIENT_SIZE_LIMIT: Final = 128 << 10
"""Bytes of JSON in a request that is not strict, as Java's may be; the worst text of this size takes 30 ms."""

T = TypeVar("T")

_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError)

_encode: Final = msgspec.json.Encoder().encode

# Strings are matched first, so that nothing inside a string is mistaken for a key. A number or an object before a colon
# can only be a key, because JSON has no other place for it.
#
# Both patterns take time proportional to any input: quantifiers are possessive, a number is tried once and not again at
# each of its digits, and a string without an end extends to the end of the text.
_STRING = rb'"(?:[^"\\]|\\.)*+(?:"|\Z|\\\Z)'
_LOOSE_KEY = re.compile(
    rb"(?P<string>" + _STRING + rb")"
    rb"|(?P<object>\{(?:[^{}\"]|" + _STRING + rb")*+\})(?=\s*+:)"
    rb"|(?P<number>(?<!\d)-?\d++)(?=\s*+:)",
    re.DOTALL,
)

_INTEGER_KEY = re.compile(rb"((?<!\d)-?\d++)(?=\s*+:)")
_OBJECT_KEY_END = re.compile(rb"\}\s*+:")


def loads(data: Body, kind: type[T], *, what: str = "body", lenient: bool = True) -> T:
    """Decode JSON of either form into `kind`. Raises RemoteProtocolError that names `what`.

    `lenient` accepts what Java ignores (see `readable`, and nulls); in the broker's own files these are damage.
    """
    try:
        check_depth(data)
        return msgspec.json.decode(data, type=kind, strict=False)
    except NestedTooDeeplyError as error:
        raise _unreadable(what, error) from error
    except _UNREADABLE:
        plain = b""
    try:
        plain = standard(data, lenient=lenient)
        return msgspec.json.decode(plain, type=kind, strict=False)
    except _UNREADABLE as error:
        if lenient and isinstance(error, msgspec.ValidationError) and b"null" in plain:
            with suppress(*_UNREADABLE):
                members = _without_nulls(msgspec.json.decode(plain))
                return msgspec.convert(members, type=kind, strict=False, str_keys=True)
        raise _unreadable(what, error) from error


def standard(data: Body, *, lenient: bool = True) -> bytes:
    """Return the same JSON with every key quoted."""
    return _with_quoted_keys(readable(data) if lenient else bytes(data))


def loads_bounded(
    data: Body, kind: type[T], *, what: str, size_limit: int | None = REQUEST_SIZE_LIMIT
) -> T:
    """Decode like `loads`, but in a limited time, for requests. Raises RemoteProtocolError for too long a text.

    Java writes plain JSON if a request has no maps with other keys than strings, so a long text must be plain JSON.
    """
    if size_limit is not None and len(data) > size_limit:
        raise RemoteProtocolError(
            f"The JSON {what} has {len(data)} bytes; {size_limit} is the limit"
        )
    if len(data) <= LENIENT_SIZE_LIMIT:
        return loads(data, kind, what=what)
    try:
        check_depth(data)
        return msgspec.json.decode(data, type=kind, strict=False)
    except NestedTooDeeplyError as error:
        raise _unreadable(what, error) from error
    except _UNREADABLE as error:
        raise RemoteProtocolError(
            f"The JSON {what} has {len(data)} bytes and is not strict JSON, as it must be beyond "
            f"{LENIENT_SIZE_LIMIT} bytes: {error}"
        ) from error


def readable(data: Body) -> bytes:
    """Remove what Java ignores: a byte order mark and NULs at the end; bytes that are not UTF-8 become U+FFFD."""
    plain = bytes(data).removeprefix(codecs.BOM_UTF8).rstrip(b"\0")
    return plain.decode(errors="replace").encode()


def _without_nulls(value: Any) -> Any:
    """Remove nulls, for which Java uses the default; Go clients write null for an empty list."""
    if isinstance(value, dict):
        return {
            name: _without_nulls(member) for name, member in value.items() if member is not None
        }
    if isinstance(value, list):
        return [_without_nulls(member) for member in value]
    return value


def dumps(value: Any) -> bytes:
    """Encode JSON on one line, as on the wire."""
    return _write(value, None).encode()


def dumps_standard(value: Any) -> bytes:
    """Encode JSON with every key quoted, for readers of plain JSON; no key may be an object."""
    return _with_quoted_keys(dumps(value))


def dumps_pretty(value: Any) -> bytes:
    """Encode JSON as in the files under `config/`."""
    return _write(value, "").encode()


def _with_quoted_keys(data: bytes) -> bytes:
    """Convert JSON of either form to plain JSON."""
    if b"\\" not in data and b"\0" not in data:
        # The usual case, without a call for each key: every second piece between quotes is outside of strings.
        pieces = data.split(b'"')
        outside = b"\0".join(pieces[0::2])
        if _OBJECT_KEY_END.search(outside) is None:
            pieces[0::2] = b'"'.join(_INTEGER_KEY.split(outside)).split(b"\0")
            return b'"'.join(pieces)
    return _LOOSE_KEY.sub(_quoted, data)


def _quoted(match: re.Match[bytes]) -> bytes:
    if match["string"] is not None:
        return match["string"]
    if match["number"] is not None:
        return b'"' + match["number"] + b'"'
    return msgspec.json.encode(_LOOSE_KEY.sub(_quoted, match["object"]).decode())


def _unreadable(what: str, error: Exception) -> RemoteProtocolError:
    return RemoteProtocolError(f"The JSON {what} cannot be read: {error}")


# ------------------------------------------------------------------------------------------ encoding

# One writer for each type, chosen once: testing the type of each value takes three times as long, and a broker with
# thousands of topics writes its whole table at every change.
_Writer = Callable[[Any, "str | None"], str]
_WRITERS: Final[dict[type, _Writer]] = {}

_KEPT_TEXTS: Final = 1 << 16
"""Values of one frozen class whose text is cached: some 400 bytes each, and two forms for a topic."""
_KEPT_TEXT_SIZE: Final = 1024
"""Characters of a cached text. Anyone may give a group settings of a megabyte, and change them often."""


def _write(value: Any, indent: str | None) -> str:
    kind = type(value)
    return (_WRITERS.get(kind) or _writer_of(kind))(value, indent)


class KeptText:
    """Caches the text of a table with thousands of entries between two writes, because few entries change.

    The table is a member of the outermost object, written by `dumps_pretty` to a file or by `dumps` to an answer.
    """

    def __init__(self, *, is_pretty: bool) -> None:
        self._indent = "\t" if is_pretty else None
        self._lines: dict[str, tuple[Any, str]] = {}

    def of(self, table: Mapping[str, Any]) -> "KeptText":
        """Return a placeholder for this table, whose entries are immutable, in the next value to write."""
        indent = None if self._indent is None else self._indent + "\t"
        kept, unknown = self._lines, (None, "")
        self._lines = {
            name: line
            if (line := kept.get(name, unknown))[0] is entry
            else (entry, f"{_write_key(name)}:{_write(entry, indent)}")
            for name, entry in table.items()
        }
        return self

    def text(self, indent: str | None) -> str:
        assert indent == self._indent, "it is written the other way, or elsewhere"
        return _braced([text for _, text in self._lines.values()], indent)


class TextInParts:
    """The text of a map that is written some entries at a time: a member of what is written at the end."""

    def __init__(self, *, is_pretty: bool, depth: int = 1) -> None:
        """`depth` counts the objects around the map."""
        self._indent = "\t" * depth if is_pretty else None
        self._parts: list[str] = []

    def add(self, entries: Mapping[str, Any]) -> None:
        """Write some more."""
        if not entries:
            return
        inner = None if self._indent is None else self._indent + "\t"
        lines = [f"{_write_key(name)}:{_write(entry, inner)}" for name, entry in entries.items()]
        self._parts.append(("," if inner is None else ",\n" + inner).join(lines))

    def text(self, indent: str | None) -> str:
        assert indent == self._indent, "it is written the other way, or elsewhere"
        return _braced(self._parts, indent)


def _writer_of(kind: type) -> _Writer:
    writer: _Writer
    if kind is int:
        writer = _write_int
    elif kind in (KeptText, TextInParts):
        writer = kind.text
    elif issubclass(kind, Mapping):
        writer = _write_mapping
    elif issubclass(kind, msgspec.Struct) or attrs.has(kind):
        writer = _record_writer(kind)
    elif issubclass(kind, Sequence | Set) and not issubclass(kind, str | bytes):
        writer = _write_array
    else:
        writer = _write_scalar
    return _WRITERS.setdefault(kind, writer)


def _write_int(value: int, indent: str | None) -> str:
    return str(value)


def _write_scalar(value: Any, indent: str | None) -> str:
    return _encode(value).decode()


def _write_mapping(value: Mapping[Any, Any], indent: str | None) -> str:
    inner = None if indent is None else indent + "\t"
    members = [
        f"{_write_key(key)}:{_write(member, inner)}"
        for key, member in value.items()
        if member is not None
    ]
    if indent is not None and members and isinstance(next(iter(value)), int):
        # fastjson writes a map of numbers on one line.
        return "{" + ",".join(members) + "\n" + indent + "}"
    return _braced(members, indent)


def _record_writer(kind: type) -> _Writer:
    """Return the writer of a class with named members, in alphabetical order."""
    names: Iterable[tuple[str, str]]
    if issubclass(kind, msgspec.Struct):
        names = zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True)
    else:
        assert attrs.has(kind)
        names = [(_camel(field.name), field.name) for field in attrs.fields(kind)]
    fields = [(f'"{name}":', attribute) for name, attribute in sorted(names)]

    def write(value: Any, indent: str | None) -> str:
        inner = None if indent is None else indent + "\t"
        members = []
        for prefix, attribute in fields:
            member = getattr(value, attribute)
            if member is not None and member is not msgspec.UNSET:
                members.append(prefix + _write(member, inner))
        return _braced(members, indent)

    # A whole table is written when one of its thousands of values is new; the text of the others is cached.
    is_frozen = issubclass(kind, msgspec.Struct) and kind.__struct_config__.frozen
    return _remembering(write) if is_frozen else write


class _LongTextError(Exception):
    """Carries a text that is too long to be kept; `lru_cache` keeps no call that raises."""


def _remembering(write: _Writer) -> _Writer:
    """Return a function that writes values, and keeps the short texts."""

    @lru_cache(_KEPT_TEXTS)
    def short_text(value: Any, indent: str | None) -> str:
        text = write(value, indent)
        if len(text) > _KEPT_TEXT_SIZE:
            raise _LongTextError(text)
        return text

    @wraps(short_text)
    def text_of(value: Any, indent: str | None) -> str:
        try:
            return short_text(value, indent)
        except _LongTextError as long:
            return str(long.args[0])

    return text_of


def _braced(members: list[str], indent: str | None) -> str:
    # Formatted, because each "+" would copy a table of 15 MiB again.
    if indent is None or not members:
        return f"{{{','.join(members)}}}"
    inner = f"\n{indent}\t"
    text = f",{inner}".join(members)
    return f"{{{inner}{text}\n{indent}}}"


def _write_array(values: Sequence[Any] | Set[Any], indent: str | None) -> str:
    if indent is None or not values:
        return "[" + ",".join([_write(value, None) for value in values]) + "]"
    inner = "\n" + indent + "\t"
    members = [_write(value, indent + "\t") for value in values]
    return "[" + inner + ("," + inner).join(members) + "\n" + indent + "]"


def _write_key(key: Any) -> str:
    if type(key) is str:
        return _encode(key).decode()
    return str(int(key)) if isinstance(key, int) else _write(key, None)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""Java's int and long; larger numbers do not fit the fields of any peer."""


class JsonBody(msgspec.Struct, rename="camel"):
    """Base of bodies that are decoded from either form of JSON."""

    @classmethod
    def from_json(cls, body: Body) -> Self:
        """Decode a body. Raises RemoteProtocolError that names the class."""
        return loads(body, cls, what=cls.__name__)

    def to_json(self) -> bytes:
        """Encode the body as standard JSON, with every key quoted."""
        return dumps_standard(self)

    def to_classic_json(self) -> bytes:
        """Encode the body as fastjson writes it, with integer keys unquoted."""
        return dumps(self)
