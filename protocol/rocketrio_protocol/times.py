"""Moments from milliseconds since 1970, as servers, clients and messages have them.

A stranger may write any number, also one of microseconds, so no number makes these functions fail. ruff's list of
banned functions (pyproject.toml) has `datetime.fromtimestamp`, which does.
"""

from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_DAY: Final = timedelta(days=1)
FIRST_TIME_MS: Final = (datetime.min.replace(tzinfo=UTC) + _DAY - _EPOCH) // _MILLISECOND
"""The earliest time that a datetime holds in every time zone, in epoch ms."""
LAST_TIME_MS: Final = (datetime.max.replace(tzinfo=UTC) - _DAY - _EPOCH) // _MILLISECOND
"""The latest one."""

Number = TypeVar("Number", int, float)


def time_of(milliseconds: int) -> datetime | None:
    """Return the time that a peer reports; None for 0 and -1, which mean never, and for what no datetime holds."""
    return nearest_time(milliseconds) if 0 < milliseconds <= LAST_TIME_MS else None


def nearest_time(milliseconds: int) -> datetime:
    """Return the time, clamped to the range of datetime: of this process's clock, or where a time must be."""
    return _EPOCH + timedelta(milliseconds=min(max(milliseconds, FIRST_TIME_MS), LAST_TIME_MS))


def age_ms(then_ms: Number, now_ms: Number) -> Number:
    """Return how long ago a time was; 0 for one that is still to come, by a clock that is ahead of this one."""
    return max(0, now_ms - then_ms)
