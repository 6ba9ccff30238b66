"""Length-prefixed frames: what every remoting byte stream is cut into.

    0      4                8            8 + H              4 + L
    +------+----+-----------+------------+------------------+
    | L i32| S  | H (24 bit)| header     | body             |
    +------+----+-----------+------------+------------------+

L counts what follows it; S is the serialize type; H the header's length.

Invariant: nothing is allocated for a claimed length; bytes are kept as they arrive.
Invariant: any split of the same bytes gives the same frames and the same error after them.
Answers to: NettyDecoder, RemotingCommand.decode.
"""

import struct
from typing import Final

import attrs

from rocketrio_protocol.errors import LocalProtocolError, RemoteProtocolError

Body = bytes | memoryview
"""Bytes that never change once handed over; a view may share its memory with the frames beside it."""

FRAME_SIZE_LIMIT: Final = 16 * 1024 * 1024
"""Longest frame in bytes, its length word included (com.rocketmq.remoting.frameMaxLength)."""

HEADER_SIZE_LIMIT: Final = 0xFFFFFF
"""Longest header in bytes: what 24 bits can say."""

_PREFIX = struct.Struct(">iI")
_LENGTH = struct.Struct(">i")
_PREFIX_SIZE = _PREFIX.size
_LENGTH_SIZE = _LENGTH.size


def encode_frame(
    serialize_type: int,
    header: bytes,
    body: Body = b"",
    *,
    frame_size_limit: int = FRAME_SIZE_LIMIT,
) -> bytes:
    """One frame. Raises LocalProtocolError when a peer would refuse its size."""
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


@attrs.frozen
class Frame:
    """One frame as it came: still encoded header, and body."""

    serialize_type: int
    header: Body
    body: Body


class FrameDecoder:
    """Cuts received bytes into frames.

    Bytes of unfinished frames are gathered in one buffer that is given up to its frames once they are
    whole, so that a large body is not copied a second time.
    """

    def __init__(self, *, frame_size_limit: int = FRAME_SIZE_LIMIT) -> None:
        self.error: RemoteProtocolError | None = None
        """Why the stream is of no more use after the frames that `feed` returned, or None."""
        self._frame_size_limit = frame_size_limit
        self._pending = bytearray()
        self._wanted = _LENGTH_SIZE

    @property
    def pending_size(self) -> int:
        """Bytes kept of a frame that is not whole yet."""
        return len(self._pending)

    def feed(self, data: Body) -> list[Frame]:
        """The frames that `data` completes, in order. `data` may be overwritten afterwards.

        Never raises: a stream that breaks the protocol sets `error`, and later calls return nothing.
        """
        if self.error is not None:
            return []
        if not self._pending:
            return self._cut(memoryview(data), copy=True)
        self._pending += data
        if len(self._pending) < self._wanted:
            return []
        gathered = memoryview(self._pending)
        self._pending = bytearray()
        return self._cut(gathered, copy=False)

    def feed_eof(self) -> None:
        """The stream ended; an unfinished frame is an error."""
        if self._pending and self.error is None:
            self.error = RemoteProtocolError(
                f"The stream ended {len(self._pending)} bytes into a frame of at least {self._wanted}"
            )

    def _cut(self, view: memoryview, *, copy: bool) -> list[Frame]:
        frames: list[Frame] = []
        position, end = 0, len(view)
        while True:
            wanted = self._size_at(view, position)
            if self.error is not None:
                return frames
            if end - position < wanted or wanted <= _LENGTH_SIZE:
                break
            length, type_and_header = _PREFIX.unpack_from(view, position)
            body_start = position + _PREFIX_SIZE + (type_and_header & HEADER_SIZE_LIMIT)
            if body_start > position + wanted:
                self._fail(
                    f"A frame of {length} bytes claims a header of "
                    f"{type_and_header & HEADER_SIZE_LIMIT} bytes"
                )
                return frames
            header: Body = view[position + _PREFIX_SIZE : body_start]
            body: Body = view[body_start : position + wanted]
            if copy:
                header, body = bytes(header), bytes(body)
            frames.append(Frame(type_and_header >> 24, header, body))
            position += wanted
        self._wanted = wanted
        self._pending += view[position:]
        return frames

    def _size_at(self, view: memoryview, position: int) -> int:
        """Bytes that the frame at `position` needs, as far as can be told from what is there."""
        if len(view) - position < _LENGTH_SIZE:
            return _LENGTH_SIZE
        (length,) = _LENGTH.unpack_from(view, position)
        if length < _PREFIX_SIZE - _LENGTH_SIZE or length + _LENGTH_SIZE > self._frame_size_limit:
            self._fail(
                f"A frame claims {length} bytes; allowed are 4 to "
                f"{self._frame_size_limit - _LENGTH_SIZE}"
            )
            return 0
        return int(length) + _LENGTH_SIZE

    def _fail(self, what: str) -> None:
        self.error = RemoteProtocolError(
            what, remedy="Is the peer a RocketMQ server or client, and the port the right one?"
        )
