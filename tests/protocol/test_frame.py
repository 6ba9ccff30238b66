"""Frames: any split of the same bytes gives the same frames, and hostile lengths cost nothing."""

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.golden.golden import remoting_frames
from tests.support.raw_frames import split_at

from rocketrio_protocol.errors import LocalProtocolError
from rocketrio_protocol.frame import (
    FRAME_SIZE_LIMIT,
    HEADER_SIZE_LIMIT,
    REQUEST_HEADER_SIZE_LIMIT,
    VIEW_SIZE,
    Frame,
    FrameDecoder,
    encode_frame,
)

RUNS = ("4.9.7", "5.3.3", "5.3.3-split")

FRAMES = [
    Frame(0, b'{"code":1}', b""),
    Frame(1, b"", b"body without a header"),
    Frame(77, b"\x97", bytes(range(256)) * 3),
    Frame(0, b"{}", b""),
    Frame(255, b"", b""),
    Frame(0, b"h" * 300, bytes(VIEW_SIZE)),
    Frame(0, b"last", b"one"),
]
STREAM = b"".join(encode_frame(frame.serialize_type, frame.header, frame.body) for frame in FRAMES)


def plain(frames: list[Frame]) -> list[tuple[int, bytes, bytes]]:
    return [(frame.serialize_type, bytes(frame.header), bytes(frame.body)) for frame in frames]


def cut(pieces: list[bytes]) -> tuple[list[tuple[int, bytes, bytes]], str | None]:
    """Frames and error of a stream that arrives in pieces and ends, from a buffer that is used again."""
    decoder = FrameDecoder()
    frames: list[Frame] = []
    buffer = bytearray(max(map(len, pieces), default=0))
    for piece in pieces:
        buffer[: len(piece)] = piece
        frames += decoder.feed(memoryview(buffer)[: len(piece)])
        buffer[:] = b"\xee" * len(buffer)
    decoder.feed_eof()
    return plain(frames), decoder.error and str(decoder.error)


def test_whole_stream_is_cut_into_its_frames() -> None:
    assert cut([STREAM]) == (plain(FRAMES), None)


def test_byte_by_byte_gives_the_same_frames() -> None:
    assert cut([STREAM[at : at + 1] for at in range(len(STREAM))]) == (plain(FRAMES), None)


@given(st.lists(st.integers(0, len(STREAM)), max_size=30))
def test_any_split_gives_the_same_frames(cuts: list[int]) -> None:
    assert cut(split_at(STREAM, cuts)) == (plain(FRAMES), None)


@given(
    st.sampled_from(
        [
            b"GET / HTTP/1.1\r\n\r\n",
            struct.pack(">i", 3) + b"abc",
            struct.pack(">i", -1) + bytes(20),
            struct.pack(">iI", 10, 7) + bytes(30),  # the header claims one byte more than the frame
            struct.pack(">iI", 10, 6),  # ends early
            struct.pack(">iI", FRAME_SIZE_LIMIT - 3, 0),  # one byte over the limit
            b"\x00\x00\x00",
            b"\x00\x00\x00\x04\x00",
        ]
    ),
    st.lists(st.integers(0, 1200), max_size=10),
)
def test_any_split_gives_the_same_error_after_the_same_frames(bad: bytes, cuts: list[int]) -> None:
    stream = STREAM[: -(VIEW_SIZE + 400)] + bad
    whole_frames, whole_error = cut([stream])
    assert whole_error is not None
    assert cut(split_at(stream, cuts)) == (whole_frames, whole_error)


def test_frames_before_a_bad_one_are_given_and_none_after_it() -> None:
    decoder = FrameDecoder()
    good = encode_frame(0, b"{}", b"good")
    frames = decoder.feed(good + good + struct.pack(">iI", -5, 0) + good)
    assert [frame.body for frame in frames] == [b"good", b"good"]
    assert "claims -5 bytes" in str(decoder.error)
    assert decoder.feed(good) == []


def test_header_longer_than_its_frame_is_refused_before_the_frame_is_whole() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(struct.pack(">iI", 1_000_000, 1_000_000)) == []
    assert "A frame of 1000000 bytes claims a header of 1000000 bytes" in str(decoder.error)
    decoder = FrameDecoder()
    (frame,) = decoder.feed(struct.pack(">iI", 10, 6) + b"header")
    assert (frame.header, frame.body) == (b"header", b"")


