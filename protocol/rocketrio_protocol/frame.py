"""Frames of the remoting protocol: encodes one, and cuts a byte stream into them.

    0      4                8            8 + H              4 + L
    +------+----+-----------+------------+------------------+
    | L i32| S  | H (24 bit)| header     | body             |
    +------+----+-----------+------------+------------------+

L counts the bytes after itself, S is the serialize type, and H is the length of the header.

Invariant: a claimed length allocates nothing; the decoder keeps only bytes that arrived.
Invariant: however a stream is split, the decoder returns the same frames and the same error after them.
Answers to: NettyDecoder, RemotingCommand.decode.
"""

import struct
from typing import Final

import msgspec

from rocketrio_protocol.errors import LocalProtocolError, RemoteProtocolError

Body = bytes | memoryview
"""Bytes that do not change any more; a view may share its memory with the neighbouring frames."""

FRAME_SIZE_LIMIT: Final = 16 * 1024 * 1024
"""Longest frame in bytes, its length word included (com.rocketmq.remoting.frameMaxLength)."""

HEADER_SIZE_LIMIT: Final = 0xFFFFFF
"""Longest header in bytes: the largest number of 24 bits."""

REQUEST_HEADER_SIZE_LIMIT: Final = 256 * 1024
"""Longest header in bytes that a server reads. The largest that a client needs is the header of a send: 32,767 bytes of
properties, each of which a JSON encoder may escape to six bytes."""

VIEW_SIZE: Final = 64 * 1024
"""Size from which a gathered buffer is handed out as views instead of being copied."""

_PREFIX = struct.Struct(">iI")
_LENGTH = struct.Struct(">i")
_PREFIX_SIZE = _PREFIX.size
_LENGTH_SIZE = _LENGTH.size
_LEAST_LENGTH = _PREFIX_SIZE - _LENGTH_SIZE

GRPC_REMEDY: Final = (
    "gRPC is not supported; give a remoting port:"
    " 8080 of a proxy, 10911 of a broker, 9876 of a name server"
)
REPLICATION_REMEDY: Final = "Give the port for clients: 10911 of a broker, 9876 of a name server"
_REMEDY = "Is the peer a RocketMQ server or client, and the port the right one?"
TLS_HANDSHAKE: Final = 0x16
"""The first byte of a TLS client. A frame that begins with it would be 369 MB long or more."""
_OTHER_PROTOCOLS = {
    b"HTTP": ("The peer speaks HTTP", _REMEDY),
    b"\x15\x03": (
        "The peer speaks TLS, and this connection does not",
        "Connect with TLS: tls=True, --tls or ROCKETRIO_TLS=true; peer_tls of a broker",
    ),
    b"\x16\x03": (
        "The peer speaks TLS, and this port does not",
        "Let it connect without TLS, or give this server a certificate (tls_certificate_file)",
    ),
}
"""The first bytes of an HTTP/1 reply, of a TLS alert and of a TLS client, with what they mean and what to do."""
_HTTP2_SETTINGS = 4
"""The type of the first frame of an HTTP/2 server: `00 00 LL 04`, no flags, stream 0. No remoting frame looks like
this, because its header would be empty."""


def encode_frame(
    serialize_type: int,
    header: bytes,
    body: Body = b"",
    *,
    frame_size_limit: int = FRAME_SIZE_LIMIT,
) -> bytes:
    """Encode one frame. Raises LocalProtocolError when a peer would refuse its size."""
    header_size = len(header)
    frame_size = _PREFIX_SIZE + header_size + len(body)
    if frame_size > frame_size_limit or header_size > HEADER_SIZE_LIMIT:
        raise LocalProtocolError(
            f"A frame of {frame_size} bytes (header {header_size}) is over the limit of "
            f"{frame_size_limit} bytes that peers accept",
            remedy="Send a smaller body or fewer messages in one batch",
        )
    prefix = _PREFIX.pack(frame_size - _LENGTH_SIZE, serialize_type << 24 | header_size)
    return b"".join((prefix, header, body))


class Frame(msgspec.Struct, gc=False):
    """One received frame; its header is still encoded.

    It is a msgspec struct because creating one takes a third of the time of an attrs class.
    """

    serialize_type: int
    header: bytes
    body: Body


ALL_FRAMES = FRAME_SIZE_LIMIT
"""More frames than one call of `FrameDecoder.feed` is ever given."""


