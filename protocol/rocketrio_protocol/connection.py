"""Sans-I/O state machine of one remoting connection. Feed it received bytes; it returns requests and finished calls.

Both ends may send requests. A call stays in `response_table` under its opaque until its answer arrives or the caller
forgets it. The caller decides what a call is, such as a waiting task.

Invariant: complete commands before a protocol error are returned, and nothing after it.
Invariant: a MSGPACK header is sent only to a peer that has shown that it reads them: it announced MSGPACK in the ext
field `rocketrioCodecs` of a request, or sent such a header (docs/decisions/0002-msgpack-negotiation.md).
Answers to: NettyRemotingAbstract (responseTable, processResponseCommand).
Unlike Java: opaque numbers count per connection, not per process.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Final, Generic, Protocol, TypeVar

from rocketrio_protocol.codes import LanguageCode, SerializeType
from rocketrio_protocol.command import FLAG_ONEWAY, FLAG_RESPONSE, RemotingCommand
from rocketrio_protocol.errors import LocalProtocolError, RemoteProtocolError, TooManyRequestsError
from rocketrio_protocol.frame import (
    ALL_FRAMES,
    FRAME_SIZE_LIMIT,
    HEADER_SIZE_LIMIT,
    Body,
    FrameDecoder,
)
from rocketrio_protocol.header_codec import CODECS_FIELD
from rocketrio_protocol.signature import Signer

RESPONSE_TABLE_LIMIT: Final = 65_535
"""Calls that may wait on one connection (com.rocketmq.remoting.clientAsyncSemaphoreValue)."""

OUT_SIZE_LIMIT: Final = 4 * FRAME_SIZE_LIMIT
"""Bytes that may wait to be sent on one connection: four of the largest frames."""

TAKE_SIZE: Final = 256 * 1024
"""Bytes up to which small frames are joined to be sent together."""

_OPAQUE_LIMIT: Final = 2**31 - 1
_MSGPACK: Final = (
    SerializeType.MSGPACK
)  # Naming a member of an enumeration costs as much as a call.
_ROCKETMQ: Final = SerializeType.ROCKETMQ
_OWN_CODECS: Final = _MSGPACK.name

CallT = TypeVar("CallT")


class PreparedRequest(Protocol):
    """A request whose bytes are mostly encoded once for many requests."""

    @property
    def code(self) -> int:
        """The request code."""
        ...

    def json_frame(self, opaque: int, signer: Signer | None) -> bytes:
        """Encode the whole frame with a JSON header, signed if there is a signer.

        Raises LocalProtocolError as `RemotingCommand.encode` does.
        """
        ...

    def command(self) -> RemotingCommand:
        """Return the same request for a connection with another encoding."""
        ...


class RemotingConnection(Generic[CallT]):
    """The protocol state of one connection, at the client or the server."""

    def __init__(
        self,
        *,
        serialize_type: SerializeType = SerializeType.JSON,
        msgpack_allowed: bool = True,
        frame_size_limit: int = FRAME_SIZE_LIMIT,
        header_size_limit: int = HEADER_SIZE_LIMIT,
        frames_at_once: int = ALL_FRAMES,
        response_table_limit: int = RESPONSE_TABLE_LIMIT,
        out_size_limit: int = OUT_SIZE_LIMIT,
        first_opaque: int = 0,
        signer: Signer | None = None,
        receivers: Sequence[str] = (),
    ) -> None:
        """`serialize_type` is the preferred encoding of requests; for MSGPACK they are JSON until the peer agrees.

        `frames_at_once` limits what one call of `receive` decodes. With a `signer` every request is signed; answers
        never are. `receivers` are the addresses of the other end, for which a signed request is good.
        """
        self.error: RemoteProtocolError | None = None
        """Why nothing more can be received, or None; with an error the connection must be closed."""
        self.response_table: dict[int, CallT] = {}
        self.peer_reads_msgpack = False
        self.peer_language: LanguageCode | None = None
        self.peer_version: int | None = None
        self.late_answer_count = 0
        """Answers that arrived after their calls were forgotten."""
        self.frame_count = 0
        """Complete frames received."""
        self.holds_frames = False
        """Whether complete frames have been received and not decoded."""
        self.unfinished_size = 0
        """Bytes received of an incomplete frame."""
        self.out_size = 0
        """Bytes of all frames that wait to be sent."""
        self._out: list[Body] = []
        self._announcing = serialize_type is SerializeType.MSGPACK
        self._request_type = SerializeType.JSON if self._announcing else serialize_type
        self._prefers_msgpack = self._announcing or msgpack_allowed
        self._decoder = FrameDecoder(
            frame_size_limit=frame_size_limit,
            header_size_limit=header_size_limit,
            frames_at_once=frames_at_once,
        )
        self._response_table_limit = response_table_limit
        self._out_size_limit = out_size_limit
        self._next_opaque = first_opaque
        self._signer = signer
        self._receivers = receivers

    @property
    def request_type(self) -> SerializeType:
        """The encoding of the next request."""
        return self._request_type

    # ------------------------------------------------------------------------------------- receiving

    def receive(
        self, data: Body
    ) -> tuple[list[RemotingCommand], list[tuple[CallT, RemotingCommand]]]:
        """Return the requests that `data` completes, in order, and the finished calls with their answers.

        No fault of the peer raises; see `error`. While `holds_frames` is true, another call without data returns
        further ones. The caller may overwrite `data` afterwards.
        """
        requests: list[RemotingCommand] = []
        finished: list[tuple[CallT, RemotingCommand]] = []
        if self.error is not None:
            return requests, finished
        decoder = self._decoder
        frames = decoder.feed(data)
        self.holds_frames = decoder.holds_frames
        self.frame_count += len(frames)
        self.unfinished_size = len(decoder.pending)
        for frame in frames:
            try:
                command = RemotingCommand.decode(frame)
            except RemoteProtocolError as error:
                # The commands before it count: how the bytes were split must not decide whether they are executed.
                self.error, self.holds_frames = error, False
                return requests, finished
            if command.flag & FLAG_RESPONSE:
                self._finish(command, finished)
            else:
                if command.has_field(CODECS_FIELD):
                    self._note_codecs(command)
                elif command.serialize_type is _MSGPACK:
                    self._agree_on_msgpack()
                requests.append(command)
        if requests:
            self.peer_language, self.peer_version = requests[-1].language, requests[-1].version
        self.error = self._decoder.error
        return requests, finished

    def receive_eof(self) -> None:
        """Record that the peer sends no more; sets `error` if that was inside a frame."""
        self._decoder.feed_eof()
        if self.error is None:
            self.error = self._decoder.error

    def _finish(
        self, answer: RemotingCommand, finished: list[tuple[CallT, RemotingCommand]]
    ) -> None:
        # Every request so far carried the announcement, so this answer decides.
        if self._announcing:
            self._announcing = False
        if answer.serialize_type is SerializeType.MSGPACK:
            self._agree_on_msgpack()
        call = self.response_table.pop(answer.opaque, None)
        if call is None:
            self.late_answer_count += 1
        else:
            finished.append((call, answer))

    def _note_codecs(self, request: RemotingCommand) -> None:
        codecs = request.take_announced_codecs().split(",")
        if self._prefers_msgpack and _OWN_CODECS in codecs:
            self._agree_on_msgpack()
            request.serialize_type = SerializeType.MSGPACK  # The encoding of its answer.

    def _agree_on_msgpack(self) -> None:
        self.peer_reads_msgpack = True
        if self._prefers_msgpack:
            self._request_type = SerializeType.MSGPACK

    # --------------------------------------------------------------------------------------- sending

    def start_call(self, request: RemotingCommand | PreparedRequest, call: CallT) -> int:
        """Queue a request whose answer finishes `call`; return its opaque. Raises as `send_request` does."""
        if len(self.response_table) >= self._response_table_limit:
            raise TooManyRequestsError(
                f"{len(self.response_table)} requests already wait for answers on one connection"
            )
        opaque = self.send_request(request)
        # After it is queued: a request that cannot be encoded must leave no call that waits for ever.
        self.response_table[opaque] = call
        return opaque

    def forget_call(self, opaque: int) -> CallT | None:
        """Forget a cancelled call; its late answer is dropped."""
        return self.response_table.pop(opaque, None)

    def forget_all_calls(self) -> list[CallT]:
        """Remove and return all waiting calls, because the connection has ended."""
        calls = list(self.response_table.values())
        self.response_table.clear()
        return calls

    def send_request(self, request: RemotingCommand | PreparedRequest) -> int:
        """Queue a request in the encoding of this connection; return the opaque that it was given.

        Raises LocalProtocolError if the request cannot be encoded, and TooManyRequestsError at the limit. Then nothing
        is queued.
        """
        opaque = self._next_opaque
        # After two billion requests the numbers begin again, and an old call may still wait.
        while opaque in self.response_table:
            opaque = opaque + 1 if opaque < _OPAQUE_LIMIT else 0
        if not isinstance(request, RemotingCommand):
            if self._request_type is SerializeType.JSON and not self._announcing:
                self.send_frame(request.json_frame(opaque, self._signer))
                self._next_opaque = opaque + 1 if opaque < _OPAQUE_LIMIT else 0
                return opaque
            request = request.command()
        request.opaque = opaque
        request.serialize_type = self._request_type
        if self._announcing or self._signer is not None:
            # Use a copy: the caller may send the same command to another kind of peer, or again.
            request = RemotingCommand(
                request.code,
                opaque,
                request.flag,
                self._fields_to_send(request),
                request.body,
                request.remark,
                request.language,
                request.version,
                request.serialize_type,
            )
        self.send_frame(request.encode())
        self._next_opaque = opaque + 1 if opaque < _OPAQUE_LIMIT else 0
        return opaque

    def _fields_to_send(self, request: RemotingCommand) -> dict[str, str]:
        fields = request.ext_fields
        if self._announcing:
            fields = {**fields, CODECS_FIELD: _OWN_CODECS}
        if self._signer is None:
            return fields
        if request.serialize_type is _ROCKETMQ:
            # Apache's servers read an empty value as null, and would expect that the word was signed.
            fields = {name: value for name, value in fields.items() if value}
        return self._signer.proved(request.code, fields, request.body, receivers=self._receivers)

    def send_oneway(self, request: RemotingCommand) -> None:
        """Queue a request that expects no answer. Raises as `send_request` does."""
        request.flag |= FLAG_ONEWAY
        self.send_request(request)

    def send_answer(self, answer: RemotingCommand) -> None:
        """Queue an answer in its own encoding. Raises LocalProtocolError, TooManyRequestsError."""
        # Apache's peers know no such header, and the caller would get no answer.
        if answer.serialize_type is SerializeType.MSGPACK and not self.peer_reads_msgpack:
            raise LocalProtocolError("This peer has not announced that it reads MSGPACK headers")
        self.send_frame(answer.encode())

    def send_frame(self, frame: Body) -> None:
        """Queue an encoded frame. Raises TooManyRequestsError at the limit."""
        size = len(frame)
        if self.out_size + size > self._out_size_limit:
            raise TooManyRequestsError(
                f"{self.out_size} bytes already wait to be sent, because the peer does not read them"
            )
        self._out.append(frame)
        self.out_size += size

    def take_output(self) -> Body:
        """Remove and return the bytes to send next; empty when nothing waits.

        Joins frames up to TAKE_SIZE. Joining copies the bytes, so a larger frame is returned alone.
        """
        out = self._out
        if self.out_size <= TAKE_SIZE:
            self._out = []
            self.out_size = 0
            return out[0] if len(out) == 1 else b"".join(out)
        count, size = 1, len(out[0])
        for frame in islice(out, 1, None):
            if size + len(frame) > TAKE_SIZE:
                break
            count, size = count + 1, size + len(frame)
        self._out = out[count:]
        self.out_size -= size
        return out[0] if count == 1 else b"".join(out[:count])

    def put_back(self, rest: Body) -> None:
        """Put back bytes of `take_output` that the transport did not accept; they stay first in line."""
        self._out.insert(0, rest)
        self.out_size += len(rest)
