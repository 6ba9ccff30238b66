"""Log lines: a record is one line, whatever its values hold."""

import io
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketrio_protocol.log_lines import (
    LINES_A_MINUTE,
    VALUE_SIZE_LIMIT,
    LineFormatter,
    LineLimit,
    log_to,
)


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


def record(
    number: int, *, at: float, line: int = 1, level: int = logging.INFO
) -> logging.LogRecord:
    made = logging.LogRecord("test", level, "here.py", line, "client=%d", (number,), None)
    made.created = at
    return made


def test_a_place_that_writes_very_often_is_left_out_for_the_rest_of_the_minute() -> None:
    limit, more = LineLimit(), 50
    written = [limit.filter(record(n, at=n * 0.01)) for n in range(LINES_A_MINUTE + more)]
    assert written == [True] * LINES_A_MINUTE + [False] * more
    assert limit.filter(record(0, at=30, line=2))
    assert limit.filter(record(0, at=30, level=logging.DEBUG))
    assert not limit.filter(record(0, at=59))
    after = record(7, at=61)
    assert limit.filter(after)
    assert after.getMessage() == f"client=7 unlogged_before={more + 1}"
    next_one = record(8, at=62)
    assert limit.filter(next_one)
    assert next_one.getMessage() == "client=8"


def test_a_clock_that_is_set_back_begins_another_minute() -> None:
    limit = LineLimit()
    for _ in range(LINES_A_MINUTE):
        assert limit.filter(record(0, at=1000))
    assert limit.filter(record(0, at=10))


def test_the_log_of_a_process_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, root = io.StringIO(), logging.Logger("root")
    monkeypatch.setattr(logging, "root", root)
    log_to(stream, level="INFO", form="%(message)s")
    for number in range(LINES_A_MINUTE + 5):
        root.info("consumer connected group=%s", number)
    assert len(stream.getvalue().splitlines()) == LINES_A_MINUTE
