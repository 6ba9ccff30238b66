"""Batch bodies: round trips, entries a Java producer wrote, and hostile lengths."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.golden.golden import VERSIONS, remoting_frames

from rocketrio_protocol.errors import LocalProtocolError, RemoteProtocolError
from rocketrio_protocol.record.batch import ENTRY_OVERHEAD, batch_size, decode_batch, encode_batch
from rocketrio_protocol.record.properties import decode_properties

_entries = st.lists(
    st.tuples(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=40), st.binary(max_size=40)),
    max_size=6,
)


def _values(body: bytes) -> list[tuple[int, bytes, bytes]]:
    return [(flag, bytes(body), bytes(properties)) for flag, body, properties in decode_batch(body)]


@given(_entries)
def test_encoded_batch_decodes_to_the_same_entries(entries: list[tuple[int, bytes, bytes]]) -> None:
    body = encode_batch(entries)
    assert len(body) == batch_size(entries)
    assert _values(body) == entries


def test_entries_are_laid_out_as_java_reads_them() -> None:
    body = encode_batch([(7, b"abc", b"k\x01v\x02")])
    assert body == bytes.fromhex(
        "0000001d" "00000000" "00000000" "00000007" "00000003" "616263" "0004" "6b017602"
    )  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_batches_decode_and_encode_to_the_same_bytes(version: str) -> None:
    batches = [
        frame.data[8 + (int.from_bytes(frame.data[4:8]) & 0xFFFFFF) :]
        for frame in remoting_frames(version)
        if frame.from_dialer and b'"code":320,' in frame.data
    ]
    assert batches
    for body in batches:
        entries = _values(body)
        assert len(entries) > 1
        assert all(decode_properties(properties) for _, _, properties in entries)
        assert encode_batch(entries) == body


@given(_entries.filter(bool), st.data())
def test_truncated_or_changed_batches_are_refused_or_still_add_up(
    entries: list[tuple[int, bytes, bytes]], data: st.DataObject
) -> None:
    body = bytearray(encode_batch(entries))
    body[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))
    del body[data.draw(st.integers(1, len(body))) :]
    try:
        decoded = decode_batch(body)
    except RemoteProtocolError:
        return
    assert sum(ENTRY_OVERHEAD + len(b) + len(p) for _, b, p in decoded) == len(body)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_never_raise_anything_else(body: bytes) -> None:
    with suppress(RemoteProtocolError):
        decode_batch(body)


def test_huge_lengths_are_refused_without_reading() -> None:
    head = bytes.fromhex("7fffffff" "00000000" "00000000" "00000000" "7fffffe9")  # fmt: skip
    with pytest.raises(RemoteProtocolError, match=r"entry 0 at byte 0.*beyond"):
        decode_batch(head + b"\0" * 100)


def test_an_entry_that_claims_more_than_its_parts_is_refused() -> None:
    body = bytearray(encode_batch([(0, b"abc", b"k\x01v")]))
    body[3] += 1
    with pytest.raises(RemoteProtocolError, match=r"its size 29 does not match 3 \+ 3 bytes"):
        decode_batch(body + b"\0")


def test_properties_beyond_the_length_field_are_refused() -> None:
    with pytest.raises(LocalProtocolError, match="entry 1 have 32768 bytes"):
        encode_batch([(0, b"", b""), (0, b"", b"x" * 32768)])
