"""Blocks become record batches: Kafka's columns, tags beyond their hashes, and each policy for damage."""

import logging
import sys
import zlib
from collections.abc import Iterable
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.spark import in_memory
from tests.support.records import plain_record

from rocketrio.spark.errors import DecodeError
from rocketrio.spark.reading import decoding, salvage
from rocketrio.spark.reading.fetch import Block
from rocketrio.spark.reading.offsets import QueueRange
from rocketrio_protocol.columns import decode
from rocketrio_protocol.record.compression import INFLATE_LIMIT, InflateBudget
from rocketrio_protocol.record.java_hash import tags_code

FIRSTS = {"orders": {"a": 0, "b": 4}, "bills": {"b": 0}}
_decoder = partial(in_memory.decoder, FIRSTS)


def _piece(broker: str, *records: bytes, topic: str = "orders", queue: int = 1) -> Any:
    return QueueRange(topic, broker, queue, 0, 1000), len(records), b"".join(records)


def _record(offset: int = 0, **fields: Any) -> bytes:
    return plain_record(**{"queue_offset": offset} | fields)


def _tagged(*tags: str | None) -> bytes:
    return b"".join(
        _record(place, properties=b"" if tag is None else b"TAGS\x01%s\x02" % tag.encode())
        for place, tag in enumerate(tags)
    )


@pytest.mark.parametrize("count", [3, 40])  # one by one, and by columns
def test_decoder_with_schema_mode_kafka_gives_its_columns(count: int) -> None:
    decoder = _decoder(schemaMode="kafka", includeHeaders="true")
    keyless = _record(7, properties=b"WAIT\x01true\x02")
    batch = decoder.decode(Block([_piece("b", *[_record(5)] * (count - 1), keyless, queue=2)]))
    batch.validate(full=True)
    first, last = (batch.slice(at, 1).to_pylist()[0] for at in (0, count - 1))
    stored = first.pop("timestamp")
    assert stored.timestamp() == pytest.approx(1_700_000_000.456)
    headers = first.pop("headers")
    assert first == {
        "key": b"k1 k2", "value": b"hello", "topic": "orders", "partition": 6, "offset": 5,
        "timestampType": 1,
    }  # fmt: skip
    assert [(header["key"], header["value"]) for header in headers] == [
        ("KEYS", b"k1 k2"), ("TAGS", b"red"), ("UNIQ_KEY", b"0A"), ("WAIT", b"true"),
    ]  # fmt: skip
    assert last["key"] is None
    assert last["headers"] == [{"key": "WAIT", "value": b"true"}]


def test_partitions_are_counted_over_the_queues_of_a_topic() -> None:
    block = Block(
        [
            _piece("a", _record(), _record(), queue=3),
            _piece("b", _record(), queue=0),
            _piece("b", _record(), topic="bills", queue=0),
        ]
    )
    batch = _decoder(schemaMode="kafka", columns="partition,broker_name").decode(block)
    assert batch.column(0).to_pylist() == [3, 3, 4, 0]
    assert batch.column(1).to_pylist() == ["a", "a", "b", "b"]


def test_a_message_without_properties_has_no_headers() -> None:
    decoder = _decoder(schemaMode="kafka", columns="headers", includeHeaders="true")
    batch = decoder.decode(Block([_piece("a", _record(properties=b""), _record())]))
    assert [len(headers) for headers in batch.column(0).to_pylist()] == [0, 4]


def test_tags_that_share_a_hash_are_distinguished() -> None:
    assert tags_code("Aa") == tags_code("BB")
    piece = _piece("a", *[b""] * 30)
    block = Block([(piece[0], 30, _tagged(*["Aa", "BB", None] * 10))])
    assert _decoder(subExpression="Aa || CC").decode(block).num_rows == 10
    batch = _decoder(subExpression="Aa", columns="queue_offset").decode(block)
    assert batch.schema.names == ["queue_offset"]
    assert batch.column(0).to_pylist() == list(range(0, 30, 3))
    everything = Block([(piece[0], 3, _tagged("Aa", "Aa", "Aa"))])
    assert _decoder(subExpression="Aa").decode(everything).num_rows == 3
    assert _decoder(subExpression="CC").decode(block).num_rows == 0


def _damaged_block() -> Block:
    good, bad = _record(1), _record(2, sys_flag=1, body=b"no zlib")
    return Block(
        [
            _piece("a", good, good, queue=0),
            _piece("b", *[good] * 20, bad, good, queue=1),
            _piece("a", good, queue=2),
        ]
    )


def test_damage_fails_with_its_place() -> None:
    with pytest.raises(DecodeError) as caught:
        _decoder().decode(_damaged_block())
    text = str(caught.value)
    assert text.startswith("[ROCKETMQ_DECODE] messages of orders@b:1 cannot be decoded: offset 2: ")
    assert "onCorruptMessage" in text


def test_damage_is_skipped_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        batch = _decoder(onCorruptMessage="skip", columns="broker_name,queue_offset").decode(
            _damaged_block()
        )
    # The body was not asked for.
    assert batch.num_rows == 25
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        batch = _decoder(onCorruptMessage="skip").decode(_damaged_block())
    assert batch.num_rows == 24
    assert batch.column("broker_name").to_pylist() == ["a"] * 2 + ["b"] * 21 + ["a"]
    assert "count=1 policy=skip" in caplog.text
    assert "offset 2" in caplog.text


