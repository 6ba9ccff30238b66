"""Expected texts of recorded messages: what Apache 4.9.7 stored for what the client sent (tests/golden/4.9.7)."""

import pytest

from rocketrio_broker.processor.stored_properties import (
    is_delayed,
    is_half_message,
    stored_properties,
)
from rocketrio_protocol.properties import decode_properties

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


def test_batch_keeps_wait() -> None:
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
def test_who_waits(sent: str | None, waits: bool) -> None:
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
def test_whatever_was_sent_the_map_is_right(sent: str, is_batch: bool) -> None:
    stored, _ = stored_properties(text(sent), "lab", is_batch=is_batch)
    expected = decode_properties(text(sent)) | {"CLUSTER": "lab"}
    if not is_batch:
        expected.pop("WAIT", None)
    assert decode_properties(stored) == expected
    assert not stored.endswith("\x02")


def test_delay_counts_only_as_a_level() -> None:
    assert is_delayed(text("a=b;DELAY=3"))
    assert not is_delayed(text("DELAY=0"))
    assert not is_delayed(text("MY_DELAY=3;a=b"))
    assert not is_delayed(text("DELAY=soon"))
    assert not is_delayed(None)


def test_half_message_says_so() -> None:
    assert is_half_message(text("TRAN_MSG=true;a=b"))
    assert not is_half_message(text("TRAN_MSG=false"))
    assert not is_half_message(text("MY_TRAN_MSG=true"))
    assert not is_half_message("")
