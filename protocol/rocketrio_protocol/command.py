"""RemotingCommand: the one shape of every request and answer.

Invariant: an answer carries its request's `opaque` and serialize type.
Invariant: `ext_fields` values are strings; what a peer sends as numbers or booleans is turned into their JSON text.
Answers to: RemotingCommand.
Unlike Java: an answer always carries an `extFields` object, because stricter clients than Java's need one.
"""

from typing import Self, TypeVar

import attrs

from rocketrio_protocol.codes import PROTOCOL_VERSION, LanguageCode, ResponseCode, SerializeType
from rocketrio_protocol.frame import Body, Frame, encode_frame
from rocketrio_protocol.header_codec import decode_header, encode_header
from rocketrio_protocol.header_fields import Header, RequestHeader

FLAG_RESPONSE = 1
FLAG_ONEWAY = 2

# Calling the enum class costs as much as decoding a short header.
_SERIALIZE_TYPES = {int(known): known for known in SerializeType}

HeaderT = TypeVar("HeaderT", bound=Header)


@attrs.define
class RemotingCommand:
    """A request, a oneway request or an answer, with its header fields as text and its body as bytes."""

    code: int
    opaque: int = 0
    flag: int = 0
    ext_fields: dict[str, str] = attrs.Factory(dict)
    body: Body = b""
    remark: str | None = None
    language: LanguageCode = LanguageCode.PYTHON
    version: int = PROTOCOL_VERSION
    serialize_type: SerializeType = SerializeType.JSON

    @classmethod
    def request(cls, header: RequestHeader, body: Body = b"", *, oneway: bool = False) -> Self:
        """A request for the code that `header` belongs to; the connection gives it its `opaque`."""
        return cls(
            code=header.code,
            flag=FLAG_ONEWAY if oneway else 0,
            ext_fields=header.to_ext_fields(),
            body=body,
        )

    def response(
        self,
        header: Header | None = None,
        body: Body = b"",
        *,
        code: int = ResponseCode.SUCCESS,
        remark: str | None = None,
    ) -> "RemotingCommand":
        """The answer to this request."""
        return RemotingCommand(
            code=code,
            opaque=self.opaque,
            flag=FLAG_RESPONSE,
            ext_fields={} if header is None else header.to_ext_fields(),
            body=body,
            remark=remark,
            serialize_type=self.serialize_type,
        )

    @property
    def is_response(self) -> bool:
        """Answers a request of ours, told only by the flag."""
        return bool(self.flag & FLAG_RESPONSE)

    @property
    def is_oneway(self) -> bool:
        """Wants no answer."""
        return bool(self.flag & FLAG_ONEWAY)

    def header(self, header_class: type[HeaderT]) -> HeaderT:
        """The fields as an object. Raises RemoteProtocolError naming a missing or wrong one."""
        return header_class.from_ext_fields(self.ext_fields)

    def encode(self) -> bytes:
        """The whole frame. Raises LocalProtocolError when it cannot be sent in this encoding."""
        return encode_frame(self.serialize_type, encode_header(self), self.body)

    @classmethod
    def decode(cls, frame: Frame) -> "RemotingCommand":
        """The command in a frame. Raises RemoteProtocolError."""
        parts = decode_header(frame.serialize_type, frame.header)
        return cls(
            parts.code,
            parts.opaque,
            parts.flag,
            parts.ext_fields,
            frame.body,
            parts.remark,
            parts.language,
            parts.version,
            _SERIALIZE_TYPES[frame.serialize_type],
        )
