"""Logs refusals of access control: each kind once a minute, and only some kinds a minute.

Invariant: the number of lines a minute, and the memory, do not depend on how many users or addresses a peer invents.
"""

import logging
from typing import Final

import attrs
import trio

from rocketrio_protocol.access.model import NAME_LENGTH_LIMIT

logger = logging.getLogger("rocketrio_broker.access")

PERIOD: Final = 60.0
"""Seconds in which each refusal of one user, address, code and reason is logged once."""
KINDS_LIMIT: Final = 100
"""The most lines in that time."""

_Kind = tuple[str | None, str, str, str]


@attrs.define
class FailureLog:
    """The refusals of the current minute."""

    _began: float | None = None
    _counts: dict[_Kind, int] = attrs.field(factory=dict)
    _unlogged: int = 0

    def note(self, user: str | None, host: str, request: str, reason: str) -> None:
        """Count a refusal, and log it if it is the first of its kind in this minute."""
        now = trio.current_time()
        if self._began is None or now - self._began >= PERIOD:
            self._begin(now)
        # A peer may invent users of any length.
        user = None if user is None else user[:NAME_LENGTH_LIMIT]
        kind = user, host, request, reason
        if kind in self._counts:
            self._counts[kind] += 1
        # A peer can make any number of kinds, each with a line in the log and an entry here.
        elif len(self._counts) < KINDS_LIMIT:
            self._counts[kind] = 1
            logger.warning(
                "refused user=%s from=%s request=%s reason=%s", user, host, request, reason
            )
        else:
            self._unlogged += 1

    def _begin(self, now: float) -> None:
        repeated = sum(self._counts.values()) - len(self._counts)
        if repeated or self._unlogged:
            logger.warning(
                "refusals before repeated=%d other_unlogged=%d", repeated, self._unlogged
            )
        self._began, self._unlogged = now, 0
        self._counts.clear()
