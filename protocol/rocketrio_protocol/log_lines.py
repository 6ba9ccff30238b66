"""Formats log records that may contain text from peers, and limits how many are written.

Invariant: no value can begin a new line, whatever it contains. The lines of a traceback are indented.
Invariant: one place in the code writes at most LINES_A_MINUTE, however many clients come and go.
Unlike Java: log4j writes line breaks unescaped.
"""

import copy
import logging
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, TextIO

VALUE_SIZE_LIMIT: Final = 500
"""Characters of one value or of one line of a traceback; the rest is cut."""
LINES_A_MINUTE: Final = 200
"""Lines of one place in the code at INFO and above; DEBUG lines are not limited."""
_PERIOD: Final = 60.0
_INDENT: Final = "    "

_ExceptionInfo = (
    tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
)


def log_to(stream: TextIO, *, level: int | str, form: str) -> None:
    """Write the log of this process to `stream`, from `level` up; `form` is a format of `logging.Formatter`."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter(form))
    handler.addFilter(LineLimit())
    logging.basicConfig(level=level, handlers=[handler])


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
                record.msg = f"{record.msg} unlogged_before={count - LINES_A_MINUTE}"
            began, count = now, 0
        self._minutes[place] = began, count + 1
        return count < LINES_A_MINUTE


class LineFormatter(logging.Formatter):
    """Escapes line ends and other characters that cannot be printed, and cuts long values."""

    def format(self, record: logging.LogRecord) -> str:
        shown = copy.copy(record)
        if isinstance(record.args, Mapping):
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


def printable(text: str) -> str:
    """Return the text with `\\n`, `\\x1b` and the like in place of characters that cannot be printed."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


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
