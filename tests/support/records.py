"""Stored records for tests: a strategy for any record, and re-encoding what was decoded."""

from typing import Any

from hypothesis import strategies as st

from rocketrio_protocol.message import MessageExt
from rocketrio_protocol.record.compression import compress
from rocketrio_protocol.record.encode import encode_record
from rocketrio_protocol.record.layout import pack_host
from rocketrio_protocol.record.properties import encode_properties

_i32 = st.integers(-(2**31), 2**31 - 1)
_i64 = st.integers(-(2**63), 2**63 - 1)
_port = st.integers(0, 65535)
_hosts = st.builds(lambda ip, port: pack_host(str(ip), port), st.ip_addresses(), _port)
_words = st.text(
    st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), max_size=6
)
_property_maps = st.dictionaries(
    st.one_of(st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "a"]), _words.filter(bool)),
    _words.filter(bool),
    max_size=5,
)

properties_bytes = st.one_of(
    st.builds(
        lambda properties, trailing: encode_properties(
            properties, trailing_separator=trailing
        ).encode(),
        _property_maps,
        st.booleans(),
    ),
    st.lists(st.sampled_from([b"KEYS", b"TAGS", b"\x01", b"\x02", b"v", b"\xff"]), max_size=10).map(
        b"".join
    ),
)


@st.composite
def record_fields(draw: st.DrawFn) -> dict[str, Any]:
    """Keyword arguments of `encode_record`, of any kind of record that may lie in a log."""
    sys_flag = draw(st.integers(0, 0xFF)) & ~0x31
    body = draw(st.binary(max_size=60))
    if draw(st.booleans()):
        kind = draw(st.sampled_from([0, 1, 2, 3]))
        sys_flag |= 1 | kind << 8
        body = compress(body, kind)  # type: ignore[arg-type]
    topic = draw(
        st.one_of(_words.map(str.encode), st.just(b"t" * 127), st.just("\u00e9".encode() * 70))
    )
    return {
        "queue_id": draw(_i32),
        "flag": draw(_i32),
        "queue_offset": draw(_i64),
        "physical_offset": draw(_i64),
        "sys_flag": sys_flag,
        "born_time_ms": draw(_i64),
        "born_host": draw(_hosts),
        "store_time_ms": draw(_i64),
        "store_host": draw(_hosts),
        "reconsume_times": draw(_i32),
        "prepared_transaction_offset": draw(_i64),
        "body": body,
        "topic": topic,
        "properties": draw(properties_bytes),
    }


def plain_fields(**changes: Any) -> dict[str, Any]:
    """Keyword arguments of `encode_record` for an ordinary message."""
    host = pack_host("127.0.0.1", 10911)
    fields: dict[str, Any] = {
        "queue_id": 3,
        "flag": 7,
        "queue_offset": 11,
        "physical_offset": 5000,
        "sys_flag": 0,
        "born_time_ms": 1_700_000_000_123,
        "born_host": pack_host("10.0.0.9", 40000),
        "store_time_ms": 1_700_000_000_456,
        "store_host": host,
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "body": b"hello",
        "topic": b"orders",
        "properties": b"KEYS\x01k1 k2\x02TAGS\x01red\x02UNIQ_KEY\x010A\x02WAIT\x01true",
    }
    return fields | changes


def plain_record(**changes: Any) -> bytes:
    """Return the record of an ordinary message, with these fields changed."""
    return encode_record(**plain_fields(**changes))


def plain_records(count: int, **changes: Any) -> bytes:
    """Return the records of ordinary messages that differ in their queue offsets alone, which begin at 0."""
    return b"".join(plain_record(queue_offset=number, **changes) for number in range(count))


def encoded_again(message: MessageExt) -> bytes:
    """The record of a decoded message, made again from what its properties say."""
    return encode_record(
        queue_id=message.queue_id,
        flag=message.flag,
        queue_offset=message.queue_offset,
        physical_offset=message.physical_offset,
        sys_flag=message.sys_flag,
        born_time_ms=message.born_time_ms,
        born_host=pack_host(*message.born_host),
        store_time_ms=message.store_time_ms,
        store_host=pack_host(*message.store_host),
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
        body=message.stored_body,
        topic=message.topic.encode(),
        properties=message.stored_properties,
        # The broker may have kept a CRC that is not the body's; only a recomputed one shows that ours is right.
        body_crc=None if message.check_crc() else message.body_crc,
    )
