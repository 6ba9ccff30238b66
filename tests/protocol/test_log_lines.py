"""Log lines: a record is one line, whatever its values hold."""

import io
import json
import logging
import math
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import TracerProvider

from rocketrio_protocol.log_lines import (
    LINES_A_MINUTE,
    MEMBER,
    VALUE_SIZE_LIMIT,
    JSONFormatter,
    LineFormatter,
    LineLimit,
    log_to,
)

TEXT = LineFormatter("%(levelname)s %(message)s")


def in_json(message: str, *args: Any, **options: Any) -> dict[str, Any]:
    """The JSON object that one record is."""
    line = logged(message, *args, formatter=JSONFormatter(), **options)
    assert line.endswith("\n")
    assert len(line.splitlines()) == 1
    found: dict[str, Any] = json.loads(line)
    return found


def logged(
    message: str, *args: Any, exc_info: bool = False, formatter: logging.Formatter = TEXT
) -> str:
    """What one record puts into the log."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
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
    assert logged("gone client_id=%s", value) == f'WARNING gone client_id="{shown}"\n'
    assert logged(f"client_id={value}") == f"WARNING client_id={shown}\n"
    assert logged("failed error=%s", ValueError(value)) == f'WARNING failed error="{shown}"\n'


def test_a_long_value_is_cut_and_its_neighbours_are_whole() -> None:
    size = 1 << 20
    line = logged(
        "failed group=%s error=%r addr=%s", "g" * size, ValueError("e" * size), "10.0.0.1:9876"
    )
    shown = "g" * VALUE_SIZE_LIMIT
    assert f'group="{shown}... ({size} characters)" error=' in line
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


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("orders", "orders"),
        ("", '""'),
        ("no answer", '"no answer"'),
        ("a=b", '"a=b"'),
        ('say "no"', '"say \\"no\\""'),
        ("C:\\x y", '"C:\\\\x y"'),
        ("größe", "größe"),
        (None, "None"),
    ],
)
def test_value_that_is_not_one_word_is_quoted(value: str | None, shown: str) -> None:
    assert logged("gone reason=%s offset=%d", value, 7) == f"WARNING gone reason={shown} offset=7\n"


def test_json_has_the_event_and_the_values_with_their_types() -> None:
    found = in_json(
        "slave stays behind slave=%s bytes=%d seconds=%.1f left=%s is_old=%s rate=%s queue=%r",
        "10.0.0.2:10912", 81920, 42.04, None, True, math.inf, "a\nb",
    )  # fmt: skip
    time = found.pop("time")
    assert datetime.fromisoformat(time).tzinfo is UTC
    assert time.endswith("Z")
    assert found == {
        "level": "WARNING",
        "logger": "test",
        "event": "slave stays behind",
        "slave": "10.0.0.2:10912",
        "bytes": 81920,
        "seconds": 42.0,
        "left": None,
        "is_old": True,
        "rate": "inf",
        "queue": "'a\\nb'",
    }


def test_line_of_another_form_is_an_event_without_values() -> None:
    assert in_json("by name %(name)s", {"name": "x"})["event"] == "by name x"
    assert in_json("all of %s, and more=%d", "it", 3)["event"] == "all of it, and more=3"


def test_json_has_the_traceback() -> None:
    try:
        raise ValueError("bad")
    except ValueError:
        found = in_json("failed what=%s", "x", exc_info=True)
    assert found["exception"].endswith("ValueError: bad")


@pytest.mark.parametrize("formatter", [TEXT, JSONFormatter()], ids=["text", "json"])
def test_line_has_the_ids_of_the_current_span(formatter: logging.Formatter) -> None:
    tracer = TracerProvider().get_tracer("test")
    with tracer.start_as_current_span("work") as span:
        line = logged("route kept topic=%s", "t", formatter=formatter)
    context = span.get_span_context()
    assert f"{context.trace_id:032x}" in line
    assert f"{context.span_id:016x}" in line
    assert "span_id" not in logged("route kept topic=%s", "t", formatter=formatter)


@pytest.mark.parametrize("form", ["route kept topic=%s", "a line of another form: %s"])
def test_line_names_the_member_that_logs_it(form: str) -> None:
    before = logged(form, "t"), in_json(form, "t")
    token = MEMBER.set("broker-a-0")
    try:
        assert logged(form, "t") == before[0].replace("\n", " member=broker-a-0\n")
        found = in_json(form, "t")
        assert found == before[1] | {"member": "broker-a-0", "time": found["time"]}
    finally:
        MEMBER.reset(token)
    assert logged(form, "t") == before[0]


@given(st.text(), st.text())
def test_values_can_be_read_back_from_json_and_end_in_text(one: str, two: str) -> None:
    found = in_json("gone one=%s two=%s", one, two)
    if max(len(one), len(two)) <= VALUE_SIZE_LIMIT:
        assert (found["one"], found["two"]) == (one, two)
    line = logged("gone one=%s two=%s", one, two)
    assert re.fullmatch(
        r'WARNING gone one=(?:[^\s="]+|"(?:[^"\\]|\\.)*") two=(?:[^\s="]+|"(?:[^"\\]|\\.)*")\n',
        line,
    )


@given(st.text())
def test_any_text_takes_one_line(text: str) -> None:
    assert len(logged("%s", text).splitlines()) == 1


def record(
    number: int, *, at: float, line: int = 1, level: int = logging.INFO
) -> logging.LogRecord:
    made = logging.LogRecord("test", level, "here.py", line, "gone client=%d", (number,), None)
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
    assert after.getMessage() == f"gone client=7 unlogged_before={more + 1}"
    next_one = record(8, at=62)
    assert limit.filter(next_one)
    assert next_one.getMessage() == "gone client=8"


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
