"""Log lines that hold texts of peers: a record stays one line, and a long text does not fill the disk.

Invariant: whatever a value holds, it begins no line. The lines of a traceback are indented.
Unlike Java: log4j writes line breaks as they come.
"""

import copy
import logging
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, TextIO

VALUE_SIZE_LIMIT: Final = 500
"""Characters of one value, or of one line of a traceback."""
_INDENT: Final = "    "

_ExceptionInfo = (
    tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
)


def log_to(stream: TextIO, *, level: int | str, form: str) -> None:
    """Write the log of this process to `stream`, from `level` up; `form` is that of `logging.Formatter`."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter(form))
    logging.basicConfig(level=level, handlers=[handler])


class LineFormatter(logging.Formatter):
    """Escapes what cannot be printed, line ends above all, and cuts long values."""

    def format(self, record: logging.LogRecord) -> str:
        shown = copy.copy(record)
        if isinstance(record.args, Mapping):
            shown.args = {name: _shown(value) for name, value in record.args.items()}
        elif record.args:
            shown.args = tuple(map(_shown, record.args))
        if record.exc_info:
            shown.exc_text = None  # Another handler may have left one that is not escaped.
        return super().format(shown)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return printable(super().formatMessage(record))

    def formatException(self, ei: _ExceptionInfo) -> str:  # noqa: N802
        lines = super().formatException(ei).split("\n")
        return "\n".join(_INDENT + printable(_cut(line)) for line in lines)


def printable(text: str) -> str:
    """The text with `\\n`, `\\x1b` and the like in place of what is not printed as it is."""
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
    """A value whose text is cut when it is asked for: most records are never written."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    def __str__(self) -> str:
        return _cut(str(self._value))

    def __repr__(self) -> str:
        return _cut(repr(self._value))
