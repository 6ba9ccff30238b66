"""Delay levels: RocketMQ delays a message by one of the delays in its brokers' list, not by an arbitrary time.

    level  1   2   3    4    5   6   7   8   9  10  11  12  13   14   15   16  17  18
           1s  5s  10s  30s  1m  2m  3m  4m  5m  6m  7m  8m  9m  10m  20m  30m  1h  2h

Invariant: a message is never due sooner than requested: the level is the shortest one that is long enough.
Answers to: messageDelayLevel of MessageStoreConfig, Message.setDelayTimeLevel.
Unlike Java: a time can be given instead of a level; a level beyond the list is refused, where brokers would use their
last one.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from rocketrio.arguments import list_of
from rocketrio_protocol.errors import ConfigError, LocalProtocolError

_SECOND: Final = timedelta(seconds=1)
_MINUTE: Final = timedelta(minutes=1)
_HOUR: Final = timedelta(hours=1)

DELAY_LEVELS: Final = (
    *(_SECOND * seconds for seconds in (1, 5, 10, 30)),
    *(_MINUTE * minutes for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)),
    *(_HOUR * hours for hours in (1, 2)),
)
"""The delays of levels 1 to 18 of a broker with default settings (messageDelayLevel)."""


def level_for(delay: timedelta, levels: Sequence[timedelta] = DELAY_LEVELS) -> int:
    """Return the level of the shortest delay that is at least `delay`; 0 (deliver immediately) for no delay.

    Raises LocalProtocolError for a delay beyond the longest level, because the message would arrive too early. Raises
    ConfigError for a negative delay.
    """
    if not isinstance(delay, timedelta):
        raise ConfigError(f"{delay!r} is neither a timedelta nor a datetime")
    if delay < timedelta(0):
        raise ConfigError(f"a delay of {delay} is negative")
    if not delay:
        return 0
    longest = max(levels)
    if delay > longest:
        raise LocalProtocolError(
            f"a delay of {delay} is longer than the brokers' longest, {longest}",
            remedy="Delay it again when it arrives, or keep it elsewhere until its time is near",
        )
    # By length, and not the first level that is long enough: a broker's list need not rise.
    fitting = [(length, level) for level, length in enumerate(levels, 1) if length >= delay]
    return min(fitting)[1]


def level_until(when: datetime, now_ms: int, levels: Sequence[timedelta] = DELAY_LEVELS) -> int:
    """Return the level after which it is `when` or later, if the time is `now_ms` now; 0 for a time in the past.

    Raises as `level_for`, and ConfigError for a time without a zone.
    """
    if when.tzinfo is None:
        raise ConfigError(f"{when!r} has no time zone")
    return level_for(timedelta(seconds=max(0.0, when.timestamp() - now_ms / 1000)), levels)


def check_levels(levels: Sequence[timedelta]) -> tuple[timedelta, ...]:
    """Return the list as a tuple. Raises ConfigError if it is empty or has a delay that is not positive."""
    list_of(timedelta, "delay_levels", levels)
    if not levels or any(length <= timedelta(0) for length in levels):
        raise ConfigError(f"delay_levels={levels!r} must be positive times, at least one")
    return tuple(levels)


def check_level(level: int, levels: Sequence[timedelta]) -> None:
    """Raise LocalProtocolError for a level beyond the list."""
    if not isinstance(level, int) or isinstance(level, bool) or not 0 <= level <= len(levels):
        raise LocalProtocolError(
            f"delay_level={level!r} must be 0 to {len(levels)}",
            remedy="A level is a number in the brokers' list of delays, not a time: see `Producer.delayed`",
        )