def test_header_over_the_limit_is_refused_before_it_is_complete() -> None:
    limit = REQUEST_HEADER_SIZE_LIMIT
    decoder = FrameDecoder(header_size_limit=limit)
    (frame,) = decoder.feed(encode_frame(0, bytes(limit), b"body"))
    assert len(frame.header) == limit
    assert decoder.feed(struct.pack(">iI", limit + 100, limit + 1)) == []
    assert f"claims a header of {limit + 1} bytes; {limit} is the limit" in str(decoder.error)


def test_trailing_bytes_wait_for_the_rest_of_their_frame() -> None:
    decoder = FrameDecoder()
    frame = encode_frame(0, b"{}", b"body")
    assert len(decoder.feed(frame + frame[:9])) == 1
    assert len(decoder.pending) == 9
    assert plain(decoder.feed(frame[9:])) == [(0, b"{}", b"body")]
    assert len(decoder.pending) == 0
    decoder.feed_eof()
    assert decoder.error is None


def test_claimed_length_allocates_nothing() -> None:
    decoders = [FrameDecoder() for _ in range(20)]
    claim = struct.pack(">iI", FRAME_SIZE_LIMIT - 4, 0) + b"x"
    tracemalloc.start()
    try:
        for decoder in decoders:
            decoder.feed(claim)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20_000
    assert all(decoder.error is None for decoder in decoders)


def test_largest_frame_passes_and_one_byte_more_does_not() -> None:
    largest = encode_frame(0, b"", bytes(FRAME_SIZE_LIMIT - 8))
    assert len(largest) == FRAME_SIZE_LIMIT
    decoder = FrameDecoder()
    (frame,) = decoder.feed(largest)
    assert len(frame.body) == FRAME_SIZE_LIMIT - 8
    with pytest.raises(LocalProtocolError, match="over the limit"):
        encode_frame(0, b"", bytes(FRAME_SIZE_LIMIT - 7))


def test_header_over_24_bits_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="over the limit"):
        encode_frame(0, bytes(HEADER_SIZE_LIMIT + 1), frame_size_limit=2 * FRAME_SIZE_LIMIT)


def test_serialize_type_does_not_leak_into_the_header_length() -> None:
    (frame,) = FrameDecoder().feed(encode_frame(255, b"{}", b""))
    assert (frame.serialize_type, frame.header) == (255, b"{}")


@pytest.mark.parametrize("run", RUNS)
def test_recorded_frames_are_framed_to_the_byte(run: str) -> None:
    recorded = remoting_frames(run)
    assert len(recorded) > 50
    for one in recorded:
        (frame,) = FrameDecoder().feed(one.data)
        assert encode_frame(frame.serialize_type, bytes(frame.header), frame.body) == one.data


@pytest.mark.parametrize("run", RUNS)
def test_recorded_connections_are_cut_alike_in_chunks_of_any_size(run: str) -> None:
    streams: dict[tuple[int, bool], list[bytes]] = {}
    for one in remoting_frames(run):
        streams.setdefault((one.connection, one.from_dialer), []).append(one.data)
    for frames in streams.values():
        stream = b"".join(frames)
        for size in (7, 1000, 4096):
            pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
            found, error = cut(pieces)
            assert error is None
            assert [encode_frame(*frame) for frame in found] == frames


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (bytes.fromhex("000012 04 00 00000000 000300000064"), "HTTP/2, as the gRPC port"),
        (bytes.fromhex("000000 04 00 00000000"), "HTTP/2, as the gRPC port"),
        (b"HTTP/1.1 400 Bad Request\r\n", "speaks HTTP."),
        (bytes.fromhex("15030300020246"), "speaks TLS, and this connection does not."),
        (bytes.fromhex("1603010200010001"), "speaks TLS, and this port does not."),
    ],
)
def test_peers_of_other_protocols_are_named(first: bytes, said: str) -> None:
    decoder = FrameDecoder()
    assert decoder.feed(first) == []
    assert said in str(decoder.error)


@pytest.mark.parametrize("at_once", [1, 3, 10, 11])
def test_frames_are_returned_some_at_a_time(at_once: int) -> None:
    data = b"".join(encode_frame(0, b"{}", bytes([number])) for number in range(10))
    decoder = FrameDecoder(frames_at_once=at_once)
    found = decoder.feed(data + data[:5])
    while decoder.holds_frames:
        assert len(found) % at_once == 0
        found += decoder.feed(b"")
    assert [bytes(frame.body) for frame in found] == [bytes([number]) for number in range(10)]
    assert bytes(decoder.pending) == data[:5]
    assert len(decoder.feed(data[5:])) == min(at_once, 10)
