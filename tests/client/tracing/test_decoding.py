"""Trace records as they are read: those of rocketrio's encoder, and of Java's of several versions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketrio.tracing.decoding import DecodedRecord, Recalled, decode_trace
from rocketrio.tracing.encoding import (
    ConsumeBegun,
    ConsumeEnded,
    ConsumeReturn,
    MessageKind,
    Published,
    Traced,
    TransactionEnded,
)

# "null" stands for an unknown value, in Java's text as in rocketrio's.
WORDS = st.text("abc-%_.0 ", min_size=1).filter(lambda text: text != "null")
NUMBERS = st.integers(0, 2**40)
IN_FULL = st.builds(Traced, WORDS, WORDS, st.none() | WORDS, st.just("") | WORDS)
BY_ID = st.builds(Traced, st.just(""), WORDS, st.none(), st.just("") | WORDS)
RECORDS = st.one_of(
    st.builds(
        Published, IN_FULL, NUMBERS, WORDS, WORDS, WORDS, NUMBERS, NUMBERS,
        st.sampled_from(MessageKind), WORDS, st.booleans(),
    ),
    st.builds(ConsumeBegun, BY_ID, NUMBERS, WORDS, WORDS, WORDS, NUMBERS),
    st.builds(ConsumeEnded, BY_ID, NUMBERS, WORDS, WORDS, NUMBERS, st.sampled_from(ConsumeReturn)),
    st.builds(TransactionEnded, IN_FULL, NUMBERS, WORDS, WORDS, WORDS, WORDS, WORDS, st.booleans()),
)  # fmt: skip


@pytest.mark.slow
@given(st.lists(RECORDS, max_size=5))
def test_records_are_read_as_they_were_written(records: list[DecodedRecord]) -> None:
    text = "".join(record.text for record in records if not isinstance(record, Recalled))
    decoded = decode_trace(text)
    assert (list(decoded.records), decoded.damaged) == (records, 0)


@given(st.text("\x01\x02PubSBefore0192null", max_size=60))
def test_any_text_is_records_and_damage(text: str) -> None:
    lines = [line for line in text.split("\x02") if line]
    decoded = decode_trace(text)
    assert len(decoded.records) + decoded.damaged == len(lines)


def line(*fields: object) -> str:
    return "\x01".join(map(str, fields)) + "\x02"


def test_pub_of_a_client_before_4_6_has_no_offset_id() -> None:
    text = line("Pub", 1000, "R", "shop", "orders", "ID", "t", "k", "h:1", 7, 3, 0, "true")
    [record] = decode_trace(text).records
    assert isinstance(record, Published)
    assert (record.is_success, record.offset_message_id) == (True, "null")


def test_pub_with_the_host_of_its_client_has_both_ids() -> None:
    text = line(
        "Pub", 1000, "R", "shop", "orders", "ID", "t", "k", "h:1", 7, 3, 0, "OFF", "true", "c"
    )
    [record] = decode_trace(text).records
    assert isinstance(record, Published)
    assert (record.is_success, record.offset_message_id) == (True, "OFF")


@pytest.mark.parametrize(
    ("fields", "result", "group"),
    [
        (("REQ", "ID", 5, "true", "k"), ConsumeReturn.SUCCESS, ""),
        (("REQ", "ID", 5, "false", "k"), ConsumeReturn.FAILED, ""),
        (("REQ", "ID", 5, "false", "k", 1), ConsumeReturn.TIME_OUT, ""),
        (("REQ", "ID", 5, "false", "null", 2, 1005, "billing"), ConsumeReturn.EXCEPTION, "billing"),
        (("REQ", "ID", 5, "false", "k", 9, 1005, "billing"), ConsumeReturn.FAILED, "billing"),
    ],
)
def test_sub_after_of_every_length_is_read(
    fields: tuple[object, ...], result: ConsumeReturn, group: str
) -> None:
    [record] = decode_trace(line("SubAfter", *fields)).records
    assert isinstance(record, ConsumeEnded)
    assert (record.result, record.group, record.cost_ms) == (result, group, 5)


def test_damaged_record_leaves_its_neighbours() -> None:
    good = line("Recall", 1000, "R", "shop", "orders", "ID", "true")
    text = good + line("Pub", "soon") + line("Unheard", 1) + good
    decoded = decode_trace(text)
    assert decoded.damaged == 2
    assert decoded.records == [Recalled(Traced("orders", "ID"), 1000, "shop", True)] * 2
