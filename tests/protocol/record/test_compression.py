"""Compressed bodies: what Java's producer wrote, each codec's own forms, and damage."""

import sys
import zlib
from contextlib import suppress

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from rocketrio_protocol.errors import ConfigError, LocalProtocolError, RemoteProtocolError
from rocketrio_protocol.record.compression import CompressionType, compress, decompress

_KINDS = [
    CompressionType.LZ4,
    CompressionType.ZSTD,
    CompressionType.ZLIB,
    CompressionType.UNSPECIFIED,
]
_NAMES = {0: "ZLIB", 1: "LZ4", 2: "ZSTD", 3: "ZLIB"}


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("body", [b"", b"x", b"abc" * 5000, bytes(range(256)) * 300])
def test_compressed_bodies_come_back(kind: CompressionType, body: bytes) -> None:
    assert decompress(compress(body, kind), kind) == body
    assert decompress(memoryview(compress(body, kind)), kind) == body


def test_zlib_bodies_are_those_of_level_five() -> None:
    body = b"some body " * 1000
    assert compress(body) == zlib.compress(body, 5)


def test_streamed_frames_without_a_content_size_are_read() -> None:
    # What Java's stream classes write: no size in the header, blocks as they came.
    body = b"streamed " * 40000
    stream = zstandard.ZstdCompressor(level=3).compressobj()
    assert decompress(stream.compress(body) + stream.flush(), CompressionType.ZSTD) == body
    packer = lz4.frame.LZ4FrameCompressor()
    packed = packer.begin() + packer.compress(body) + packer.flush()
    assert decompress(packed, CompressionType.LZ4) == body


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("size", [0, 1, 9, -1, -5])
def test_cut_off_bodies_are_refused(kind: CompressionType, size: int) -> None:
    stored = compress(b"abcdef" * 2000 + bytes(range(200)), kind)[:size]
    with pytest.raises(
        RemoteProtocolError, match=f"{_NAMES[kind]} body of {len(stored)} stored bytes is damaged"
    ):
        decompress(stored, kind)


@pytest.mark.parametrize("kind", _KINDS)
def test_a_body_that_grows_beyond_the_limit_is_refused(kind: CompressionType) -> None:
    stored = compress(bytes(100_000), kind)
    assert len(decompress(stored, kind, max_size=100_000)) == 100_000
    with pytest.raises(RemoteProtocolError, match="exceeds 99999 bytes"):
        decompress(stored, kind, max_size=99_999)


@given(st.sampled_from(_KINDS), st.binary(max_size=100), st.integers(0, 200), st.integers(1, 255))
def test_damage_raises_nothing_else(
    kind: CompressionType, body: bytes, at: int, change: int
) -> None:
    stored = bytearray(compress(body * 20, kind))
    stored[at % len(stored)] ^= change
    for damaged in (bytes(stored), body):
        with suppress(RemoteProtocolError):
            decompress(damaged, kind, max_size=1_000_000)


def test_unknown_kinds_are_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="type 5 in sysFlag"):
        decompress(b"", 5)
    with pytest.raises(LocalProtocolError, match="unknown compression"):
        compress(b"", 5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "module"), [(CompressionType.LZ4, "lz4.frame"), (CompressionType.ZSTD, "zstandard")]
)
def test_missing_codec_names_the_extra(
    kind: CompressionType, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=f"{kind.name}.*\\[codecs\\]"):
        decompress(b"", kind)
