"""Counts log lines by event and level, so that an alert can name what a log would have to be searched for.

The event is the constant part of a line's form: `consumer offset lowered` of `consumer offset lowered group=%s`. The
forms are in the code, so there are a few hundred at most.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rocketrio_protocol.log_lines import parsed_form

LOGGERS: Final = ("rocketrio_broker", "rocketrio_protocol")
KINDS_LIMIT: Final = 500


class EventCounts(logging.Handler):
    """A handler that only counts. All brokers of a process share the loggers, and so the counts."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._counts: dict[tuple[str, str], int] = {}

    def emit(self, record: logging.LogRecord) -> None:
        key = str(record.msg), record.levelname.lower()
        if key in self._counts or len(self._counts) < KINDS_LIMIT:
            self._counts[key] = self._counts.get(key, 0) + 1

    def by_kind(self) -> Iterator[tuple[tuple[str, str], int]]:
        """Yield each event with its level, and how often it was logged."""
        merged: dict[tuple[str, str], int] = {}
        for (text, level), count in list(self._counts.items()):
            form = parsed_form(text)
            key = "other" if form is None else form[0], level
            merged[key] = merged.get(key, 0) + count
        yield from merged.items()

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Count while the body runs."""
        loggers = [logging.getLogger(name) for name in LOGGERS]
        for logger in loggers:
            logger.addHandler(self)
        try:
            yield
        finally:
            for logger in loggers:
                logger.removeHandler(self)
