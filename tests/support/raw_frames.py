"""Frames byte by byte, without a line of our codec: what tests write and read as programs of another make would.

frame   i32 length, u8 0 (JSON), u24 header length, header, body       RocketMQ reference, section 1.1
"""

import json
import struct
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from rocketrio_protocol.command import FLAG_RESPONSE, RemotingCommand
from rocketrio_protocol.frame import FrameDecoder


def framed(header: bytes, body: bytes = b"", *, serialize_type: int = 0) -> bytes:
    """One frame around a header that is written already."""
    word = serialize_type << 24 | len(header)
    return struct.pack(">iI", 4 + len(header) + len(body), word) + header + body


def json_framed(header: dict[str, Any], body: bytes = b"") -> bytes:
    """With a JSON header; a member that is None is left out."""
    written = {name: value for name, value in header.items() if value is not None}
    return framed(json.dumps(written).encode(), body)


def unframed(frame: bytes) -> tuple[int, bytes, bytes]:
    """How its header is serialized, the header, the body."""
    (word,) = struct.unpack_from(">I", frame, 4)
    end = 8 + (word & 0xFFFFFF)
    return word >> 24, frame[8:end], frame[end:]


def commands_of(data: bytes) -> list[RemotingCommand]:
    """Return the commands of whole frames."""
    return [RemotingCommand.decode(frame) for frame in FrameDecoder().feed(data)]


def command_of(data: bytes) -> RemotingCommand:
    """Return the command of one frame."""
    (command,) = commands_of(data)
    return command


def split_at(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    """Return pieces that end at these places, taken modulo the size; some may be empty."""
    points = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(points)]


def is_answer(command: RemotingCommand) -> bool:
    """Return whether this is an answer, not a request."""
    return bool(command.flag & FLAG_RESPONSE)
