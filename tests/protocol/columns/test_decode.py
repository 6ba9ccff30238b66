"""Columns hold what `MessageExt` says: on everything Apache wrote, on anything we can make, on damage."""

import re
import zlib
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.golden.golden import VERSIONS, unpack_store
from tests.support.records import plain_fields, plain_record, record_fields

from rocketrio_protocol.columns import decode as columns_module
from rocketrio_protocol.columns.decode import COLUMN_TYPES, decode_columns
from rocketrio_protocol.columns.starts import record_starts
from rocketrio_protocol.errors import LocalProtocolError, RemoteProtocolError
from rocketrio_protocol.message import MessageExt, decode_messages
from rocketrio_protocol.record.compression import (
    INFLATE_LIMIT,
    InflateBudget,
    TooMuchToInflateError,
    compress,
)
from rocketrio_protocol.record.decode import RecordStatus, scan_record
from rocketrio_protocol.record.encode import encode_record
from rocketrio_protocol.record.layout import pack_host
from rocketrio_protocol.record.properties import encode_properties
from rocketrio_protocol.times import FIRST_TIME_MS, LAST_TIME_MS


@pytest.fixture(autouse=True)
def always_by_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    # Otherwise blocks of a few messages would take the path that the vectors are compared with.
    monkeypatch.setattr(columns_module, "_FEW_MESSAGES", 0)


def _timestamp(milliseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


def _delivery(message: MessageExt) -> int | None:
    properties = message.properties
    text = properties.get("TIMER_OUT_MS", properties.get("TIMER_DELIVER_MS", ""))
    is_time = re.fullmatch("[0-9]{1,18}", text) and int(text) <= LAST_TIME_MS
    return int(text) * 1000 if is_time else None


def _host(host: tuple[str, int]) -> str:
    return f"[{host[0]}]:{host[1]}" if ":" in host[0] else f"{host[0]}:{host[1]}"


_EXPECTED: dict[str, Callable[[MessageExt], Any]] = {
    "keys": lambda m: m.keys or None,
    "unique_key": lambda m: m.properties.get("UNIQ_KEY"),
    "properties_text": lambda m: m.stored_properties.decode("utf-8", "replace"),
    "store_size": lambda m: m.size,
    "born_host": lambda m: _host(m.born_host),
    "store_host": lambda m: _host(m.store_host),
}


def _assert_equal_to_messages(chunk: bytes, *, inflate: bool = True) -> None:
    messages = decode_messages(chunk)
    decoded = decode_columns(chunk, COLUMN_TYPES, inflate=inflate)
    assert list(decoded) == list(COLUMN_TYPES)
    for name, array in decoded.items():
        assert isinstance(array, pa.Array)
        assert array.type == COLUMN_TYPES[name]
        array.validate(full=True)
        if name == "deliver_time":
            assert array.cast(pa.int64()).to_pylist() == [_delivery(m) for m in messages]
        elif name.endswith("_time"):
            numbers = array.cast(pa.int64()).to_pylist()
            times = [getattr(message, f"{name}_ms") for message in messages]
            assert numbers == [
                time * 1000 if FIRST_TIME_MS <= time <= LAST_TIME_MS else None for time in times
            ]
        elif name == "properties":
            assert [dict(pairs) for pairs in array.to_pylist()] == [m.properties for m in messages]
            assert all(len(pairs) == len(dict(pairs)) for pairs in array.to_pylist())
        elif name == "body" and not inflate:
            assert array.to_pylist() == [message.stored_body for message in messages]
        else:
            expected = _EXPECTED.get(name, lambda message, name=name: getattr(message, name))
            assert array.to_pylist() == [expected(message) for message in messages], name


@pytest.mark.slow
@settings(max_examples=200)
@given(st.lists(record_fields(), max_size=6), st.booleans())
def test_columns_hold_what_messages_say(many: list[dict[str, Any]], inflate: bool) -> None:
    _assert_equal_to_messages(b"".join(encode_record(**fields) for fields in many), inflate=inflate)


@pytest.mark.parametrize("few", [0, 16])
def test_times_of_delivery_are_those_of_properties(
    monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(columns_module, "_FEW_MESSAGES", few)
    properties = [
        {},
        {"TIMER_DELIVER_MS": "1700000000000"},
        {"TIMER_DELIVER_MS": "5", "TIMER_OUT_MS": "1700000000001"},
        {"TIMER_OUT_MS": "soon", "TIMER_DELIVER_MS": "5"},
        {"TIMER_OUT_MS": "-5"},
        {"TIMER_OUT_MS": "\u0663"},
        {"TIMER_OUT_MS": "9" * 18},
        {"TIMER_OUT_MS": "9" * 5000},
    ]
    records = [plain_fields(properties=encode_properties(each).encode()) for each in properties]
    chunk = b"".join(encode_record(**fields) for fields in records)
    times = decode_columns(chunk, ["deliver_time"])["deliver_time"]
    assert times.cast(pa.int64()).to_pylist() == [
        None, 1_700_000_000_000_000, 1_700_000_000_001_000, None, None, None, None, None,
    ]  # fmt: skip
    _assert_equal_to_messages(chunk)


_names = st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "WAIT", "KEYX", "\u00e9"])
_values = st.sampled_from(["v", "longer value", "\u4e2d", "KEYS"])
_pairs = st.lists(st.tuples(_names, _values), max_size=5)


