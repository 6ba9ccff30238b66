"""Log lines: a record is one line, whatever its values hold."""

import io
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketrio_protocol.log_lines import VALUE_SIZE_LIMIT, LineFormatter


def logged(message: str, *args: Any, exc_info: bool = False) -> str:
    """What one record puts into the log."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter("%(levelname)s %(message)s"))
    logger = logging.Logger("test")
    logger.addHandler(handler)
    logger.warning(message, *args, exc_info=exc_info)
    return stream.getvalue()


def test_a_record_of_plain_values_is_written_as_usual() -> None:
    assert logged("sent count=%d share=%.2f to=%s", 3, 0.5, "größe") == (
        "WARNING sent count=3 share=0.50 to=größe\n"
    )
    assert logged("by name %(name)s", {"name": "x"}) == "WARNING by name x\n"
    assert logged("no values at 100%") == "WARNING no values at 100%\n"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("x\n2025-01-01 INFO forged", "x\\n2025-01-01 INFO forged"),
        ("\r\x1b[2K\x00", "\\r\\x1b[2K\\x00"),
        ("\u2028\u202e\x85", "\\u2028\\u202e\\x85"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_cannot_be_printed_is_escaped(value: str, shown: str) -> None:
    assert logged("client_id=%s", value) == f"WARNING client_id={shown}\n"
    assert logged(f"client_id={value}") == f"WARNING client_id={shown}\n"
    assert logged("error=%s", ValueError(value)) == f"WARNING error={shown}\n"


def test_a_long_value_is_cut_and_its_neighbours_are_whole() -> None:
    size = 1 << 20
    line = logged("group=%s error=%r addr=%s", "g" * size, ValueError("e" * size), "10.0.0.1:9876")
    assert f"group={'g' * VALUE_SIZE_LIMIT}... ({size} characters) error=" in line
    assert line.endswith(" addr=10.0.0.1:9876\n")
    assert len(line) < 3 * VALUE_SIZE_LIMIT


def test_a_traceback_keeps_its_lines_and_gains_none() -> None:
    try:
        raise ValueError("bad\n2025-01-01 INFO forged\n" + "x" * 5000)
    except ValueError:
        first, *rest = logged("failed", exc_info=True).splitlines()
    assert first == "WARNING failed"
    assert all(line.startswith("    ") for line in rest)
    assert any("raise ValueError" in line for line in rest)
    assert max(map(len, rest)) < 2 * VALUE_SIZE_LIMIT


@given(st.text())
def test_any_text_takes_one_line(text: str) -> None:
    assert len(logged("%s", text).splitlines()) == 1
