"""Messages to send, and the lazy view of stored ones, each field against the other peers' layout."""

import copy
import pickle
import sys
import zlib
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.records import plain_record, record_fields

from rocketrio_protocol.errors import (
    BodyUnreadableError,
    ConfigError,
    Error,
    LocalProtocolError,
    RemoteProtocolError,
)
from rocketrio_protocol.message import Message, MessageExt, MessageQueue
from rocketrio_protocol.record.compression import compress
from rocketrio_protocol.record.encode import encode_record
from rocketrio_protocol.record.layout import (
    COMPRESSED,
    COMPRESSION_TYPE_SHIFT,
    SysFlag,
    pack_host,
)
from rocketrio_protocol.record.properties import decode_properties
from rocketrio_protocol.times import LAST_TIME_MS


def _message(**changes: Any) -> MessageExt:
    record = plain_record(**changes)
    return MessageExt(b"before" + record + b"after", 6, len(record), "broker-a")


def test_queues_sort_by_topic_broker_and_id() -> None:
    queues = [
        MessageQueue(*at) for at in (("b", "x", 0), ("a", "y", 1), ("a", "x", 10), ("a", "x", 9))
    ]
    assert sorted(queues) == [queues[3], queues[2], queues[1], queues[0]]
    assert str(queues[1]) == "a@y:1"


def test_message_encodes_what_its_fields_say() -> None:
    message = Message(
        "orders", b"x", keys=["k1", "k2"], tags="red", properties={"color": "blue"}, delay_level=3
    )
    assert decode_properties(message.encoded_properties(unique_key="ID")) == {
        "UNIQ_KEY": "ID",
        "color": "blue",
        "KEYS": "k1 k2",
        "TAGS": "red",
        "DELAY": "3",
        "WAIT": "true",
    }


def test_plain_message_encodes_only_wait() -> None:
    assert Message("t", b"", wait_store_ok=False).encoded_properties() == "WAIT\x01false\x02"


def test_a_unique_key_among_the_properties_is_kept() -> None:
    message = Message("t", b"", properties={"UNIQ_KEY": "given"})
    assert message.property_map(unique_key="new")["UNIQ_KEY"] == "given"


@pytest.mark.parametrize("name", ["KEYS", "TAGS", "DELAY", "WAIT"])
def test_properties_that_have_a_field_are_refused(name: str) -> None:
    with pytest.raises(LocalProtocolError, match=f"give property {name} as"):
        Message("t", b"", properties={name: "1"}).encoded_properties()


def test_a_key_with_a_blank_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="contains a space"):
        Message("t", b"", keys=["a b"])