@pytest.mark.slow
@settings(max_examples=200)
@given(st.lists(st.tuples(_pairs, st.booleans()), min_size=1, max_size=8), st.booleans())
def test_well_formed_properties_of_every_shape(
    many: list[tuple[list[tuple[str, str]], bool]], alike: bool
) -> None:
    # Repeated names, messages without any, with and without the last separator; and all alike, as from one producer.
    many = [many[0]] * len(many) if alike else many
    strings = [
        "\x02".join(f"{name}\x01{value}" for name, value in pairs)
        + "\x02" * (trailing and bool(pairs))
        for pairs, trailing in many
    ]
    _assert_equal_to_messages(
        b"".join(
            plain_record(properties=text.encode(), body=b"x" * place)
            for place, text in enumerate(strings)
        )
    )


def test_a_block_of_more_names_than_bits() -> None:
    texts = [
        "\x02".join(f"name-{(row * 5 + i) % 90}\x01{i}" for i in (0, 1, 2, 0)) for row in range(90)
    ]
    _assert_equal_to_messages(b"".join(plain_record(properties=t.encode()) for t in texts))


@pytest.mark.parametrize("one", [
    b"A\x01b\x02KEYS\x01d\x02",
    b"B\x01b\x02KEYS\x01d\x02",  # another name of that length
    b"A\x01c\x02KEYS\x01e\x02",  # other values
    b"A\x02b\x01KEYS\x02d\x02",  # separators the other way round
    b"A\x01b\x02KEYS\x02d\x02",  # an odd number of them
    b"A\x01b\x02KEYS\x00d\x02",
    b"AA\x01\x02KEYS\x01d\x02",  # at other places
    b"K\x01b\x02KEYS\x01\xff\x02",  # no text
    b"A\x01bxKEYSxd\x02",
    b"\x02\x01b\x02KEYS\x01d\x02",
])  # fmt: skip
@pytest.mark.parametrize("all_so", [True, False])
def test_strings_of_one_length_with_something_odd(one: bytes, all_so: bool) -> None:
    plain = b"A\x01b\x02KEYS\x01d\x02"
    for at in range(4):
        texts = [one if all_so or place == at else plain for place in range(4)]
        _assert_equal_to_messages(b"".join(plain_record(properties=text) for text in texts))


def test_repeated_names_at_the_same_places_count_once() -> None:
    texts = [f"KEYS\x01{row}\x02A\x01a\x02KEYS\x01k{row}\x02A\x01b".encode() for row in range(20)]
    chunk = b"".join(plain_record(properties=text) for text in texts)
    _assert_equal_to_messages(chunk)
    assert decode_columns(chunk, ["keys"])["keys"].to_pylist() == [f"k{n}" for n in range(20)]


@pytest.mark.parametrize(
    "other", [b"topic", b"topix", "t\u00e9pi".encode(), b"t\xffpic", b"long topic"]
)
def test_topics_alike_and_not(other: bytes) -> None:
    topics = [b"topic", b"topic", other, b"topic"]
    _assert_equal_to_messages(b"".join(plain_record(topic=t) for t in topics))
    _assert_equal_to_messages(plain_record(topic=other) * 3)


@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_commit_logs_by_columns(version: str, tmp_path: Path) -> None:
    root = unpack_store(version, "master", tmp_path)
    log = (root / "commitlog" / "00000000000000000000").read_bytes()
    end = 0
    while (header := scan_record(log, end, len(log))).status is RecordStatus.RECORD:
        end += header.size
    assert end > 5000
    _assert_equal_to_messages(log[:end])


def test_few_messages_are_decoded_one_by_one_to_the_same_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(columns_module, "_FEW_MESSAGES", 64)
    hosts = {"born_host": pack_host("::1", 1), "topic": b"t" * 200}
    records = [
        plain_record(),
        plain_record(**hosts, properties=b""),
    ]
    for count in (0, 1, 20, 40):
        _assert_equal_to_messages(b"".join(records) * count)


def test_mixed_rows_of_ipv6_long_topics_and_compressed_bodies() -> None:
    kinds: list[dict[str, Any]] = [
        {},
        {"born_host": pack_host("2001:db8::7", 9)},
        {"store_host": pack_host("2001:db8::8", 9), "topic": b"l" * 130},
        {"body": compress(b"inflated " * 50), "sys_flag": 0x301},
        {"properties": b""},
    ]
    records = [plain_record(queue_offset=at, **kinds[at % 5]) for at in range(50)]
    _assert_equal_to_messages(b"".join(records))
    _assert_equal_to_messages(b"".join(records), inflate=False)


def test_any_kind_of_buffer_is_taken() -> None:
    chunk = plain_record() * 3
    for buffer in (bytearray(chunk), memoryview(chunk), memoryview(b"ab" + chunk)[2:]):
        assert decode_columns(buffer, ["body", "tags"])["body"].to_pylist() == [b"hello"] * 3


