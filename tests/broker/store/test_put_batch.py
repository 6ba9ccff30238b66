"""Batches as tables and one by one: the same records, addresses and queue entries for the same entries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.stores import put_of

from rocketrio_broker.store import put_batch
from rocketrio_broker.store.consume_queue import ENTRY
from rocketrio_broker.store.dispatch import stored_tags_code
from rocketrio_broker.store.put_batch import (
    COLUMNS_LEAST,
    UNIFORM_LEAST,
    MixedBatch,
    MixedEntries,
    UniformBatch,
    UniformEntries,
    batch_of,
    entries_in_steps,
    entries_of,
    mixed_entries,
)
from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.record.batch import decode_batch, encode_batch
from rocketrio_protocol.record.encode import record_shape
from rocketrio_protocol.record.java_hash import java_string_hash
from rocketrio_protocol.record.layout import pack_host
from rocketrio_protocol.steps import all_at_once

Many = list[tuple[int, bytes, bytes]]

COUNT = UNIFORM_LEAST
IPV4, IPV6 = pack_host("127.0.0.1", 10911), pack_host("::1", 10911)
COMMON = b"CLUSTER\1lab\2WAIT\1true"


def entries(properties: bytes, count: int = COUNT) -> list[tuple[int, bytes, bytes]]:
    """`%` in the properties stands for a digit of the message's own."""
    return [
        (number, b"body %04d" % number, properties.replace(b"%", b"%d" % (number % 10)))
        for number in range(count)
    ]


def assert_same_records(
    many: Many, common: bytes, *, topic: bytes = b"orders", host: bytes = IPV4
) -> None:
    uniform = entries_of(encode_batch(many))
    assert isinstance(uniform, UniformEntries)
    put = put_of(properties=common, queue_id=3, born_host=host, store_host=IPV4)
    shape = record_shape(topic, len(host), len(IPV4))
    table, one_by_one = batch_of(uniform, common), MixedBatch(mixed_entries(many), common)
    assert isinstance(table, UniformBatch)
    assert (table.count, table.body_size) == (one_by_one.count, one_by_one.body_size)
    assert table.properties_size == one_by_one.properties_size
    assert table.size(shape) == one_by_one.size(shape)
    assert table.is_delayed is one_by_one.is_delayed is False
    records, *places = table.records(shape, put, 7, 1 << 40, 1_700_000_000_000)
    expected, *expected_places = one_by_one.records(shape, put, 7, 1 << 40, 1_700_000_000_000)
    assert bytes(records) == bytes(expected)
    assert places == expected_places


@pytest.mark.parametrize("common", [COMMON, b""])
@pytest.mark.parametrize(
    "properties",
    [
        b"",
        b"UNIQ_KEY\1A%",
        b"UNIQ_KEY\1A%\2",
        b"UNIQ_KEY\1A%\2TAGS\1red",
        b"TAGS\1red\2UNIQ_KEY\1A%\2",
        b"UNIQ_KEY\1A%\2TAGS\1",
        b"MYTAGS\1red\2UNIQ_KEY\1A%",
    ],
)
def test_table_makes_what_is_made_one_by_one(properties: bytes, common: bytes) -> None:
    assert_same_records(entries(properties, 100), common)


def test_table_knows_long_topics_and_ipv6_hosts() -> None:
    assert_same_records(entries(b"A\1%"), COMMON, topic=b"t" * 128, host=IPV6)


def test_table_of_empty_bodies() -> None:
    assert_same_records([(0, b"", b"")] * COUNT, b"")


def test_queue_entries_hold_the_hash_of_the_tags() -> None:
    many = entries(b"K\1%\2TAGS\1red")
    batch = batch_of(entries_of(encode_batch(many)), b"")
    assert isinstance(batch, UniformBatch)
    shape = record_shape(b"orders")
    _, addresses, packed = batch.records(shape, put_of(), 0, 500, 1)
    size = batch.size(shape) // COUNT
    assert list(ENTRY.iter_unpack(packed)) == [
        (address, size, java_string_hash("red")) for address in addresses
    ]
    assert addresses == list(range(500, 500 + COUNT * size, size))