def test_of_damage_null_is_what_cannot_be_read() -> None:
    batch = _decoder(onCorruptMessage="null").decode(_damaged_block())
    batch.validate(full=True)
    assert batch.num_rows == 25
    row = batch.slice(22, 1).to_pylist()[0]
    assert (row["body"], row["queue_offset"], row["tags"], row["broker_name"]) == (
        None,
        2,
        "red",
        "b",
    )


def test_of_records_that_begin_nowhere_only_the_range_is_known() -> None:
    block = Block([_piece("b", _record(1), b"x" * 200, _record(3))])
    decoder = _decoder(
        schemaMode="kafka", onCorruptMessage="null", columns="offset,partition,value"
    )
    rows = decoder.decode(block).to_pylist()
    assert [row["offset"] for row in rows] == [1, None, 3]
    assert [row["partition"] for row in rows] == [5, 5, 5]
    decoder = _decoder(onCorruptMessage="skip", columns="queue_offset")
    assert decoder.decode(block).column(0).to_pylist() == [1, 3]


def test_damaged_tags_are_kept_with_null_and_not_with_skip() -> None:
    damaged = bytearray(_record(1))
    damaged[84:88] = (10**6).to_bytes(4)  # a body size that leaves no room for properties
    block = Block([_piece("a", _tagged("Aa"), bytes(damaged), _tagged("BB"))])
    given = {"subExpression": "Aa", "columns": "tags"}
    assert _decoder(onCorruptMessage="null", **given).decode(block).column(0).to_pylist() == [
        "Aa",
        None,
    ]
    assert _decoder(onCorruptMessage="skip", **given).decode(block).num_rows == 1


@pytest.mark.parametrize("policy", ["fail", "skip", "null"])
def test_a_codec_that_is_not_installed_is_no_damage(
    monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    compressed = _record(sys_flag=0x101, body=b"LZ4 frame")
    for records in ([compressed], [compressed, b"x" * 200]):
        with pytest.raises(DecodeError, match="whose package is not installed"):
            _decoder(onCorruptMessage=policy).decode(Block([_piece("a", *records)]))


def test_checksums_are_compared_when_asked() -> None:
    block = Block([_piece("a", _record(1), _record(2, body_crc=1), _record(3))])
    assert _decoder().decode(block).num_rows == 3
    assert _decoder(verifyCrc="true", onCorruptMessage="skip").decode(block).num_rows == 2
    batch = _decoder(verifyCrc="true", onCorruptMessage="null").decode(block)
    assert batch.column("body").to_pylist() == [b"hello", None, b"hello"]


def test_delivery_time_is_null_without_the_property() -> None:
    record = _record(properties=b"TIMER_DELIVER_MS\x011700000000000\x02")
    batch = _decoder(columns="deliver_time").decode(Block([_piece("a", record, _record())]))
    assert batch.column(0).cast(pa.int64()).to_pylist() == [1_700_000_000_000_000, None]


LIMIT = INFLATE_LIMIT // 64
"""The limit in these tests, so that they inflate less."""
BOMB_SIZE = 2 * LIMIT // 5
BOMB = _record(7, sys_flag=1, body=zlib.compress(bytes(BOMB_SIZE)))
AT_ONCE = LIMIT // BOMB_SIZE


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (decode, decoding, salvage):
        monkeypatch.setattr(module, "InflateBudget", partial(InflateBudget, LIMIT))


def _sizes(batches: Iterable[pa.RecordBatch]) -> list[list[int]]:
    return [pc.binary_length(batch.column("body")).to_pylist() for batch in batches]


@pytest.mark.usefixtures("small_limit")
def test_bombs_become_several_batches() -> None:
    block = Block()
    block.add(*_piece("a", _record(1), BOMB))
    block.add(*_piece("b", *[BOMB] * AT_ONCE, _record(2), queue=2))
    decoder = _decoder(columns="body,broker_name,queue_id")
    batches = list(decoder.batches(block))
    assert _sizes(batches) == [[5, *[BOMB_SIZE] * AT_ONCE], [BOMB_SIZE, 5]]
    assert batches[0].column("broker_name").to_pylist() == ["a", "a", *["b"] * (AT_ONCE - 1)]
    assert batches[1].column("broker_name").to_pylist() == ["b", "b"]
    assert [batch.num_rows for batch in _decoder(columns="queue_offset").batches(block)] == [5]


@pytest.mark.usefixtures("small_limit")
@pytest.mark.parametrize(("policy", "rows"), [("skip", 5), ("null", 7)])
def test_bombs_among_damage_become_several_batches(policy: str, rows: int) -> None:
    damaged = _record(3, sys_flag=1, body=b"no zlib")
    block = Block()
    block.add(*_piece("a", BOMB, damaged, BOMB, b"\0" * 200, BOMB, BOMB, _record(4)))
    block.rows += 100  # Offsets with gaps.
    batches = list(_decoder(columns="body", onCorruptMessage=policy).batches(block))
    sizes = [size for some in _sizes(batches) for size in some]
    assert len(sizes) == rows
    assert [size for size in sizes if size is not None] == [BOMB_SIZE] * 4 + [5]
    assert all(sum(filter(None, some)) <= LIMIT for some in _sizes(batches))
    with pytest.raises(DecodeError, match="cannot be decoded"):
        list(_decoder(columns="body").batches(block))
