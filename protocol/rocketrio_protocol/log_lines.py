"""Writes log records as lines of text or JSON, quotes what comes from peers, and limits how many lines there are.

    logger.warning("slave stays behind slave=%s bytes=%d", addr, 81920)

    ... WARNING rocketrio_broker.ha slave stays behind slave=10.0.0.2:10912 bytes=81920
    {"time": ..., "level": "WARNING", "logger": ..., "event": "slave stays behind", "slave": ..., "bytes": 81920}

Every line of rocketrio has this form: the event in constant words, then `key=%s` for each value. `tests/test_events.py`
checks it.

Invariant: no value can begin a new line or a new field, whatever it contains. The lines of a traceback are indented.
Invariant: one place in the code writes at most LINES_A_MINUTE, however many clients come and go.
Unlike Java: log4j writes line breaks unescaped.
"""

import copy
import json
import logging
import math
import re
import sys
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from functools import lru_cache
from types import TracebackType
from typing import Any, Final, Literal, TextIO, TypeAlias

from rocketrio_protocol.times import nearest_time

VALUE_SIZE_LIMIT: Final = 500
"""Characters of one value or of one line of a traceback; the rest is cut."""
LINES_A_MINUTE: Final = 200
"""Lines of one place in the code at INFO and above; DEBUG lines are not limited."""
RESERVED_KEYS: Final = frozenset({"time", "level", "logger", "event", "exception"})
"""Keys of a JSON line that no value may have."""
_PERIOD: Final = 60.0
_INDENT: Final = "    "
_FORMS_KEPT: Final = 1024  # the forms are in the code
_FIELD: Final = re.compile(r" ([a-z_]+)=(%[-+ 0#]*\d*(?:\.\d+)?[a-zA-Z])")
_FORM: Final = re.compile(rf"([^=%\n]+?)((?:{_FIELD.pattern})*)")
_PLAIN: Final = re.compile(r'[^\s="]+')
_STEERING: Final = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ufeff\\ud800-\\udfff]"
)
"""Control characters but for line ends and tabs, what turns the direction of writing, and halves of characters."""

LogFormat: TypeAlias = Literal["text", "json"]
_ExceptionInfo = (
    tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
)


def log_to(stream: TextIO, *, level: int | str, form: str, log_format: LogFormat = "text") -> None:
    """Write the log of this process to `stream`, from `level` up; `form` is a text format of `logging.Formatter`."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JSONFormatter() if log_format == "json" else LineFormatter(form))
    handler.setLevel(level)
    handler.addFilter(LineLimit())
    logging.basicConfig(level=level, handlers=[handler])


@lru_cache(_FORMS_KEPT)
def parsed_form(form: str) -> tuple[str, tuple[tuple[str, str], ...]] | None:
    """Return the event of a form, and each key with its placeholder; None if it is not of the form of rocketrio."""
    found = _FORM.fullmatch(form)
    return None if found is None else (found[1], tuple(_FIELD.findall(found[2])))


def event_of(form: str) -> str:
    """Return the event of a line's form: the words before its first key."""
    return re.split(r" [a-z_]+=", form, maxsplit=1)[0]


def fields_of(record: logging.LogRecord) -> tuple[str, list[tuple[str, str, Any]]] | None:
    """Return the event of a record, and key, placeholder and value of each field; None if it has another form."""
    found = parsed_form(record.msg) if isinstance(record.msg, str) else None
    args = record.args if isinstance(record.args, tuple) else ()
    if found is None or len(found[1]) != len(args):
        return None
    event, keys = found
    return event, [(key, spec, arg) for (key, spec), arg in zip(keys, args, strict=True)]


def rounded(number: float | None) -> int | None:
    """Return a number for a line without its fraction; None if it is unknown."""
    return None if number is None else round(number)


def json_value(spec: str, value: Any) -> Any:
    """Return a number, a bool or None as it is, but with the digits that a line shows, and anything else as text."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return int(value) if spec[-1] == "d" else value if spec[-1] in "sr" else float(spec % value)
    return _cut(spec % (value,))


def _span_fields() -> Iterator[tuple[str, str]]:
    """Yield the ids of the current OpenTelemetry span, if the program uses OpenTelemetry and there is one."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is not None:
        context = trace.get_current_span().get_span_context()
        if context.is_valid:
            yield "trace_id", f"{context.trace_id:032x}"
            yield "span_id", f"{context.span_id:016x}"


MEMBER: Final[ContextVar[str | None]] = ContextVar("member", default=None)
"""Which of several servers in this process runs; tasks and threads inherit it from those that start them."""