class FrameDecoder:
    """Cuts received bytes into frames.

    Bytes of an unfinished frame are gathered in one buffer. A large buffer becomes the frame's own memory, so that a
    large body is not copied twice.
    """

    def __init__(
        self,
        *,
        frame_size_limit: int = FRAME_SIZE_LIMIT,
        header_size_limit: int = HEADER_SIZE_LIMIT,
        frames_at_once: int = ALL_FRAMES,
    ) -> None:
        """`frames_at_once` limits what `feed` returns; the next call returns what follows, also without new bytes."""
        self.error: RemoteProtocolError | None = None
        """Why the stream cannot be decoded any further after the frames that `feed` returned, or None."""
        self.holds_frames = False
        """Whether `pending` may hold complete frames, which the next call of `feed` returns."""
        self._frames_at_once = frames_at_once
        self._length_limit = frame_size_limit - _LENGTH_SIZE
        self._header_limit = header_size_limit
        self.pending = bytearray()
        """The received bytes of an incomplete frame."""
        self._wanted = _LENGTH_SIZE

    def feed(self, data: Body) -> list[Frame]:
        """Return the frames that `data` completes, in order. The caller may overwrite `data` afterwards.

        Never raises: a stream that violates the protocol sets `error`, and later calls return nothing.
        """
        if self.error is not None:
            return []
        # Copy the chunk once and slice the copy: views of the reused buffer would cost twice as much per frame.
        if not self.pending:
            return self._cut(bytes(data))
        gathered = self.pending
        gathered += data
        if len(gathered) < self._wanted:
            return []
        self.pending = bytearray()
        return self._cut(bytes(gathered) if len(gathered) < VIEW_SIZE else memoryview(gathered))

    def feed_eof(self) -> None:
        """Record the end of the stream; an incomplete frame sets `error`."""
        if self.pending and self.error is None:
            self.error = RemoteProtocolError(
                f"The stream ended {len(self.pending)} bytes into a frame of at least {self._wanted}"
            )

    def _cut(self, chunk: Body) -> list[Frame]:
        frames: list[Frame] = []
        position, end = 0, len(chunk)
        self._wanted, self.holds_frames = _LENGTH_SIZE, False
        left = self._frames_at_once
        while end - position >= _PREFIX_SIZE:
            if not left:
                self.holds_frames = True
                break
            left -= 1
            length, type_and_header = _PREFIX.unpack_from(chunk, position)
            if not _LEAST_LENGTH <= length <= self._length_limit:
                self._fail_length(length)
                return frames
            header_start = position + _PREFIX_SIZE
            header_size = type_and_header & HEADER_SIZE_LIMIT
            body_start = header_start + header_size
            frame_end = position + _LENGTH_SIZE + length
            if body_start > frame_end or header_size > self._header_limit:
                self._fail(
                    f"A frame of {length} bytes claims a header of {header_size} bytes;"
                    f" {self._header_limit} is the limit"
                )
                return frames
            if not type_and_header and length & ~0xFF00 == _HTTP2_SETTINGS:
                self._fail(
                    "The peer speaks HTTP/2, as the gRPC port of a 5.x proxy does", GRPC_REMEDY
                )
                return frames
            # Only bytes that arrived are kept: a claimed length of 16 MiB costs its sender 16 MiB too.
            if frame_end > end:
                self._wanted = frame_end - position
                break
            header = chunk[header_start:body_start]
            if type(header) is not bytes:
                header = bytes(header)
            frames.append(Frame(type_and_header >> 24, header, chunk[body_start:frame_end]))
            position = frame_end
        else:
            # Too few bytes for a prefix. Check a complete length at once, so that every split gives the same error.
            if end - position >= _LENGTH_SIZE:
                (length,) = _LENGTH.unpack_from(chunk, position)
                if not _LEAST_LENGTH <= length <= self._length_limit:
                    self._fail_length(length)
                    return frames
                self._wanted = _PREFIX_SIZE
        if position < end:
            self.pending += memoryview(chunk)[position:]
        return frames

    def _fail_length(self, length: int) -> None:
        for start, (what, remedy) in _OTHER_PROTOCOLS.items():
            if length.to_bytes(4, signed=True).startswith(start):
                self._fail(what, remedy)
                return
        if not length:
            # A replication port begins with an eight-byte log offset, whose first four bytes are 0 up to 4 GiB.
            self._fail(
                "The peer does not send frames; it may be a broker's replication port",
                REPLICATION_REMEDY,
            )
            return
        self._fail(
            f"A frame claims {length} bytes; allowed are {_LEAST_LENGTH} to {self._length_limit}"
        )

    def _fail(self, what: str, remedy: str = _REMEDY) -> None:
        self.error = RemoteProtocolError(what, remedy=remedy)
