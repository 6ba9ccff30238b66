"""How bad a number is: how thresholds judge it, and those with which `rocketrio check` begins.

The diagnosis judges by two of them too. They stand outside of `rocketrio.admin` because help texts name them, and a
help text does not import the client.
"""

from enum import IntEnum, StrEnum
from typing import Final

import attrs


class Severity(StrEnum):
    """How bad a finding is."""

    WARNING = "warning"
    ERROR = "error"


class Status(IntEnum):
    """The status of a check; the number is the exit code."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


@attrs.frozen
class Limits:
    """From which value on a number is a warning, and from which it is critical: an error.

    If `critical` is below `warning`, small numbers are bad: a value at or below a limit reaches it.
    """

    warning: float
    critical: float

    def status(self, value: float | None) -> Status:
        """Return the status of a value; one that no broker reported is unknown."""
        if value is None:
            return Status.UNKNOWN
        sign = -1 if self.critical < self.warning else 1
        if sign * value >= sign * self.critical:
            return Status.CRITICAL
        return Status.WARNING if sign * value >= sign * self.warning else Status.OK

    def __str__(self) -> str:
        """Return them as users write them: `10:60`."""
        return f"{self.warning:g}:{self.critical:g}"


SECONDS_BEHIND: Final = Limits(10, 60)
"""How far behind a slave is a warning, and how far an error."""
DISK_PERCENT: Final = Limits(75, 85)
"""How full a disk is a warning, and how full an error: at 85 % brokers delete log files early, or refuse messages."""
SEND_WAIT: Final = Limits(100, 500)
"""Milliseconds that the first waiting send has waited."""
GIVEN_UP: Final = Limits(1, 100)
"""Transactions that no producer decided."""
DEAD_LETTERS: Final = Limits(1, 100)
CERTIFICATE_DAYS: Final = Limits(30, 7)
ROUNDTRIP_MS: Final = Limits(200, 1000)
