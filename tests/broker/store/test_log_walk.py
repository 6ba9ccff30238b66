from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.store.generated_logs import log_of
from tests.support.records import plain_record

from rocketrio_broker.store.errors import StoreDamagedError
from rocketrio_broker.store.log_walk import LogWalk, _as_log_record
from rocketrio_protocol.record.decode import scan_record
from rocketrio_protocol.record.encode import encode_padding
from rocketrio_protocol.record.layout import pack_host

FOLDER = Path("/data/commitlog")
FILE_SIZE = 4096
V4, V6 = pack_host("127.0.0.1", 10911), pack_host("2001:db8::1", 10911)


def record_of(
    address: int,
    body: bytes = b"body",
    topic: bytes = b"orders",
    properties: bytes = b"KEYS\1k",
    host: bytes = V4,
) -> bytes:
    return plain_record(
        physical_offset=address,
        born_host=host,
        store_time_ms=77,
        body=body,
        topic=topic,
        properties=properties,
    )


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.binary(max_size=40),
            st.sampled_from([b"t", b"orders", b"x" * 127, b"x" * 128, "téléphone".encode()]),
            st.binary(max_size=40),
            st.sampled_from([V4, V6]),
        ),
        max_size=8,
    )
)
def test_every_record_reads_as_the_protocols_checker_reads_it(
    parts: list[tuple[bytes, bytes, bytes, bytes]],
) -> None:
    data = b""
    for body, topic, properties, host in parts:
        data += record_of(len(data), body, topic, properties, host)
    log = log_of(data, FILE_SIZE)
    walk = LogWalk(log, 0, check_crc=True)
    found = list(walk.records(1 << 20))
    assert walk.position == len(data)
    assert found == [_as_log_record(scan_record(data, address, len(data))) for address, *_ in found]
    assert len(found) == len(parts)


def test_padding_leads_to_the_next_file() -> None:
    first = record_of(0)
    rest = FILE_SIZE - len(first)
    data = first + encode_padding(rest) + b"garbage".ljust(rest - 8, b"g") + record_of(FILE_SIZE)
    walk = LogWalk(log_of(data, FILE_SIZE), 0)
    assert [record[0] for record in walk.records(1 << 20)] == [0, FILE_SIZE]
    assert walk.position == len(data)


def test_walk_stops_after_the_bytes_asked_for() -> None:
    one = len(record_of(0))
    data = b"".join(record_of(number * one) for number in range(5))
    walk = LogWalk(log_of(data, FILE_SIZE), 0)
    assert len(list(walk.records(one + 1))) == 2
    assert walk.position == 2 * one
    assert len(list(walk.records(1 << 20))) == 3


def test_unfinished_record_or_padding_waits() -> None:
    one = record_of(0)
    rest = FILE_SIZE - len(one)
    for tail in (record_of(len(one)), encode_padding(rest) + bytes(rest - 8)):
        for cut in {*range(min(len(tail), 20)), *range(0, len(tail), 97), len(tail) - 1}:
            walk = LogWalk(log_of(one + tail[:cut], FILE_SIZE), 0)
            if tail[:cut][:8] == b"\0" * 8:
                continue
            assert len(list(walk.records(1 << 20))) == 1
            assert walk.position == len(one)


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(bytes(100), id="zeros"),
        pytest.param(record_of(999), id="another-address"),
        pytest.param(record_of(0)[:8] + b"\xff" * 100, id="nonsense"),
        pytest.param(encode_padding(50) + bytes(42), id="padding-inside-a-file"),
    ],
)
def test_damage_is_an_error_but_the_end_for_recovery(bad: bytes) -> None:
    one = record_of(0)
    log = log_of(one + bad, FILE_SIZE)
    with pytest.raises(StoreDamagedError, match=f"damaged at {len(one)}"):
        list(LogWalk(log, 0).records(1 << 20))
    walk = LogWalk(log, 0, check_crc=True, stop_at_damage=True)
    assert len(list(walk.records(1 << 20))) == 1
    assert walk.position == len(one)
    assert walk.problem.startswith(str(len(one)))


def test_wrong_checksum_ends_the_log_only_when_it_is_compared() -> None:
    data = bytearray(record_of(0) + record_of(len(record_of(0))))
    data[len(record_of(0)) + 88] ^= 1
    log = log_of(bytes(data), FILE_SIZE)
    assert len(list(LogWalk(log, 0, check_crc=False).records(1 << 20))) == 2
    assert len(list(LogWalk(log, 0, check_crc=True, stop_at_damage=True).records(1 << 20))) == 1


def test_record_whose_properties_lost_a_sector_ends_the_log() -> None:
    """The checksum covers the body only; a power cut can take the rest of the record."""
    whole = record_of(0, properties=b"KEYS\1" + b"k" * 900)
    torn = bytearray(whole)
    torn[512:] = bytes(len(torn) - 512)
    assert (
        len(list(LogWalk(log_of(whole, FILE_SIZE), 0, stop_at_damage=True).records(1 << 20))) == 1
    )
    walk = LogWalk(log_of(bytes(torn), FILE_SIZE), 0, check_crc=True, stop_at_damage=True)
    assert not list(walk.records(1 << 20))
    assert "never written" in walk.problem


def test_zero_bytes_that_no_cut_explains_are_data() -> None:
    odd = record_of(0, properties=b"a\1b\0\0c\2")
    assert len(list(LogWalk(log_of(odd, FILE_SIZE), 0, stop_at_damage=True).records(1 << 20))) == 1
