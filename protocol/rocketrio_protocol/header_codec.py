"""Encodes and decodes the header of a command in the three encodings.

JSON (0)      `{"code":105,"extFields":{"topic":"T"},"flag":0,"language":"PYTHON","opaque":7,...}`, members in order
ROCKETMQ (1)  i16 code, i8 language, i16 version, i32 opaque, i32 flag, i32 + remark,
              i32 + entries of i16 + key, i32 + value
MSGPACK (77)  array [code, language, version, opaque, flag, remark, ext_fields]; a rocketrio extension

The JSON headers of sends, their answers, and pulls are decoded straight into header objects (`read_hot_header`): 2 us a
request, where the general way, which first makes a map of strings, takes 5.

Like Java, the decoders replace bytes of JSON and ROCKETMQ strings that are not UTF-8 by U+FFFD: some clients send what
their users' editors save.

Invariant: `read_hot_header` gives what `decode_header` and `Header.from_ext_fields` would give, or None.
Answers to: RemotingSerializable, RocketMQSerializable, and the fast decoders of SendMessageRequestHeaderV2 and
PullMessageRequestHeader; RocketMQ reference, sections 1.2 and 1.3.
"""

import struct
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

import attrs
import msgspec
from msgspec.structs import FieldInfo

from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.fastjson import Int32, Int64
from rocketrio_protocol.codes import LanguageCode, SerializeType
from rocketrio_protocol.commands.pull import LitePullMessageRequestHeader, PullMessageRequestHeader
from rocketrio_protocol.commands.send import (
    SendBatchMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from rocketrio_protocol.errors import LocalProtocolError, RemoteProtocolError
from rocketrio_protocol.frame import Body
from rocketrio_protocol.headers import Header, is_long, value_type
from rocketrio_protocol.nesting import NestedTooDeeplyError, check_depth

FIELD_COUNT_LIMIT: Final = 256
"""Ext fields of one header; no request or answer of Apache's has more than thirty."""

CODECS_FIELD: Final = "rocketrioCodecs"
"""The ext field in which a client announces the rocketrio encodings that it reads."""

LANGUAGE_BY_NAME: Final = {language.name: language for language in LanguageCode}
_LANGUAGE_BY_CODE: Final = {int(language): language for language in LanguageCode}
_NAME_BY_LANGUAGE: Final = {language: language.name for language in LanguageCode}

FieldsT = TypeVar("FieldsT")


@attrs.define
class HeaderParts:
    """The decoded header, whatever its encoding."""

    code: int
    language: LanguageCode
    version: int
    opaque: int
    flag: int
    remark: str | None
    ext_fields: dict[str, str]


class Encodable(Protocol):
    """The attributes of a command that `encode_header` reads."""

    code: int
    language: LanguageCode
    version: int
    opaque: int
    flag: int
    remark: str | None
    ext_fields: dict[str, str]
    serialize_type: SerializeType


def encode_header(command: Encodable) -> bytes:
    """Encode the header in the command's own encoding. Raises LocalProtocolError if that cannot express it."""
    serialize_type = command.serialize_type
    try:
        if serialize_type is SerializeType.JSON:
            return _encode_json(command)
        if serialize_type is SerializeType.ROCKETMQ:
            return _encode_rocketmq(command)
        return _encode_msgpack(command)
    except (ValueError, OverflowError, struct.error) as error:
        # A lone surrogate in a string, or a number beyond 32 bits. The error does not quote the string.
        raise LocalProtocolError(
            f"The header cannot be encoded in {serialize_type.name}: {type(error).__name__}"
        ) from error


def decode_header(serialize_type: int, header: Body) -> HeaderParts:
    """Decode a header of any encoding. Raises RemoteProtocolError that says what is wrong."""
    if serialize_type == SerializeType.JSON:
        parts = _decode_json(header)
    elif serialize_type == SerializeType.ROCKETMQ:
        parts = _decode_rocketmq(header)
    elif serialize_type == SerializeType.MSGPACK:
        parts = _decode_msgpack(header)
    else:
        raise RemoteProtocolError(
            f"Unknown serialize type {serialize_type}; known are 0 (JSON), 1 (ROCKETMQ) and "
            f"{int(SerializeType.MSGPACK)} (MSGPACK)"
        )
    if len(parts.ext_fields) > FIELD_COUNT_LIMIT:
        raise RemoteProtocolError(
            f"A header has {len(parts.ext_fields)} ext fields; {FIELD_COUNT_LIMIT} is the limit"
        )
    return parts


def json_ext_fields(header: Body) -> dict[str, str]:
    """Return the ext fields of a JSON header, as `decode_header` does, in half the time."""
    try:
        check_depth(header)
        fields = _json_fields_decode(header).ext_fields
    except _NOT_STRICT:
        fields = None
    if fields is None or len(fields) > FIELD_COUNT_LIMIT:
        return decode_header(SerializeType.JSON, header).ext_fields
    return fields


# --------------------------------------------------------------------------------------------- JSON


class _JsonHeader(msgspec.Struct):
    code: Int32
    ext_fields: dict[str, str] | None = msgspec.field(default=None, name="extFields")
    flag: Int32 = 0
    language: str = "OTHER"
    opaque: Int32 = 0
    remark: str | msgspec.UnsetType | None = msgspec.UNSET
    serialize_type: str = msgspec.field(default="JSON", name="serializeTypeCurrentRPC")
    version: Int32 = 0


class _JsonFields(msgspec.Struct):
    ext_fields: dict[str, str] | None = msgspec.field(default=None, name="extFields")


class _LenientJsonHeader(msgspec.Struct):
    """The header as some other clients write it and Java accepts it: with nulls, and numbers and strings interchanged.

    C++ clients write numbers and booleans in the fields, and the language as a number. PHP clients write an empty
    object as an empty array.
    """

    code: Int32
    ext_fields: dict[str, Any] | list[Any] | None = msgspec.field(default=None, name="extFields")
    flag: Int32 | None = None
    language: Any = None
    opaque: Int32 | None = None
    remark: Any = None
    version: Int32 | None = None


_NOT_STRICT: Final = (msgspec.MsgspecError, UnicodeDecodeError, NestedTooDeeplyError)
"""What a decoder of strict JSON raises for a header that `_decode_json_leniently` reads, or refuses with a reason."""

_json_encode = msgspec.json.Encoder().encode
_json_decode = msgspec.json.Decoder(_JsonHeader).decode
_json_fields_decode = msgspec.json.Decoder(_JsonFields).decode
_lenient_json_decode = msgspec.json.Decoder(_LenientJsonHeader, strict=False).decode


def _encode_json(command: Encodable) -> bytes:
    remark = command.remark
    return _json_encode(
        _JsonHeader(
            command.code,
            command.ext_fields,
            command.flag,
            _NAME_BY_LANGUAGE[command.language],
            command.opaque,
            msgspec.UNSET if remark is None else remark,
            "JSON",
            command.version,
        )
    )


def _decode_json(header: Body) -> HeaderParts:
    try:
        check_depth(header)
        parts = _json_decode(header)
    except _NOT_STRICT:
        return _decode_json_leniently(header)
    remark = parts.remark
    return HeaderParts(
        parts.code,
        LANGUAGE_BY_NAME.get(parts.language, LanguageCode.OTHER),
        parts.version,
        parts.opaque,
        parts.flag,
        None if remark is msgspec.UNSET else remark,
        parts.ext_fields or {},
    )


def _decode_json_leniently(header: Body) -> HeaderParts:
    try:
        text = fastjson.readable(header)
        check_depth(text)
        parts = _lenient_json_decode(text)
        if isinstance(parts.ext_fields, list) and parts.ext_fields:
            raise msgspec.ValidationError("Expected `object`, got `array` - at `$.extFields`")
    except (msgspec.MsgspecError, NestedTooDeeplyError) as error:
        raise RemoteProtocolError(f"The JSON header cannot be read: {error}") from error
    return HeaderParts(
        code=parts.code,
        language=_language(parts.language),
        version=parts.version or 0,
        opaque=parts.opaque or 0,
        flag=parts.flag or 0,
        remark=None if parts.remark is None else _field_text(parts.remark),
        ext_fields={
            name: _field_text(value)
            for name, value in dict(parts.ext_fields or {}).items()
            if value is not None
        },
    )


def _language(named: object) -> LanguageCode:
    if isinstance(named, int):
        return _LANGUAGE_BY_CODE.get(named, LanguageCode.OTHER)
    if isinstance(named, str):
        return LANGUAGE_BY_NAME.get(named, LanguageCode.OTHER)
    return LanguageCode.OTHER


def _field_text(value: object) -> str:
    """Return a field as a string: an integral float without its point, an object as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return msgspec.json.encode(value).decode()


# ----------------------------------------------------------------------------------------- ROCKETMQ

_FIXED = struct.Struct(">hbhiii")  # Up to the length of the remark.
_KEY_SIZE = struct.Struct(">h")
_VALUE_SIZE = struct.Struct(">i")
_CODE_LIMIT: Final = 32767


def _encode_rocketmq(command: Encodable) -> bytes:
    if not -_CODE_LIMIT - 1 <= command.code <= _CODE_LIMIT:
        raise LocalProtocolError(
            f"The code {command.code} does not fit the 16 bits of the ROCKETMQ header",
            remedy="Use the JSON header for it",
        )
    remark = (command.remark or "").encode()
    entries: list[bytes] = []
    for name, value in command.ext_fields.items():
        key_bytes, value_bytes = name.encode(), value.encode()
        if len(key_bytes) > _CODE_LIMIT:
            raise LocalProtocolError(f"The ext field name {name[:40]!r}... is over 32767 bytes")
        entries += (
            _KEY_SIZE.pack(len(key_bytes)),
            key_bytes,
            _VALUE_SIZE.pack(len(value_bytes)),
            value_bytes,
        )
    ext_block = b"".join(entries)
    fixed = _FIXED.pack(
        command.code,
        command.language,
        command.version,
        command.opaque,
        command.flag,
        len(remark),
    )
    return b"".join((fixed, remark, _VALUE_SIZE.pack(len(ext_block)), ext_block))


def _decode_rocketmq(header: Body) -> HeaderParts:
    data = bytes(header)
    try:
        code, language, version, opaque, flag, remark_size = _FIXED.unpack_from(data)
        remark_end = _checked_end(data, _FIXED.size, remark_size, "remark")
        remark = data[_FIXED.size : remark_end].decode(errors="replace") if remark_size else None
        (ext_size,) = _VALUE_SIZE.unpack_from(data, remark_end)
        position = remark_end + _VALUE_SIZE.size
        ext_end = _checked_end(data, position, ext_size, "ext-field block")
        ext_fields: dict[str, str] = {}
        while position < ext_end:
            (size,) = _KEY_SIZE.unpack_from(data, position)
            end = _checked_end(data, position + 2, size, "ext-field name")
            name = data[position + 2 : end].decode(errors="replace")
            (size,) = _VALUE_SIZE.unpack_from(data, end)
            position = _checked_end(data, end + 4, size, "ext-field value")
            if name and size:  # Java treats an empty name or value as absent.
                ext_fields[name] = data[end + 4 : position].decode(errors="replace")
    except struct.error as error:
        raise RemoteProtocolError(f"The ROCKETMQ header cannot be read: {error}") from error
    return HeaderParts(
        code,
        _LANGUAGE_BY_CODE.get(language, LanguageCode.OTHER),
        version,
        opaque,
        flag,
        remark,
        ext_fields,
    )


def _checked_end(data: bytes, start: int, size: int, what: str) -> int:
    end = start + size
    if size < 0 or end > len(data):
        raise RemoteProtocolError(
            f"The ROCKETMQ header's {what} claims {size} bytes of {len(data) - start}"
        )
    return end


# ------------------------------------------------------------------------------------------ MSGPACK


class _MsgpackHeader(msgspec.Struct, Generic[FieldsT], array_like=True, forbid_unknown_fields=True):
    code: Int32
    language: Int32
    version: Int32
    opaque: Int32
    flag: Int32
    remark: str | None
    ext_fields: FieldsT


_msgpack_encode = msgspec.msgpack.Encoder().encode
_msgpack_decode = msgspec.msgpack.Decoder(_MsgpackHeader[dict[str, str]]).decode
_lenient_msgpack_decode = msgspec.msgpack.Decoder(
    _MsgpackHeader[dict[str, str | int | float | bool | None]]
).decode


def _encode_msgpack(command: Encodable) -> bytes:
    return _msgpack_encode(
        (
            command.code,
            int(command.language),
            command.version,
            command.opaque,
            command.flag,
            command.remark,
            command.ext_fields,
        )
    )


def _decode_msgpack(header: Body) -> HeaderParts:
    try:
        parts = _msgpack_decode(header)
        ext_fields = parts.ext_fields
    except (msgspec.MsgspecError, UnicodeDecodeError):
        parts, ext_fields = _decode_msgpack_leniently(header)
    return HeaderParts(
        parts.code,
        _LANGUAGE_BY_CODE.get(parts.language, LanguageCode.OTHER),
        parts.version,
        parts.opaque,
        parts.flag,
        parts.remark,
        ext_fields,
    )


def _decode_msgpack_leniently(header: Body) -> tuple[_MsgpackHeader[Any], dict[str, str]]:
    """Decode a header whose fields may also be numbers and booleans. Raises RemoteProtocolError."""
    try:
        parts = _lenient_msgpack_decode(header)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"The MSGPACK header cannot be read: {error}") from error
    values = parts.ext_fields.items()
    return parts, {name: _field_text(value) for name, value in values if value is not None}


# -------------------------------------------------------------------------- JSON of sends and pulls

_PREFIX_SIZE: Final = len('{"code":310')  # Includes the comma after a code of two digits.


class Envelope(msgspec.Struct, Generic[FieldsT], gc=False):
    """A JSON header with ext fields of a known type."""

    code: int
    ext_fields: FieldsT = msgspec.field(name="extFields")
    flag: Int32 = 0
    language: str = "OTHER"
    opaque: Int32 = 0
    remark: str | None = None
    version: Int32 = 0


HotHeader = tuple[Envelope[Any], Header]


def read_hot_header(header: bytes) -> HotHeader | None:
    """Decode a JSON header and the header object of its ext fields; return None if `decode_header` must decode it.

    It leaves to `decode_header` what that refuses or reads differently: other commands, numbers with a sign, leading
    zeros or a point, values that are not strings, and announced encodings.
    """
    read = _READERS.get(header[:_PREFIX_SIZE])
    if read is None:
        # An answer does not say what it answers, but only the answer to a send begins like this.
        if not header.startswith(_SEND_ANSWER):
            return None
        read = _read_send_answer
    try:
        check_depth(header)
        return read(header)
    except (*_NOT_STRICT, TypeError):
        return None


def _reader(cls: type[Header], code: int) -> Callable[[bytes], HotHeader]:
    """Compile the decoder of a header class, for the reason given in `headers`."""
    fields = msgspec.structs.fields(cls)
    members = [
        (
            field.name,
            _json_type(field),
            msgspec.field(name=field.encode_name, default=field.default),
        )
        for field in fields
    ]
    members.append(("codecs", str | None, msgspec.field(name=CODECS_FIELD, default=None)))
    struct = msgspec.defstruct(cls.__name__, members, gc=False)
    # Not strict, because the numbers among the ext fields are strings.
    decode = msgspec.json.Decoder(Envelope[struct], strict=False).decode  # type: ignore[valid-type]
    # A number with a point is decoded as a float, for which `|` raises a TypeError.
    numbers = " | ".join(
        f"(0 if f.{field.name} is None else f.{field.name})"
        for field in fields
        if value_type(field) is int
    )
    names: dict[str, Any] = {
        "cls": cls,
        "decode": decode,
        "code": code,
        "values": msgspec.structs.astuple,
    }
    lines = [
        "def read(header):",
        "    envelope = decode(header)",
        "    f = envelope.ext_fields",
        f"    {numbers}",
        "    if f.codecs is not None or envelope.code != code: raise TypeError",
        "    return envelope, cls(*values(f)[:-1])",
    ]
    exec("\n".join(lines), names)
    read: Callable[[bytes], HotHeader] = names["read"]
    return read


def _json_type(field: FieldInfo) -> Any:
    """Return the msgspec type of a field, without None: with it the string `null` would be accepted as a number."""
    kind = value_type(field)
    if kind is int:
        return (Int64 if is_long(field) else Int32) | float
    return kind


_SEND_ANSWER: Final = b'{"code":0,"extFields":{"queueId":"'
_read_send_answer: Final = _reader(SendMessageResponseHeader, 0)

_READERS: Final = {
    f'{{"code":{cls.code},'.encode()[:_PREFIX_SIZE]: _reader(cls, int(cls.code))
    for cls in (
        SendMessageRequestHeader,
        SendMessageRequestHeaderV2,
        SendBatchMessageRequestHeader,
        PullMessageRequestHeader,
        LitePullMessageRequestHeader,
    )
}