def _context_fields() -> Iterator[tuple[str, str]]:
    """Yield the fields of every line: the member that logs it, where a process has several, and its span."""
    member = MEMBER.get()
    if member is not None:
        yield "member", member
    yield from _span_fields()


class LineLimit(logging.Filter):
    """Omits the lines of a place beyond LINES_A_MINUTE; the first line after that minute says how many."""

    def __init__(self) -> None:
        super().__init__()
        self._minutes: dict[tuple[str, int], tuple[float, int]] = {}
        """Of each place: when its minute began, and how many lines it has had since."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.INFO:
            return True
        place, now = (record.pathname, record.lineno), record.created
        began, count = self._minutes.get(place, (now, 0))
        if not 0 <= now - began < _PERIOD:
            if count > LINES_A_MINUTE:
                add_field(record, "unlogged_before", count - LINES_A_MINUTE)
            began, count = now, 0
        self._minutes[place] = began, count + 1
        return count < LINES_A_MINUTE


def add_field(record: logging.LogRecord, key: str, number: int) -> None:
    """Add a number to the end of a record's line."""
    if isinstance(record.args, tuple):
        record.msg, record.args = f"{record.msg} {key}=%d", (*record.args, number)
    else:
        record.msg = f"{record.msg} {key}={number}"


class LineFormatter(logging.Formatter):
    """Writes text. It quotes values with blanks, escapes what cannot be printed, and cuts long values."""

    def format(self, record: logging.LogRecord) -> str:
        shown = copy.copy(record)
        found = fields_of(record)
        if found is not None:
            event, fields = found
            texts = [(key, _cut(spec % (value,))) for key, spec, value in fields]
            texts += _context_fields()
            shown.msg = " ".join((event, *(f"{key}=%s" for key, _ in texts)))
            shown.args = tuple(quoted(text) for _, text in texts)
        elif (member := MEMBER.get()) is not None:  # The line of another program's library.
            shown.msg, shown.args = f"{_cut(record.getMessage())} member={quoted(member)}", ()
        elif isinstance(record.args, Mapping):
            shown.args = {name: _shown(value) for name, value in record.args.items()}
        elif record.args:
            shown.args = tuple(map(_shown, record.args))
        if record.exc_info:
            shown.exc_text = None  # Another handler may have cached an unescaped traceback.
        return super().format(shown)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return printable(super().formatMessage(record))

    def formatException(self, ei: _ExceptionInfo) -> str:  # noqa: N802
        lines = super().formatException(ei).split("\n")
        return "\n".join(_INDENT + printable(_cut(line)) for line in lines)


class JSONFormatter(logging.Formatter):
    """Writes one JSON object a line: the event, and its values under their keys."""

    def format(self, record: logging.LogRecord) -> str:
        found = fields_of(record)
        event, fields = found if found is not None else (_cut(record.getMessage()), [])
        when = nearest_time(round(record.created * 1000))
        line = {
            "time": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "event": event,
            **{key: json_value(spec, value) for key, spec, value in fields},
            **dict(_context_fields()),
        }
        if record.exc_info:
            lines = self.formatException(record.exc_info).split("\n")
            line["exception"] = "\n".join(map(_cut, lines))
        return json.dumps(line)


def printable(text: str) -> str:
    """Return the text with `\\n`, `\\x1b` and the like in place of characters that cannot be printed."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def visible(text: str) -> str:
    """Return the text with its line ends and tabs, and `\\x1b` and the like for all that steers a terminal.

    Unlike `printable` it keeps blanks of other scripts and what joins letters and emoji: for texts of many lines.
    """
    return _STEERING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def visible_json(text: str) -> str:
    """Return JSON, or a text of TOML, in which what steers a terminal is escaped; it means the same."""
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def quoted(text: str) -> str:
    """Return a value as it stands in a line: in quotes if it is not one word, so that fields end where they end."""
    if _PLAIN.fullmatch(text) and text.isprintable():
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{printable(escaped)}"'


def _cut(text: str) -> str:
    if len(text) <= VALUE_SIZE_LIMIT:
        return text
    return f"{text[:VALUE_SIZE_LIMIT]}... ({len(text)} characters)"


def _shown(value: Any) -> Any:
    return value if isinstance(value, int | float) else _Shown(value)


class _Shown:
    """Wraps a value and cuts its text only when it is formatted, because most records are never written."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    def __str__(self) -> str:
        return _cut(str(self._value))

    def __repr__(self) -> str:
        return _cut(repr(self._value))