@pytest.mark.parametrize(
    "many",
    [
        entries(b"A\1b", COUNT - 1),
        [*entries(b"A\1b"), (0, b"longer than they", b"A\1b")],
        [*entries(b"A\1b"), (0, b"body 0000", b"A\1bc")],
        [*entries(b"A\1b"), (0, b"body 00000", b"A\1")],
        [*entries(b"TAGS\1a"), (0, b"body 0000", b"TAGS\1b")],
        [*entries(b"TAGS\1a\2X\1b"), (0, b"body 0000", b"X\1b\2TAGS\1a")],
        [*entries(b"A\1b\2C\1"), (0, b"body 0000", b"A\1b\2TA\2")],
        entries(b"TAGS\1a\2TAGS\1b"),
        entries(b"A\1%\2DELAY\0013"),
        # What looks like a name only across two rows.
        entries(b"GS\1a\2TA"),
        entries(b"AY\1a\2DEL"),
        [],
    ],
    ids=range(12),
)
def test_other_batches_are_read_one_by_one(many: Many) -> None:
    assert entries_of(encode_batch(many)) == mixed_entries(many)


def test_common_tags_and_delays_count_for_all() -> None:
    uniform = entries_of(encode_batch(entries(b"TAGS\1own")))
    assert isinstance(uniform, UniformEntries)
    batch = batch_of(uniform, b"TAGS\1common")
    _, _, packed = batch.records(record_shape(b"orders"), put_of(), 0, 0, 1)
    assert {code for _, _, code in ENTRY.iter_unpack(packed)} == {java_string_hash("common")}
    assert batch_of(uniform, b"DELAY\0013").is_delayed


ODD = [
    b"",
    b"X\1",
    b"TAGS\1",
    b"TAGS\1red\2TAGS\1blue",
    b"TAGS\1\xc3\xa4\xff",
    b"TAGS\1\xf0\x9f\x98\x80\2KEYS\1a b",
]


def test_tags_of_many_entries_hash_as_those_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [(0, b"x" * (number % 3), ODD[number % len(ODD)]) for number in range(3 * COLUMNS_LEAST)]
    expected = [stored_tags_code(properties) for _, _, properties in many]
    assert mixed_entries(many).tags_codes == expected
    # Also those of the parts into which a large batch is cut, and of the few in the last of them.
    monkeypatch.setattr(put_batch, "HASHED_AT_ONCE", 14 * COLUMNS_LEAST)
    steps = entries_in_steps(encode_batch(many))
    assert next(steps) is None
    found = all_at_once(steps)
    assert isinstance(found, MixedEntries)
    assert found.tags_codes == expected


@given(
    many=st.lists(
        st.tuples(
            st.just(0),
            st.sampled_from([b"aa", b"bb"]),
            st.sampled_from([b"TAGS\1a", b"TAGS\1b", b"XTAGS\1", b"a\1TAGS\1", b"TAGS\1\2\2", b"\2TAGS\1c"]),
        ),
        min_size=COUNT,
        max_size=COUNT + 2,
    )
)  # fmt: skip
def test_any_batch_is_made_right(many: Many) -> None:
    batch = batch_of(entries_of(encode_batch(many)), COMMON)
    shape = record_shape(b"orders")
    records, *places = batch.records(shape, put_of(), 0, 0, 1)
    expected, *expected_places = MixedBatch(mixed_entries(many), COMMON).records(
        shape, put_of(), 0, 0, 1
    )
    assert (bytes(records), places) == (bytes(expected), expected_places)


@pytest.mark.parametrize("cut", [1, 21, 22])
def test_torn_batch_is_refused_as_ever(cut: int) -> None:
    body = encode_batch(entries(b"A\1b"))[:-cut]
    with pytest.raises(RemoteProtocolError) as expected:
        decode_batch(body)
    with pytest.raises(RemoteProtocolError) as caught:
        entries_of(body)
    assert str(caught.value) == str(expected.value)


@pytest.mark.parametrize("head", [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff"])
def test_impossible_sizes_are_refused_as_ever(head: bytes) -> None:
    body = encode_batch(entries(b"A\1b"))
    for at in (0, 16):
        with pytest.raises(RemoteProtocolError):
            entries_of(body[:at] + head + body[at + 4 :])


@pytest.mark.parametrize("flags", [(0, 0), (0, 1)])
def test_batches_of_too_many_messages_are_refused(
    flags: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def batch(count: int) -> bytes:
        return encode_batch([(0, b"x" * (1 + flags[n % 2]), b"") for n in range(count)])

    monkeypatch.setattr(put_batch, "BATCH_MESSAGES_LIMIT", 40)
    assert batch_of(entries_of(batch(40)), b"").count == 40
    with pytest.raises(RemoteProtocolError, match="40 messages at most"):
        entries_of(batch(41))
