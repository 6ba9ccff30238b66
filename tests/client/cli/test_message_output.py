"""The table of messages: the beginning of each body, on one line."""

import pytest
from tests.support.records import plain_record

from rocketrio.cli.message_output import BODY_SHOWN, _cut_body, body_fields, message_row
from rocketrio_protocol.message import MessageExt


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"hello", "hello"),
        (b"two\n  lines\tand more", "two lines and more"),
        (b"x" * BODY_SHOWN, "x" * BODY_SHOWN),
        (b"x" * (BODY_SHOWN + 1), "x" * (BODY_SHOWN - 1) + "…"),
        ("发货".encode() * 100, "发货" * (BODY_SHOWN // 2 - 1) + "发…"),
        (b"\n" * 1000 + b"end", "…"),
        (b"\xff", "(1 byte, not text)"),
        (b"\xff\x00", "(2 bytes, not text)"),
        (b"", ""),
    ],
)
def test_body_is_cut_to_one_line(body: bytes, shown: str) -> None:
    record = plain_record(body=body)
    row = body_fields(MessageExt(record, 0, len(record)))
    assert _cut_body({**row, "body_size": len(body)}) == shown


def test_body_that_cannot_be_read_is_the_reason_in_its_row() -> None:
    record = plain_record(body=b"POISON", sys_flag=1)
    row = message_row(MessageExt(record, 0, len(record), "broker-a"))
    assert (row["body"], row["body_size"]) == (None, None)
    assert row["body_error"].startswith("the body of orders@broker-a:3 offset 11 cannot be read")
    assert _cut_body(row) == f"({row['body_error']})"
