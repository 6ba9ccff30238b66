"""The JSON headers of sends, their answers, and pulls, read straight into their header objects.

    {"code":310,"extFields":{"a":"producers","b":"orders","d":"4","e":"3",...},"flag":0,...,"version":407}

One pass turns texts into numbers, where the general way makes a map of texts first: 2 us a request instead of 5.

Invariant: what is read here is what `decode_header` and `Header.from_ext_fields` would give. Whatever these refuse,
or may read in another way, comes back as None and is theirs: numbers with a sign, leading zeros or a point, other
scalars than texts, header encodings announced by the peer.
Answers to: the fast decoders of SendMessageRequestHeaderV2 and PullMessageRequestHeader.
"""

from collections.abc import Callable
from typing import Annotated, Any, Final, Generic, TypeVar

import attrs
import msgspec

from rocketrio_protocol.commands.pull import LitePullMessageRequestHeader, PullMessageRequestHeader
from rocketrio_protocol.commands.send import (
    SendBatchMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from rocketrio_protocol.header_codec import Int32
from rocketrio_protocol.headers import Header, fields_of, is_long, value_type, wire_name

CODECS_FIELD: Final = "rocketrioCodecs"
"""Ext field by which a requester says which header encodings of ours it reads."""

_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_PREFIX_SIZE: Final = len('{"code":310')  # with the comma behind a code of two digits

FieldsT = TypeVar("FieldsT")


class Envelope(msgspec.Struct, Generic[FieldsT], gc=False):
    """A JSON header around its ext fields."""

    code: int
    ext_fields: FieldsT = msgspec.field(name="extFields")
    flag: Int32 = 0
    language: str = "OTHER"
    opaque: Int32 = 0
    remark: str | None = None
    version: Int32 = 0


HotHeader = tuple[Envelope[Any], Header]


def read_hot_header(header: bytes) -> HotHeader | None:
    """A whole JSON header and the header object of its ext fields; None for what must be read the general way."""
    read = _READERS.get(header[:_PREFIX_SIZE])
    if read is None:
        # An answer says nowhere what it answers; no other one begins like this.
        if not header.startswith(_SEND_ANSWER):
            return None
        read = _read_send_answer
    try:
        return read(header)
    except (msgspec.MsgspecError, TypeError, UnicodeDecodeError, RecursionError):
        return None


def _reader(cls: type[Header], code: int) -> Callable[[bytes], HotHeader]:
    """Compiled as `headers` compiles its decoders, and for the same reason."""
    fields = [
        (field.name, _json_type(cls, field), _named(wire_name(field), field.default))
        for field in fields_of(cls)
    ]
    fields.append(("codecs", str | None, _named(CODECS_FIELD, None)))
    struct = msgspec.defstruct(cls.__name__, fields, gc=False)
    # Not strict: numbers may be texts. They are always texts, but for those of the envelope.
    decode = msgspec.json.Decoder(Envelope[struct], strict=False).decode  # type: ignore[valid-type]
    # A number with a point arrives as a float, to which `|` is a TypeError.
    numbers = " | ".join(
        f"(0 if f.{field.name} is None else f.{field.name})"
        for field in fields_of(cls)
        if value_type(cls, field) is int
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


def _named(name: str, default: Any) -> Any:
    if default is attrs.NOTHING:
        return msgspec.field(name=name)
    return msgspec.field(name=name, default=default)


def _json_type(cls: type, field: "attrs.Attribute[Any]") -> Any:
    """None is no type of any: the text `null` would be one where a number is expected."""
    kind = value_type(cls, field)
    if kind is int:
        return (_Int64 if is_long(field) else Int32) | float
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