def test_columns_outlive_their_chunk() -> None:
    chunk = bytearray(plain_record() * 3)
    decoded = decode_columns(chunk, COLUMN_TYPES)
    expected = {name: array.to_pylist() for name, array in decoded.items()}
    chunk[:] = bytes(len(chunk))
    assert {name: array.to_pylist() for name, array in decoded.items()} == expected


def test_only_wanted_columns_in_their_order() -> None:
    chunk = plain_record()
    assert list(decode_columns(chunk, ["body", "queue_id"])) == ["body", "queue_id"]
    with pytest.raises(
        LocalProtocolError, match="unknown column bodies; available: topic, queue_id"
    ):
        decode_columns(chunk, ["bodies"])


def test_checksums_are_compared_when_asked() -> None:
    chunk = plain_record() * 2 + plain_record(body_crc=1, queue_offset=77)
    decode_columns(chunk, ["body"])
    with pytest.raises(RemoteProtocolError, match="orders queue 3 offset 77 does not match"):
        decode_columns(chunk, ["queue_id"], check_crc=True)


@pytest.mark.parametrize("few", [0, 16])
def test_times_beyond_what_a_datetime_can_hold_are_null(
    few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns_module, "_FEW_MESSAGES", few)
    beyond = (2**63 - 1, -(2**63), 2**53, LAST_TIME_MS + 1, FIRST_TIME_MS - 1)
    inside = (0, LAST_TIME_MS, FIRST_TIME_MS)
    chunk = b"".join(plain_record(born_time_ms=t, store_time_ms=t) for t in (*inside, *beyond))
    columns = decode_columns(chunk, ["born_time", "store_time"])
    for array in columns.values():
        assert array.to_pylist() == [*map(_timestamp, inside), *[None] * len(beyond)]


@pytest.mark.parametrize("equal_sizes", [True, False])
def test_starts_are_found_for_equal_and_other_sizes(equal_sizes: bool) -> None:
    records = [plain_record(body=b"x" * (5 if equal_sizes else at)) for at in range(20)]
    starts = record_starts(b"".join(records)).tolist()
    assert starts == [sum(map(len, records[:at])) for at in range(20)]


@pytest.mark.slow
@settings(max_examples=300)
@given(st.lists(record_fields(), min_size=1, max_size=4), st.data())
def test_damage_raises_only_protocol_errors(
    many: list[dict[str, Any]], data: st.DataObject
) -> None:
    chunk = bytearray(b"".join(encode_record(**fields) for fields in many))
    for _ in range(data.draw(st.integers(1, 3))):
        chunk[data.draw(st.integers(0, len(chunk) - 1))] ^= data.draw(st.integers(1, 255))
    del chunk[len(chunk) - data.draw(st.integers(0, 30)) :]
    with suppress(RemoteProtocolError):
        decode_columns(chunk, COLUMN_TYPES, inflate=False)
        _assert_equal_to_messages(bytes(chunk), inflate=False)


def test_hosts_that_do_not_fit_the_last_record_are_refused() -> None:
    shortest = bytearray(plain_record(body=b"", topic=b"", properties=b""))
    shortest[39] = 0x30
    with pytest.raises(RemoteProtocolError, match="at byte 91: its hosts do not fit"):
        decode_columns(shortest[:39] + b"\0" + shortest[40:] + shortest, ["body"])


@pytest.mark.parametrize(
    ("at", "value", "why"),
    [
        (4, 0x55, "magic"),
        (84, 0x70, "its body does not fit"),
        (93, 0x70, "its topic does not fit"),
        (100, 0x70, "its properties do not fit"),
        (39, 0x30, "at byte 143"),
        (0, 0x70, "it exceeds"),
    ],
)
def test_damage_is_refused_with_its_place(at: int, value: int, why: str) -> None:
    record = plain_record()
    chunk = bytearray(record * 3)
    chunk[len(record) + at] = value
    with pytest.raises(RemoteProtocolError, match=f"at byte {len(record)}: .*") as caught:
        decode_columns(chunk, ["body"])
    assert why in str(caught.value)


def test_bodies_that_would_grow_too_large_together_are_refused_with_how_many_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size = 500_000
    assert InflateBudget().limit == INFLATE_LIMIT
    monkeypatch.setattr(columns_module, "InflateBudget", partial(InflateBudget, 3 * size - 1))
    bomb = {"sys_flag": 1, "body": zlib.compress(bytes(size))}
    for before in (0, 30):
        chunk = plain_record() * before + plain_record(**bomb) * 3
        with pytest.raises(TooMuchToInflateError) as caught:
            decode_columns(chunk, ["body"])
        assert caught.value.fitting == before + 2
        bodies = decode_columns(chunk, ["body"], budget=InflateBudget(3 * size))["body"]
        assert pc.sum(pc.binary_length(bodies)).as_py() == 3 * size + 5 * before
        stored = decode_columns(chunk, ["body"], inflate=False)["body"]
        assert stored[-1].as_py() == bomb["body"]
