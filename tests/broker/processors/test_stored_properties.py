"""Expected texts of recorded messages: what Apache 4.9.7 stored for what the client sent (tests/golden/4.9.7)."""

import pytest

from rocketrio_broker.processors.stored_properties import (
    DELAY_MARK,
    TRANSACTION_MARK,
    UNIQUE_KEY_LABEL,
    is_true,
    property_map,
    stored_properties,
)
from rocketrio_protocol.record.properties import decode_properties, stored_value

KEY = "FD000000000000000000000000000002449130946E0969F766B90000"


def text(written: str) -> str:
    r"""`=` and `;` for the separators \x01 and \x02."""
    return written.replace("=", "\x01").replace(";", "\x02")


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        (
            f"KEYS=key-1;UNIQ_KEY={KEY};WAIT=true;TAGS=TagA",
            f"KEYS=key-1;UNIQ_KEY={KEY};CLUSTER=lab;TAGS=TagA",
        ),
        (
            f"city=köln;KEYS=key-2 key-3;UNIQ_KEY={KEY};WAIT=true;TAGS=TagB;n=42",
            f"city=köln;KEYS=key-2 key-3;UNIQ_KEY={KEY};CLUSTER=lab;TAGS=TagB;n=42",
        ),
        (
            f"KEYS=key-w;UNIQ_KEY={KEY};WAIT=false;TAGS=TagA",
            f"KEYS=key-w;UNIQ_KEY={KEY};CLUSTER=lab;TAGS=TagA",
        ),
    ],
)
def test_plain_message_is_stored_as_apache_stores_it(sent: str, stored: str) -> None:
    assert stored_properties(text(sent), "lab", is_batch=False)[0] == text(stored)


def test_stored_properties_of_a_batch_keep_wait() -> None:
    assert stored_properties(text("WAIT=true"), "lab", is_batch=True) == (
        text("CLUSTER=lab;WAIT=true"),
        True,
    )


@pytest.mark.parametrize(
    ("sent", "waits"),
    [
        (None, True),
        ("", True),
        ("a=b", True),
        ("WAIT=true", True),
        ("a=b;WAIT=True;c=d", True),
        ("a=b;WAIT=false", False),
        ("WAIT=true;WAIT=false", False),
        ("MY_WAIT=false;a=b", True),
        ("MY_WAIT=false;WAIT=false;a=b", False),
    ],
)
def test_waiting_for_storage_depends_on_the_property_wait(sent: str | None, waits: bool) -> None:
    given = None if sent is None else text(sent)
    assert stored_properties(given, "lab", is_batch=False)[1] is waits
    assert stored_properties(given, "lab", is_batch=True)[1] is waits


@pytest.mark.parametrize("is_batch", [False, True])
@pytest.mark.parametrize(
    "sent",
    [
        "",
        "WAIT=true",
        "WAIT=true;",
        "a=b;",
        "a=b;WAIT=true",
        "WAIT=false;a=b;WAIT=true;",
        "MY_WAIT=true;a=b",
        "CLUSTER=other;a=b;WAIT=true",
        "a=b;MY_CLUSTER=x",
        "a=b;WAIT=true;CLUSTER=other;;;",
    ],
)
def test_changed_properties_decode_to_the_expected_map(sent: str, is_batch: bool) -> None:
    stored, _ = stored_properties(text(sent), "lab", is_batch=is_batch)
    expected = decode_properties(text(sent)) | {"CLUSTER": "lab"}
    if not is_batch:
        expected.pop("WAIT", None)
    assert decode_properties(stored) == expected
    assert not stored.endswith("\x02")


def test_a_parked_message_keeps_wait_behind_the_cluster() -> None:
    sent = text("KEYS=k;WAIT=true;DELAY=3;")
    assert list(property_map(sent, "lab").items()) == [
        ("KEYS", "k"),
        ("DELAY", "3"),
        ("CLUSTER", "lab"),
        ("WAIT", "true"),
    ]
    assert property_map("", "lab") == {"CLUSTER": "lab"}


@pytest.mark.parametrize("name", ["DELAY", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS"])
def test_every_way_to_be_late_has_the_mark(name: str) -> None:
    assert DELAY_MARK in text(f"a=b;{name}=3")


def test_half_messages_have_the_mark() -> None:
    assert TRANSACTION_MARK in text("TRAN_MSG=true;a=b")


def test_wait_is_true_only_for_the_text_true() -> None:
    assert [is_true(word) for word in ("true", "True", "TRUE", "1", "yes", "")] == [True] * 3 + [
        False
    ] * 3


@pytest.mark.parametrize(
    ("sent", "key"),
    [
        (f"UNIQ_KEY={KEY};TAGS=t", KEY),
        (f"TAGS=t;UNIQ_KEY={KEY}", KEY),
        (f"TAGS=t;UNIQ_KEY={KEY};", KEY),
        ("UNIQ_KEY=first;UNIQ_KEY=last", "last"),
        (f"UNIQ_KEY={KEY};MY_UNIQ_KEY=other", KEY),
        ("MY_UNIQ_KEY=other", ""),
        ("TAGS=UNIQ_KEY", ""),
        ("", ""),
    ],
)
def test_unique_key_is_that_of_the_property(sent: str, key: str) -> None:
    stored, _ = stored_properties(text(sent), "cluster", is_batch=False)
    assert stored_value(stored.encode(), UNIQUE_KEY_LABEL) == key.encode()
