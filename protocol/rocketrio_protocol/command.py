"""RemotingCommand: the common form of all requests and answers.

Invariant: an answer carries its request's `opaque` and serialize type.
Invariant: `ext_fields` values are strings; numbers and booleans from a peer are converted to their JSON text.
Invariant: a command drops its header object when its `ext_fields` are read, because the reader may change them.
Answers to: RemotingCommand.
Unlike Java: an answer always has an `extFields` object, because some other clients require one.
"""

from typing import Self, TypeVar

import attrs

from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.codes import PROTOCOL_VERSION, LanguageCode, ResponseCode, SerializeType
from rocketrio_protocol.errors import BrokerError, broker_error
from rocketrio_protocol.frame import Body, Frame, encode_frame
from rocketrio_protocol.header_codec import (
    CODECS_FIELD,
    LANGUAGE_BY_NAME,
    decode_header,
    encode_header,
    json_ext_fields,
    read_hot_header,
)
from rocketrio_protocol.headers import Header, RequestHeader

FLAG_RESPONSE = 1
FLAG_ONEWAY = 2

# Calling an enum class costs as much as decoding a short header, and naming its member as much as a function call.
_SERIALIZE_TYPES = {int(known): known for known in SerializeType}
_JSON = SerializeType.JSON
_OTHER = LanguageCode.OTHER

_SECRET_FIELDS = frozenset({"0rocketrioProof", "Signature", "SecurityToken", "secretKey"})
"""Ext fields that no text shows: proofs of an account, and the secret that a request for 4.x sets."""

T = TypeVar("T")
HeaderT = TypeVar("HeaderT", bound=Header)


def _text_fields(fields: dict[str, str] | bytes) -> dict[str, str]:
    return fields if isinstance(fields, dict) else json_ext_fields(fields)


def _shown_fields(fields: dict[str, str] | bytes) -> str:
    """Return what a log or a traceback may show of the ext fields."""
    shown = _text_fields(fields).items()
    return repr({name: "..." if name in _SECRET_FIELDS else value for name, value in shown})


def _shown_body(body: Body) -> str:
    return f"<{len(body)} bytes>"


@attrs.define
class RemotingCommand:
    """A request, a oneway request or an answer, with its header fields as text and its body as bytes."""

    code: int
    opaque: int = 0
    flag: int = 0
    _ext_fields: dict[str, str] | bytes = attrs.field(
        factory=dict, alias="ext_fields", eq=_text_fields, repr=_shown_fields
    )  # or the JSON header that contains them
    body: Body = attrs.field(default=b"", repr=_shown_body)
    remark: str | None = None
    language: LanguageCode = LanguageCode.PYTHON
    version: int = PROTOCOL_VERSION
    serialize_type: SerializeType = SerializeType.JSON
    user: str | None = attrs.field(default=None, init=False, eq=False, repr=False)
    """The user that sent this request, as far as the server's access control has verified it."""
    _header: Header | None = attrs.field(default=None, init=False, eq=False, repr=False)
    _codecs: str | None = attrs.field(default=None, init=False, eq=False, repr=False)
    _body_value: object = attrs.field(default=None, init=False, eq=False, repr=False)

    @classmethod
    def request(cls, header: RequestHeader, body: Body = b"", *, oneway: bool = False) -> Self:
        """Create a request with the code of `header`; the connection assigns its `opaque`."""
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
        """Create the answer to this request."""
        return RemotingCommand(
            code=code,
            # By it the peer finds the call that waits; in its own encoding, as it may read no other.
            opaque=self.opaque,
            flag=FLAG_RESPONSE,
            ext_fields={} if header is None else header.to_ext_fields(),
            body=body,
            remark=remark,
            serialize_type=self.serialize_type,
        )

    @property
    def is_oneway(self) -> bool:
        """True if the sender does not expect an answer."""
        return bool(self.flag & FLAG_ONEWAY)

    @property
    def ext_fields(self) -> dict[str, str]:
        """The header fields as strings; the caller may change the dict."""
        fields = self._ext_fields
        if not isinstance(fields, dict):
            # The caller may change the fields: a header object from before would no longer say the same.
            fields = self._ext_fields = _text_fields(fields)
            self._header = None
        return fields

    @ext_fields.setter
    def ext_fields(self, fields: dict[str, str]) -> None:
        self._ext_fields, self._header = fields, None

    def has_field(self, name: str) -> bool:
        """Return whether `name` is among the ext fields.

        False for a command with a header object, whose class has no other fields than its own.
        """
        fields = self._ext_fields
        return isinstance(fields, dict) and name in fields

    def take_announced_codecs(self) -> str:
        """Remove the field `rocketrioCodecs`, which is for the connection alone, and return it."""
        self._codecs = self.ext_fields.pop(CODECS_FIELD)
        return self._codecs

    def wire_fields(self) -> dict[str, str]:
        """Return the ext fields as the peer sent and signed them, in a dict of its own."""
        own = self._ext_fields
        fields = own.copy() if isinstance(own, dict) else json_ext_fields(own)
        if self._codecs is not None:
            fields[CODECS_FIELD] = self._codecs
        return fields

    def header(self, header_class: type[HeaderT]) -> HeaderT:
        """Return the fields as a header object. Raises RemoteProtocolError that names a missing or wrong field."""
        header = self._header
        if isinstance(header, header_class):
            return header
        return header_class.from_ext_fields(self.ext_fields)

    def json_body(self, kind: type[T], *, what: str) -> T:
        """Return the JSON body of a request, decoded once. Raises RemoteProtocolError as `loads_bounded` does."""
        value = self._body_value
        if not isinstance(value, kind):
            value = self._body_value = fastjson.loads_bounded(self.body, kind, what=what)
        return value

    def error(
        self, what: str, *, broker_addr: str | None = None, topic: str | None = None
    ) -> BrokerError:
        """Return the error that this answer of failure means; its text begins with `what`."""
        return broker_error(
            what, code=self.code, remark=self.remark, broker_addr=broker_addr, topic=topic
        )

    def encode(self) -> bytes:
        """Encode the whole frame. Raises LocalProtocolError when this encoding cannot express the command."""
        return encode_frame(self.serialize_type, encode_header(self), self.body)

    @classmethod
    def decode(cls, frame: Frame) -> "RemotingCommand":
        """Decode the command in a frame. Raises RemoteProtocolError."""
        if frame.serialize_type == _JSON and (hot := read_hot_header(frame.header)) is not None:
            envelope, header = hot
            command = cls(
                envelope.code,
                envelope.opaque,
                envelope.flag,
                frame.header,
                frame.body,
                envelope.remark,
                LANGUAGE_BY_NAME.get(envelope.language, _OTHER),
                envelope.version,
                _JSON,
            )
            command._header = header
            return command
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
