"""Limits the rate of log lines about events that any peer can cause."""

import logging
from typing import Final

import trio

from rocketrio_protocol.log_lines import event_of

PERIOD: Final = 60.0
"""Seconds in which each kind of event is logged once."""

log = logging.getLogger("rocketrio_protocol")


class RareLog:
    """Logs the first event of a kind at once, and later ones once a period, with the number of omitted events."""

    def __init__(self) -> None:
        self._next: dict[str, float] = {}
        self._unlogged: dict[str, int] = {}

    def warning(self, form: str, *values: object) -> None:
        """Log an event; its kind is the words before the first key of `form`."""
        self._log(logging.WARNING, form, values)

    def error(self, form: str, *values: object, exc_info: BaseException | None = None) -> None:
        """Log an event as an error, with the traceback of an exception."""
        self._log(logging.ERROR, form, values, exc_info)

    def _log(
        self,
        level: int,
        form: str,
        values: tuple[object, ...],
        exc_info: BaseException | None = None,
    ) -> None:
        kind = event_of(form)
        now = trio.current_time()
        if now < self._next.get(kind, now):
            self._unlogged[kind] += 1
            return
        count = self._unlogged.get(kind, 0)
        self._next[kind], self._unlogged[kind] = now + PERIOD, 0
        if count:
            form, values = f"{form} unlogged_before=%d", (*values, count)
        log.log(level, form, *values, exc_info=exc_info)
