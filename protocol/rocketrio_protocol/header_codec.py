"""The three ways to write a command's header.

JSON (0)      `{"code":105,"extFields":{"topic":"T"},"flag":0,"language":"PYTHON","opaque":7,...}`, members in order
ROCKETMQ (1)  i16 code, i8 language, i16 version, i32 opaque, i32 flag, i32 + remark,
              i32 + entries of i16 + key, i32 + value
MSGPACK (77)  array [code, language, version, opaque, flag, remark, ext_fields]; ours alone

As Java does, bytes of JSON and ROCKETMQ texts that are no UTF-8 are read as U+FFFD: clients write what their users'
editors save.

Answers to: RemotingSerializable, RocketMQSerializable; RocketMQ reference, sections 1.2 and 1.3.
"""

import struct
from typing import Annotated, Any, Final, Protocol

import attrs
import msgpack
import msgspec

from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.codes import LanguageCode, SerializeType
from rocketrio_protocol.errors import LocalProtocolError, RemoteProtocolError
from rocketrio_protocol.frame import Body

FIELD_COUNT_LIMIT: Final = 256
"""Ext fields of one header; no request or answer of Apache's has more than thirty."""

LANGUAGE_BY_NAME: Final = {language.name: language for language in LanguageCode}
_LANGUAGE_BY_CODE: Final = {int(language): language for language in LanguageCode}
_NAME_BY_LANGUAGE: Final = {language: language.name for language in LanguageCode}

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


@attrs.define
class HeaderParts:
    """What any of the three encodings carries."""

    code: int
    language: LanguageCode
    version: int
    opaque: int
    flag: int
    remark: str | None
    ext_fields: dict[str, str]


class Encodable(Protocol):
    """What `encode_header` needs of a command."""

    code: int
    language: LanguageCode
    version: int
    opaque: int
    flag: int
    remark: str | None
    ext_fields: dict[str, str]
    serialize_type: SerializeType


def encode_header(command: Encodable) -> bytes:
    """The header in the command's own encoding. Raises LocalProtocolError for what it cannot carry."""
    serialize_type = command.serialize_type
    try:
        if serialize_type is SerializeType.JSON:
            return _encode_json(command)
        if serialize_type is SerializeType.ROCKETMQ:
            return _encode_rocketmq(command)
        return _encode_msgpack(command)
    except (ValueError, OverflowError, struct.error) as error:
        # Half a surrogate pair in a text, or a number beyond 32 bits; the text itself stays out of the message.
        raise LocalProtocolError(
            f"A header cannot be written in {serialize_type.name}: {type(error).__name__}"
        ) from error


def decode_header(serialize_type: int, header: Body) -> HeaderParts:
    """Read a header of any encoding. Raises RemoteProtocolError, naming what is wrong."""
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


class _LenientJsonHeader(msgspec.Struct):
    """What clients of other makes write, and Java reads: nulls, numbers as texts, and the other way.

    C++ clients write numbers and booleans in the fields, and the language as its number; PHP's an empty array for an
    object without members.
    """

    code: Int32
    ext_fields: dict[str, Any] | list[Any] | None = msgspec.field(default=None, name="extFields")
    flag: Int32 | None = None
    language: Any = None
    opaque: Int32 | None = None
    remark: Any = None
    version: Int32 | None = None


_json_encode = msgspec.json.Encoder().encode
_json_decode = msgspec.json.Decoder(_JsonHeader).decode
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
        parts = _json_decode(header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
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
        parts = _lenient_json_decode(fastjson.readable(header))
        if isinstance(parts.ext_fields, list) and parts.ext_fields:
            raise msgspec.ValidationError("Expected `object`, got `array` - at `$.extFields`")
    except (msgspec.MsgspecError, RecursionError) as error:
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
    return LANGUAGE_BY_NAME.get(str(named), LanguageCode.OTHER)


def _field_text(value: object) -> str:
    """A field as text: a number without its point where nothing stands behind it, an object as its JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return msgspec.json.encode(value).decode()


# ----------------------------------------------------------------------------------------- ROCKETMQ

_FIXED = struct.Struct(">hbhiii")  # up to the remark's length
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
            if name and size:  # Java reads an empty name or value as absent.
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


# Checks ranges of the numbers in one call, and types but for booleans.
_NUMBERS = struct.Struct(">iiiii")
_TEXT_ONLY: Final = frozenset({str})
_SCALARS: Final = frozenset({str, int, float, bool, type(None)})


def _encode_msgpack(command: Encodable) -> bytes:
    packed: bytes = msgpack.packb(
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
    return packed


def _decode_msgpack(header: Body) -> HeaderParts:
    try:
        code, language, version, opaque, flag, remark, ext_fields = msgpack.unpackb(
            header, use_list=False, max_map_len=FIELD_COUNT_LIMIT
        )
        _NUMBERS.pack(code, language, version, opaque, flag)
    except (ValueError, TypeError, struct.error, msgpack.UnpackException) as error:
        raise RemoteProtocolError(f"The MSGPACK header cannot be read: {error}") from error
    if not (type(code) is type(language) is type(version) is type(opaque) is type(flag) is int):
        raise RemoteProtocolError("The MSGPACK header cannot be read: its numbers are booleans")
    if (
        not (remark is None or type(remark) is str)
        or type(ext_fields) is not dict
        or not _TEXT_ONLY.issuperset(map(type, ext_fields))
    ):
        raise RemoteProtocolError("The MSGPACK header cannot be read: its texts are no texts")
    if not _TEXT_ONLY.issuperset(map(type, ext_fields.values())):
        if not _SCALARS.issuperset(map(type, ext_fields.values())):
            raise RemoteProtocolError("The MSGPACK header cannot be read: its texts are no texts")
        ext_fields = {
            name: _field_text(value) for name, value in ext_fields.items() if value is not None
        }
    return HeaderParts(
        code,
        _LANGUAGE_BY_CODE.get(language, LanguageCode.OTHER),
        version,
        opaque,
        flag,
        remark,
        ext_fields,
    )
