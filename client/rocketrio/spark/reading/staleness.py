"""The option `maxStaleness`: how far a slave may be behind its master and still be read. Pure.

    10000 messages    the master's end of the queue, as it last reported it, less the slave's
    5s, 500ms, 2min   since the slave last had everything that its master had, as slaves of rocketrio report

Invariant: an unknown staleness counts as too large.
"""

import re
from typing import Final

import attrs

from rocketrio.routing.replica_views import ReplicaViews
from rocketrio.spark.errors import OptionError
from rocketrio.spark.option_values import shown

_UNITS: Final = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0}
_TEXT: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*(messages?|ms|s|min|h)")


@attrs.frozen
class MaxStaleness:
    """A bound in messages or in seconds."""

    messages: int | None = None
    seconds: float | None = None

    def allows(self, views: ReplicaViews, broker_id: int, now: float) -> bool:
        """Return True if a replica is known to be within the bound; the master always is."""
        if self.messages is not None:
            messages = views.staleness_messages(broker_id, now)
            return messages is not None and messages <= self.messages
        seconds = views.staleness(broker_id, now)
        return seconds is not None and self.seconds is not None and seconds <= self.seconds

    def __str__(self) -> str:
        return f"{self.seconds:g}s" if self.messages is None else f"{self.messages} messages"


def parse_max_staleness(text: str, *, option: str) -> MaxStaleness:
    """Parse the bound that a user wrote. Raises OptionError."""
    match = _TEXT.fullmatch(text.strip().lower())
    number, unit = match.groups() if match is not None else ("", "")
    if unit.startswith("message") and "." not in number:
        return MaxStaleness(messages=int(number))
    if unit in _UNITS and float(number) > 0:
        return MaxStaleness(seconds=float(number) * _UNITS[unit])
    raise OptionError(
        f"{option}={shown(text)} is neither a number of messages (`10000 messages`)"
        f" nor a time above 0 (`5s`; units are {', '.join(_UNITS)})"
    )