@pytest.mark.parametrize(
    ("kind", "body", "error", "why"),
    [
        (0, b"POISON", RemoteProtocolError, "a ZLIB body of 6 stored bytes is damaged"),
        (7, b"x", RemoteProtocolError, "unknown compression type 7"),
        (1, b"x", ConfigError, "compressed with LZ4, whose package is not installed"),
        (2, b"x", ConfigError, "compressed with ZSTD, whose package is not installed"),
    ],
)
def test_body_that_cannot_be_read_names_the_place_of_its_message(
    kind: int, body: bytes, error: type[Error], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("lz4.frame", "zstandard"):
        monkeypatch.setitem(sys.modules, module, None)
    message = _message(body=body, sys_flag=COMPRESSED | kind << COMPRESSION_TYPE_SHIFT)
    message.broker_name = "broker-a"
    with pytest.raises(error) as caught:
        message.body  # noqa: B018
    place = f"{message.topic}@broker-a:3 offset 11"
    assert str(caught.value).startswith(f"the body of {place} cannot be read: ")
    assert why in str(caught.value)
    assert str(message.body_error) == str(caught.value)
    assert message.inflated_size == 0
    with pytest.raises(error, match="cannot be read"):
        message.json()
    message.broker_name = ""  # Who decodes without it names the place.
    assert not str(message.body_error).startswith("the body of")


def test_body_that_can_be_read_has_no_error() -> None:
    assert _message().body_error is None
    assert _message(body=compress(b"x"), sys_flag=COMPRESSED).body_error is None


def test_every_property_of_a_stored_message() -> None:
    message = _message()
    assert (message.queue_id, message.flag, message.queue_offset) == (3, 7, 11)
    assert (message.physical_offset, message.sys_flag) == (5000, 0)
    assert (message.born_time_ms, message.store_time_ms) == (
        1_700_000_000_123,
        1_700_000_000_456,
    )
    assert (message.born_host, message.store_host) == (("10.0.0.9", 40000), ("127.0.0.1", 10911))
    assert (message.reconsume_times, message.prepared_transaction_offset) == (0, 0)
    assert (message.topic, message.body, message.stored_body) == ("orders", b"hello", b"hello")
    assert message.properties == {"KEYS": "k1 k2", "TAGS": "red", "UNIQ_KEY": "0A", "WAIT": "true"}
    assert (message.keys, message.tags, message.message_id) == ("k1 k2", "red", "0A")
    assert message.offset_message_id == "7F00000100002A9F" + f"{5000:016X}"
    assert message.body_crc == zlib.crc32(b"hello")
    assert message.broker_name == "broker-a"
    assert message.check_crc()
    assert repr(message) == "<MessageExt orders@broker-a:3 queue_offset=11 message_id=0A body=5 B>"


@pytest.mark.parametrize("buffer_type", [bytes, bytearray, memoryview])
def test_any_kind_of_buffer_gives_bytes(buffer_type: Callable[[bytes], Any]) -> None:
    plain = _message()
    message = MessageExt(buffer_type(bytes(plain.buffer)), plain.start, plain.size)
    assert type(message.body) is bytes
    assert (message.body, message.topic, message.properties) == (
        plain.body,
        plain.topic,
        plain.properties,
    )
    assert (message.born_host, message.keys) == (plain.born_host, plain.keys)


def test_message_without_keys_tags_or_unique_key() -> None:
    message = _message(properties=b"")
    assert (message.keys, message.tags, message.properties) == ("", None, {})
    assert message.message_id == message.offset_message_id


def test_ipv6_hosts_move_what_follows() -> None:
    born, store = pack_host("2001:db8::1", 5), pack_host("::1", 6)
    for hosts in (
        {"born_host": born},
        {"store_host": store},
        {"born_host": born, "store_host": store},
    ):
        message = _message(reconsume_times=2, prepared_transaction_offset=9, **hosts)
        assert message.born_host == (
            ("2001:db8::1", 5) if "born_host" in hosts else ("10.0.0.9", 40000)
        )
        assert message.store_host == (("::1", 6) if "store_host" in hosts else ("127.0.0.1", 10911))
        assert message.store_time_ms == 1_700_000_000_456
        assert (message.reconsume_times, message.prepared_transaction_offset) == (2, 9)
        assert (message.body, message.topic, message.tags) == (b"hello", "orders", "red")


def test_long_topics_are_read_with_their_two_byte_length() -> None:
    assert _message(topic=b"t" * 300).topic == "t" * 300


def test_compressed_body_is_inflated_once() -> None:
    stored = zlib.compress(b"large " * 100)
    flags = SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB
    message = _message(body=stored, sys_flag=int(flags))
    assert message.body == b"large " * 100
    assert message.body is message.body
    assert message.stored_body == stored


def test_copy_and_pickle_leave_the_chunk_behind() -> None:
    message = _message()
    for other in (
        message.copy(),
        copy.copy(message),
        copy.deepcopy(message),
        pickle.loads(pickle.dumps(message)),
    ):
        assert other.buffer == message.record
        assert (other.start, other.broker_name, other.body) == (0, "broker-a", b"hello")


def test_wrong_checksum_is_noticed() -> None:
    assert not _message(body_crc=1).check_crc()


_PROPERTIES = [
    "born_host", "store_host", "store_time_ms", "reconsume_times", "prepared_transaction_offset", "body",
    "topic", "properties", "keys", "tags", "message_id", "stored_body",
]  # fmt: skip


@given(record_fields(), st.integers(8, 2000), st.integers(1, 255))
def test_damaged_records_raise_only_protocol_errors(
    fields: dict[str, Any], at: int, change: int
) -> None:
    record = bytearray(encode_record(**fields))
    size = len(record)
    record[8 + at % (size - 8)] ^= change
    message = MessageExt(bytes(record), 0, size)
    for name in _PROPERTIES:
        with suppress(RemoteProtocolError):
            getattr(message, name)


def test_lengths_beyond_the_record_do_not_read_the_next_message() -> None:
    record = bytearray(_message().record)
    record[84:88] = (len(record)).to_bytes(4)
    message = MessageExt(bytes(record) + b"secret" * 100, 0, len(record))
    with pytest.raises(RemoteProtocolError, match="its body length is"):
        _ = message.body
    with pytest.raises(RemoteProtocolError, match="its body length is"):
        _ = message.topic


@pytest.mark.parametrize("keys", [5, None, b"k", ["a", 1]])
def test_keys_that_are_no_texts_are_refused(keys: Any) -> None:
    with pytest.raises(LocalProtocolError, match="keys must be a string"):
        Message("t", b"", keys=keys)


@attrs.frozen
class Order:
    id: int
    items: list[str]


def test_body_is_read_as_json() -> None:
    message = _message(body=b'{"id": 7, "items": ["cup"]}')
    assert message.json() == {"id": 7, "items": ["cup"]}
    assert message.json(Order) == Order(7, ["cup"])


@pytest.mark.parametrize("body", [b"", b"{", b'{"id": "seven", "items": []}', b"\xff", b"[1]"])
def test_body_of_another_kind_is_an_error_with_its_place(body: bytes) -> None:
    message = _message(body=body)
    with pytest.raises(
        BodyUnreadableError, match=r"the body of <MessageExt .* is not the expected JSON"
    ):
        message.json(Order)
    assert message.body == body


def test_times_of_a_message_have_a_zone() -> None:
    message = _message(born_time_ms=1_700_000_000_123, store_time_ms=-1)
    assert message.born_time == datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)
    assert message.store_time == datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)


@pytest.mark.parametrize("beyond", [2**63 - 1, 2**53, LAST_TIME_MS + 1])
@pytest.mark.parametrize("hours", [-23, 0, 23])
def test_a_time_that_no_datetime_holds_is_the_nearest_one(beyond: int, hours: int) -> None:
    """Any producer may write any number, and a handler that looks at it shall not fail."""
    zone = timezone(timedelta(hours=hours))
    last = _message(born_time_ms=beyond, store_time_ms=beyond)
    first = _message(born_time_ms=-beyond, store_time_ms=-beyond)
    for message, year in ((last, 9999), (first, 1)):
        for time in (message.born_time, message.store_time):
            assert time.year == time.astimezone(zone).year == year
    assert last.born_time_ms == beyond
    at_the_end = _message(born_time_ms=LAST_TIME_MS)
    assert at_the_end.born_time == last.born_time
