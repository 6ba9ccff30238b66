"""The table of messages: the beginning of each body, on one line."""

from typing import cast

import pytest

from rocketrio.cli.common import body_fields
from rocketrio.cli.message_output import BODY_SHOWN, _cut_body
from rocketrio_protocol.message import Message, MessageExt


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
    row = body_fields(cast(MessageExt, Message("orders", body)))
    assert _cut_body({**row, "body_size": len(body)}) == shown
