"""Trace records as text, field by field as Java's encoder writes them."""

from rocketrio.tracing.encoding import (
    ConsumeBegun,
    ConsumeEnded,
    ConsumeReturn,
    MessageKind,
    Published,
    Traced,
    TransactionEnded,
)

MESSAGE = Traced("orders", "ID-1", "paid", "k1 k2")
BARE = Traced("orders", "ID-1")


def test_trace_of_a_sent_message_is_apaches_text() -> None:
    record = Published(
        MESSAGE, 1000, "DefaultRegion", "shop", "10.0.0.1:10911", 7, 3, MessageKind.DELAY, "OFF-1", True
    )  # fmt: skip
    assert record.text == (
        "Pub\x011000\x01DefaultRegion\x01shop\x01orders\x01ID-1\x01paid\x01k1 k2"
        "\x0110.0.0.1:10911\x017\x013\x013\x01OFF-1\x01true\x02"
    )


def test_trace_of_a_consumed_message_is_apaches_text() -> None:
    begun = ConsumeBegun(MESSAGE, 1000, "DefaultRegion", "billing", "REQ-1", 2)
    assert begun.text == (
        "SubBefore\x011000\x01DefaultRegion\x01billing\x01REQ-1\x01ID-1\x012\x01k1 k2\x02"
    )
    ended = ConsumeEnded(MESSAGE, 1005, "billing", "REQ-1", 5, ConsumeReturn.EXCEPTION)
    assert ended.text == (
        "SubAfter\x01REQ-1\x01ID-1\x015\x01false\x01k1 k2\x012\x011005\x01billing\x02"
    )


def test_trace_of_a_decided_transaction_is_apaches_text() -> None:
    record = TransactionEnded(
        MESSAGE, 1000, "DefaultRegion", "shop", "10.0.0.1:10911", "TX-1", "COMMIT_MESSAGE", False
    )
    assert record.text == (
        "EndTransaction\x011000\x01DefaultRegion\x01shop\x01orders\x01ID-1\x01paid\x01k1 k2"
        "\x0110.0.0.1:10911\x012\x01TX-1\x01COMMIT_MESSAGE\x01false\x02"
    )


def test_what_is_not_known_leaves_no_field_empty() -> None:
    begun = ConsumeBegun(BARE, 1000, "", "billing", "REQ-1", 0)
    assert begun.text == "SubBefore\x011000\x01null\x01billing\x01REQ-1\x01ID-1\x010\x01null\x02"


def test_batch_is_found_by_each_of_its_ids() -> None:
    assert Traced("orders", "ID-1,ID-2", None, "k1 k2").search_keys == ["ID-1", "ID-2", "k1", "k2"]
