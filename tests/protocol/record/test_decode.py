"""Stored records: every one that Apache brokers wrote, any one we make, and hostile bytes."""

from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.golden.golden import VERSIONS, remoting_frames, unpack_store
from tests.support.records import encoded_again, plain_record, record_fields

from rocketrio_protocol.errors import LocalProtocolError, RemoteProtocolError
from rocketrio_protocol.message import MessageExt, decode_messages
from rocketrio_protocol.record.decode import RecordStatus, possible_records, scan_record
from rocketrio_protocol.record.encode import encode_padding, encode_record, record_size
from rocketrio_protocol.record.layout import (
    MAGIC_PADDING,
    MAGIC_V1,
    MAGIC_V2,
    pack_host,
    unpack_host,
)

_RUNS = (*VERSIONS, "5.3.3-split")


def _bodies(run: str) -> list[bytes]:
    """The bodies of recorded answers that hold stored messages: pulls, views, queries."""
    bodies = []
    for frame in remoting_frames(run):
        body = frame.data[8 + (int.from_bytes(frame.data[4:8]) & 0xFFFFFF) :]
        if not frame.from_dialer and body[4:8] == (MAGIC_V1 & 0xFFFFFFFF).to_bytes(4):
            bodies.append(body)
    return bodies


@pytest.mark.parametrize("run", _RUNS)
def test_recorded_answers_decode_and_encode_to_the_same_bytes(run: str) -> None:
    bodies = _bodies(run)
    assert len(bodies) > 5
    for body in bodies:
        messages = decode_messages(body, "broker-a")
        assert all(message.check_crc() for message in messages)
        assert b"".join(map(encoded_again, messages)) == body
        assert [m.physical_offset for m in messages] == sorted(m.physical_offset for m in messages)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("role", ["master", "slave"])
def test_recorded_commit_logs_scan_and_encode_to_the_same_bytes(
    version: str, role: Literal["master", "slave"], tmp_path: Path
) -> None:
    count = 0
    for path in sorted((unpack_store(version, role, tmp_path) / "commitlog").iterdir()):
        log = path.read_bytes()
        position = 0
        while (header := scan_record(log, position, len(log))).status is RecordStatus.RECORD:
            message = MessageExt(log, position, header.size)
            assert encoded_again(message) == log[position : position + header.size]
            assert header.physical_offset == message.physical_offset == int(path.name) + position
            assert (header.topic, header.queue_id) == (message.topic, message.queue_id)
            assert (header.keys, header.tags) == (message.keys, message.tags)
            assert header.uniq_key == message.property_value("UNIQ_KEY")
            position += header.size
            count += 1
        assert header.status is RecordStatus.END
    assert count > 20


@pytest.mark.slow
@given(record_fields())
def test_any_record_is_read_back(fields: dict[str, Any]) -> None:
    record = encode_record(**fields)
    parts = [
        len(fields[name]) for name in ("body", "topic", "properties", "born_host", "store_host")
    ]
    assert len(record) == record_size(*parts)
    message = MessageExt(record, 0, len(record))
    assert encoded_again(message) == record
    assert message.check_crc()
    assert message.body is not None
    header = scan_record(b"xy" + record + b"z", 2, 2 + len(record))
    assert header.status is RecordStatus.RECORD, header
    for name in (
        "size",
        "queue_id",
        "queue_offset",
        "physical_offset",
        "sys_flag",
        "store_time_ms",
    ):
        assert getattr(header, name) == getattr(message, name)
    assert header.prepared_transaction_offset == message.prepared_transaction_offset
    assert (header.topic, header.properties) == (message.topic, message.stored_properties)
    assert (header.tags, header.keys) == (message.tags, message.keys)


@pytest.mark.slow
@given(st.lists(record_fields(), max_size=5), st.data())
def test_chunks_decode_and_truncated_ones_name_the_position(
    many: list[dict[str, Any]], data: st.DataObject
) -> None:
    records = [encode_record(**fields) for fields in many]
    chunk = b"".join(records)
    messages = decode_messages(chunk)
    assert [message.record for message in messages] == records
    if chunk:
        ends = {sum(map(len, records[: count + 1])) for count in range(len(records))} | {0}
        cut = data.draw(st.integers(1, len(chunk) - 1).filter(lambda size: size not in ends))
        start = max(end for end in ends if end < cut)
        with pytest.raises(RemoteProtocolError, match=f"no stored message at byte {start}:"):
            decode_messages(chunk[:cut])


@given(record_fields(), st.integers(0, 2000), st.integers(1, 255))
def test_a_changed_byte_is_never_mistaken_for_more_than_it_is(
    fields: dict[str, Any], at: int, change: int
) -> None:
    record = bytearray(encode_record(**fields))
    size = len(record)
    record[at % size] ^= change
    header = scan_record(record, 0, size)
    assert header.status is not RecordStatus.RECORD or header.size == size
    with suppress(RemoteProtocolError):
        decode_messages(record)


@given(st.binary(max_size=200), st.sampled_from([None, MAGIC_V1, MAGIC_V2, MAGIC_PADDING]))
def test_arbitrary_bytes_raise_only_protocol_errors(data: bytes, magic: int | None) -> None:
    if magic is not None:
        data = data[:4] + (magic & 0xFFFFFFFF).to_bytes(4) + data[4:]
    scan_record(data, 0, len(data))
    with suppress(RemoteProtocolError):
        decode_messages(data)


