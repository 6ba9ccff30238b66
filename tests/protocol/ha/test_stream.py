"""The replication stream: any split, hostile sizes, and the bytes of Apache's peers."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.golden.golden import RecordedFrame, recorded_frames
from tests.support.raw_frames import split_at

from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.ha.stream import (
    TRANSFER_SIZE_LIMIT,
    ReportDecoder,
    TransferDecoder,
    TransferPart,
    encode_report,
    encode_transfer_header,
)

RUNS = ("4.9.7", "5.3.3", "5.3.3-split")


def ha_frames(run: str) -> list[RecordedFrame]:
    return [frame for frame in recorded_frames(run) if frame.server == "ha"]


def streams(run: str, *, from_slave: bool) -> list[bytes]:
    """The bytes of one direction, a connection each."""
    frames = [frame for frame in ha_frames(run) if frame.from_dialer == from_slave]
    connections = sorted({frame.connection for frame in frames})
    return [b"".join(f.data for f in frames if f.connection == number) for number in connections]


def laid_out(chunks: list[bytes]) -> tuple[dict[int, bytes], list[int]]:
    """Where each transfer's bytes went, and the heartbeats."""
    decoder = TransferDecoder()
    bodies: dict[int, bytes] = {}
    ends: dict[int, int] = {}
    heartbeats = []
    for chunk in chunks:
        for part in decoder.feed(chunk):
            if part.is_heartbeat:
                heartbeats.append(part.physical_offset)
                continue
            before = bodies.get(part.transfer_start, b"")
            assert part.physical_offset == part.transfer_start + len(before)
            bodies[part.transfer_start] = before + bytes(part.body)
            ends[part.transfer_start] = part.transfer_end
    assert {start: start + len(body) for start, body in bodies.items()} == ends
    return bodies, heartbeats


def test_report_is_eight_bytes_big_endian() -> None:
    assert encode_report(258) == bytes.fromhex("0000000000000102")


def test_transfer_header_is_offset_and_size() -> None:
    assert encode_transfer_header(258, 3) == bytes.fromhex("000000000000010200000003")


def test_only_the_last_whole_report_counts() -> None:
    decoder = ReportDecoder()
    assert decoder.feed(encode_report(1) + encode_report(2) + encode_report(3)[:5]) == 2
    assert decoder.feed(encode_report(3)[5:7]) is None
    assert decoder.feed(encode_report(3)[7:]) == 3


@pytest.mark.parametrize("offset", [-1, -(2**63)])
def test_negative_report_is_refused(offset: int) -> None:
    with pytest.raises(RemoteProtocolError, match=str(offset)):
        ReportDecoder().feed(encode_report(offset))


def test_body_is_handed_on_before_it_is_whole() -> None:
    decoder = TransferDecoder()
    data = encode_transfer_header(100, 10) + b"0123"
    assert decoder.feed(data) == [TransferPart(100, memoryview(b"0123"), 100, 110)]
    assert decoder.feed(b"456789") == [TransferPart(104, memoryview(b"456789"), 100, 110)]


def test_body_is_a_view_of_what_was_received() -> None:
    data = bytearray(encode_transfer_header(0, 4) + b"abcd")
    (part,) = TransferDecoder().feed(data)
    data[12:14] = b"XY"
    assert bytes(part.body) == b"XYcd"


@given(
    transfers=st.lists(st.tuples(st.integers(0, 2**40), st.binary(max_size=40)), max_size=8),
    cuts=st.lists(st.integers(0, 10_000), max_size=12),
)
def test_any_split_gives_the_same(transfers: list[tuple[int, bytes]], cuts: list[int]) -> None:
    stream = b"".join(
        encode_transfer_header(offset, len(body)) + body for offset, body in transfers
    )
    decoder = TransferDecoder()
    received: list[tuple[int, bytes]] = []
    for chunk in split_at(stream, cuts):
        for part in decoder.feed(chunk):
            if part.physical_offset > part.transfer_start:
                offset, before = received.pop()
                assert part.physical_offset == offset + len(before)
                received.append((offset, before + bytes(part.body)))
            else:
                received.append((part.physical_offset, bytes(part.body)))
    assert received == transfers


@pytest.mark.parametrize(
    ("offset", "size"),
    [
        (0, -1),
        (0, -(2**31)),
        (0, 2**31 - 1),
        (0, TRANSFER_SIZE_LIMIT + 1),
        (-1, 0),
        (-(2**63), 5),
        (2**63 - 2, 2),
    ],
)
def test_hostile_header_is_refused(offset: int, size: int) -> None:
    with pytest.raises(RemoteProtocolError, match=str(size)):
        TransferDecoder().feed(struct.pack(">qi", offset, size))


def test_largest_transfer_that_apache_takes_is_taken() -> None:
    decoder = TransferDecoder()
    assert decoder.feed(encode_transfer_header(0, TRANSFER_SIZE_LIMIT)) == []
    (part,) = decoder.feed(b"0")
    assert part.transfer_end == 4 * 2**20 - 12


def test_oversized_transfer_is_not_written() -> None:
    with pytest.raises(AssertionError):
        encode_transfer_header(0, TRANSFER_SIZE_LIMIT + 1)


@pytest.mark.parametrize("run", RUNS)
def test_apache_transfers_follow_each_other(run: str) -> None:
    """Each transfer and each heartbeat begins where the transfer before it ended."""
    for stream in streams(run, from_slave=False):
        position = None
        for part in TransferDecoder().feed(stream):
            assert position in (None, part.physical_offset)
            position = part.physical_offset + len(part.body)


@pytest.mark.parametrize("run", RUNS)
def test_apache_transfers_encode_to_the_same_bytes(run: str) -> None:
    for stream in streams(run, from_slave=False):
        again = b"".join(
            encode_transfer_header(part.physical_offset, len(part.body)) + bytes(part.body)
            for part in TransferDecoder().feed(stream)
        )
        assert again == stream


@pytest.mark.parametrize("run", RUNS)
def test_apache_stream_byte_by_byte(run: str) -> None:
    for stream in streams(run, from_slave=False):
        single = [stream[i : i + 1] for i in range(len(stream))]
        assert laid_out(single) == laid_out([stream])


@pytest.mark.parametrize("run", RUNS)
def test_apache_reports_never_fall(run: str) -> None:
    frames = [frame for frame in ha_frames(run) if frame.from_dialer]
    for number in {frame.connection for frame in frames}:
        decoder = ReportDecoder()
        reports = [decoder.feed(f.data) for f in frames if f.connection == number]
        assert None not in reports
        assert reports == sorted(reports)  # type: ignore[type-var]
