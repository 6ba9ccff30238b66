"""Compresses and decompresses bodies: zlib always, LZ4 and ZSTD with the extra `codecs`.

Invariant: a size that compressed bytes claim allocates nothing, and the output is limited.
Answers to: UtilAll.compress / uncompress (4.x) and the Compressor classes (5.x), which write LZ4 in its
frame format and plain ZSTD frames.
"""

import zlib
from enum import IntEnum
from importlib import import_module
from typing import Any, Final

import attrs

from rocketrio_protocol.errors import ConfigError, LocalProtocolError, RemoteProtocolError
from rocketrio_protocol.extras import how_to_install

ZLIB_LEVEL: Final = 5
"""The same as zipCompressLevel of Java's producer."""
COMPRESS_BODY_OVER: Final = 4096
"""Bytes; the same as compressMsgBodyOverHowmuch of Java's producer."""
MAX_BODY_SIZE: Final = 64 * 1024 * 1024
"""Bytes of a decompressed body: sixteen times the default limit of producers (4 MiB)."""
INFLATE_LIMIT: Final = 2 * MAX_BODY_SIZE
"""Bytes of all decompressed bodies together when many are read at once: any producer can send bodies that grow a
thousandfold."""

# The LZ4 binding allocates its whole limit at once, so the limit is what the input can produce at most.
_LZ4_MAX_RATIO: Final = 255
_LZ4_BLOCK_ROOM: Final = 64 * 1024
# Four bytes may expand to 128 KiB, so a piece of 1 KiB exceeds the limit by 32 MiB at worst.
_ZSTD_PIECE_SIZE: Final = 1024


class TooMuchToInflateError(LocalProtocolError):
    """The compressed bodies of several messages would together exceed their limit."""

    remedy = "Read fewer messages at once"

    def __init__(self, fitting: int, limit: int) -> None:
        super().__init__(
            f"the compressed bodies together exceed {limit} bytes; those of the first {fitting} messages fit"
        )
        self.fitting = fitting
        self.limit = limit


@attrs.define
class InflateBudget:
    """The limit for the decompressed bodies of several messages, and how much is used."""

    limit: int = INFLATE_LIMIT
    used: int = 0

    def take(self, size: int, before: int) -> None:
        """Use `size` bytes for the body that comes after `before` messages. Raises TooMuchToInflateError."""
        if self.used + size > self.limit:
            raise TooMuchToInflateError(before, self.limit)
        self.used += size


class CompressionType(IntEnum):
    """Bits 8 to 10 of sysFlag; 4.x producers before 4.9 leave them 0 and mean zlib."""

    UNSPECIFIED = 0
    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


def compress(body: bytes, kind: CompressionType = CompressionType.ZLIB) -> bytes:
    """Compress a body, in the form that every peer that supports `kind` can read."""
    if kind in (CompressionType.ZLIB, CompressionType.UNSPECIFIED):
        return zlib.compress(body, ZLIB_LEVEL)
    if kind == CompressionType.LZ4:
        return bytes(_codec("lz4.frame", kind).compress(body))
    if kind == CompressionType.ZSTD:
        return bytes(_codec("zstandard", kind).ZstdCompressor(level=ZLIB_LEVEL).compress(body))
    raise LocalProtocolError(f"unknown compression {kind!r}")


def decompress(stored: bytes | memoryview, kind: int, *, max_size: int = MAX_BODY_SIZE) -> bytes:
    """Decompress a body; `kind` is the number in sysFlag."""
    if kind in (CompressionType.ZLIB, CompressionType.UNSPECIFIED):
        decompressor: Any = zlib.decompressobj()
        errors: tuple[type[Exception], ...] = (zlib.error,)
        room = max_size
    elif kind == CompressionType.LZ4:
        decompressor = _codec("lz4.frame", CompressionType.LZ4).LZ4FrameDecompressor()
        errors = (RuntimeError, EOFError, ValueError)
        room = min(max_size, len(stored) * _LZ4_MAX_RATIO + _LZ4_BLOCK_ROOM)
    elif kind == CompressionType.ZSTD:
        return _unzstd(stored, max_size)
    else:
        raise RemoteProtocolError(f"a body has the unknown compression type {kind} in sysFlag")
    name = CompressionType(kind or CompressionType.ZLIB).name
    try:
        # One byte more than allowed shows that it is too long; what the stream claims to hold is not believed.
        body: bytes = decompressor.decompress(stored, room + 1)
    except errors as error:
        raise _damaged(name, stored, str(error)) from error
    if len(body) > max_size:
        raise _too_large(name, max_size)
    # A body that is cut off decompresses without an error: only the end of the stream shows that it is whole.
    if not decompressor.eof:
        raise _damaged(name, stored, "it is cut off")
    return body


def _unzstd(stored: bytes | memoryview, max_size: int) -> bytes:
    zstandard = _codec("zstandard", CompressionType.ZSTD)
    # Java's stream does not write the content size, so only the incremental form can decode it.
    decompressor = zstandard.ZstdDecompressor(max_window_size=max_size).decompressobj()
    pieces: list[bytes] = []
    size = 0
    try:
        for at in range(0, len(stored), _ZSTD_PIECE_SIZE):
            pieces.append(decompressor.decompress(stored[at : at + _ZSTD_PIECE_SIZE]))
            size += len(pieces[-1])
            if size > max_size:
                raise _too_large("ZSTD", max_size)
            if decompressor.eof:
                return b"".join(pieces)
    except zstandard.ZstdError as error:
        raise _damaged("ZSTD", stored, str(error)) from error
    raise _damaged("ZSTD", stored, "it is cut off")


def _damaged(name: str, stored: bytes | memoryview, why: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"a {name} body of {len(stored)} stored bytes is damaged: {why}")


def _too_large(name: str, max_size: int) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"a {name} body exceeds {max_size} bytes after decompression and was refused"
    )


def _codec(module: str, kind: CompressionType) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"a message body is compressed with {kind.name}, whose package is not installed",
            remedy=how_to_install("codecs"),
        ) from error