def _head(size: int, magic: int) -> bytes:
    return (size & 0xFFFFFFFF).to_bytes(4) + (magic & 0xFFFFFFFF).to_bytes(4)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"1234567", "7 bytes are left"),
        (_head(91, 0x12345678) + bytes(91), "magic is 0x12345678"),
        (_head(20, MAGIC_PADDING) + bytes(12), "magic is 0xcbd43194"),
        (_head(90, MAGIC_V1) + bytes(90), "its size is 90"),
        (_head(-91, MAGIC_V1) + bytes(91), "its size is -91"),
        (_head(2**31 - 1, MAGIC_V1) + bytes(91), "exceeds the 99 bytes"),
    ],
)
def test_bytes_that_are_not_a_message_are_refused_with_their_place(data: bytes, why: str) -> None:
    record = plain_record()
    with pytest.raises(RemoteProtocolError, match=f"at byte {len(record)}: .*") as caught:
        decode_messages(record + data)
    assert why.replace("99", str(len(record) + 99)) in str(caught.value)


def test_a_chunk_that_lacks_its_last_byte_is_refused() -> None:
    record = plain_record()
    with pytest.raises(
        RemoteProtocolError, match=f"byte {len(record)}: its size {len(record)} exceeds"
    ):
        decode_messages((record * 2)[:-1])


def test_an_empty_chunk_has_no_messages() -> None:
    assert decode_messages(b"") == []


@pytest.mark.parametrize(
    ("data", "status", "size", "problem"),
    [
        (b"", RecordStatus.END, 0, ""),
        (b"\0" * 7, RecordStatus.END, 0, ""),
        (b"\0" * 500, RecordStatus.END, 0, ""),
        (encode_padding(40) + b"x" * 32, RecordStatus.PADDING, 40, ""),
        (
            encode_padding(40) + b"x" * 31,
            RecordStatus.INCOMPLETE,
            40,
            "it claims 40 bytes, but only 39",
        ),
        (_head(7, MAGIC_PADDING), RecordStatus.CORRUPT, 0, "size of padding is 7"),
        (_head(0, MAGIC_V1) + bytes(100), RecordStatus.CORRUPT, 0, "size of a record is 0"),
        (_head(1, 2) + bytes(100), RecordStatus.CORRUPT, 0, "magic is 0x00000002"),
        (_head(2**31 - 1, MAGIC_V2), RecordStatus.INCOMPLETE, 2**31 - 1, "8 are there"),
        (plain_record(body_crc=5), RecordStatus.CORRUPT, 0, "CRC"),
        (plain_record()[:-1], RecordStatus.INCOMPLETE, 143, "142 are there"),
    ],
)
def test_scanner_reports_what_it_finds(
    data: bytes, status: RecordStatus, size: int, problem: str
) -> None:
    header = scan_record(b"@" + data, 1, len(data) + 1)
    assert (header.status, header.size) == (status, size)
    assert problem in header.problem
    assert bool(header.problem) == (status in (RecordStatus.INCOMPLETE, RecordStatus.CORRUPT))


@pytest.mark.parametrize(
    ("at", "problem"), [(84, "body length"), (93, "topic length"), (100, "do not add up")]
)
def test_inner_lengths_must_make_the_size(at: int, problem: str) -> None:
    record = bytearray(plain_record())
    record[at] = 0x70
    header = scan_record(record, 0, len(record))
    assert header.status is RecordStatus.CORRUPT
    assert problem in header.problem


def test_checksum_is_checked_only_when_asked() -> None:
    record = plain_record(body_crc=5)
    assert scan_record(record, 0, len(record), check_crc=False).status is RecordStatus.RECORD


def test_long_topics_make_version_two() -> None:
    assert plain_record(topic=b"t" * 127)[4:8] == (MAGIC_V1 & 0xFFFFFFFF).to_bytes(4)
    assert plain_record(topic=b"t" * 128)[4:8] == (MAGIC_V2 & 0xFFFFFFFF).to_bytes(4)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"properties": b"x" * 32768}, "properties have 32768 bytes"),
        ({"topic": b"x" * 32768}, "topic has 32768 bytes"),
        ({"born_host": b"1234"}, "8 or 20 bytes, not 4"),
    ],
)
def test_what_cannot_be_stored_is_refused(changes: dict[str, bytes], why: str) -> None:
    with pytest.raises(LocalProtocolError, match=why):
        plain_record(**changes)


def test_padding_needs_room_for_its_head() -> None:
    with pytest.raises(LocalProtocolError, match="only 7 are left"):
        encode_padding(7)


@given(st.ip_addresses().map(str), st.integers(0, 2**31 - 1))
def test_hosts_round_trip(ip: str, port: int) -> None:
    assert unpack_host(pack_host(ip, port)) == (ip, port)


def test_host_names_and_odd_sizes_are_refused() -> None:
    with pytest.raises(LocalProtocolError, match="not an IP address"):
        pack_host("localhost", 1)
    with pytest.raises(LocalProtocolError, match="port -1"):
        pack_host("127.0.0.1", -1)
    with pytest.raises(RemoteProtocolError, match="not 9"):
        unpack_host(b"123456789")


@given(
    st.lists(
        st.sampled_from(
            [
                MAGIC_V1.to_bytes(4, signed=True),
                MAGIC_V2.to_bytes(4, signed=True),
                b"\xda\xa3\x20",
                b"a",
            ]
        )
    ),
    st.integers(0, 12),
    st.integers(0, 12),
)
def test_possible_records_are_all_places_four_bytes_before_a_magic(
    pieces: list[bytes], start: int, left_out: int
) -> None:
    data = b"".join(pieces)
    end = len(data) - left_out
    expected = [
        at
        for at in range(start, max(start, end - 7))
        if int.from_bytes(data[at + 4 : at + 8], signed=True) in (MAGIC_V1, MAGIC_V2)
    ]
    assert list(possible_records(data, start, max(end, 0))) == expected
