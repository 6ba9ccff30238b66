"""Delay levels: RocketMQ delays a message by one of the times in a list that its brokers have, not by any time.

    level  1   2   3    4    5   6   7   8   9  10  11  12  13   14   15   16  17  18
           1s  5s  10s  30s  1m  2m  3m  4m  5m  6m  7m  8m  9m  10m  20m  30m  1h  2h

Invariant: a message is never due sooner than asked: the level is the shortest one that is long enough.
Answers to: messageDelayLevel of MessageStoreConfig, Message.setDelayTimeLevel.
Unlike Java: a time can be given instead of a level; a level that the list lacks is refused, where brokers take their
last one for it.
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
"""What the levels 1 to 18 mean to a broker that was not told otherwise (messageDelayLevel)."""


def level_for(delay: timedelta, levels: Sequence[timedelta] = DELAY_LEVELS) -> int:
    """The level of the shortest delay that is at least `delay`; 0, deliver at once, for none.

    Raises LocalProtocolError for a delay beyond the longest level: the message would come too early. Raises ConfigError
    for a negative one.
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
            f"a delay of {delay}; {longest} is the longest that brokers know",
            remedy="Send it again when it comes, or keep it elsewhere until its time is near",
        )
    fitting = [(length, level) for level, length in enumerate(levels, 1) if length >= delay]
    return min(fitting)[1]


def level_until(when: datetime, now_ms: int, levels: Sequence[timedelta] = DELAY_LEVELS) -> int:
    """The level after which it is `when` or later, if it is `now_ms` now; 0 for a time that is over.

    Raises as `level_for`, and ConfigError for a time without a zone.
    """
    if when.tzinfo is None:
        raise ConfigError(f"{when!r} has no time zone")
    return level_for(timedelta(seconds=max(0.0, when.timestamp() - now_ms / 1000)), levels)


def check_levels(levels: Sequence[timedelta]) -> tuple[timedelta, ...]:
    """The list, if a broker could have it. Raises ConfigError."""
    list_of(timedelta, "delay_levels", levels)
    if not levels or any(length <= timedelta(0) for length in levels):
        raise ConfigError(f"delay_levels={levels!r} must be positive times, at least one")
    return tuple(levels)


def check_level(level: int, levels: Sequence[timedelta]) -> None:
    """Raises LocalProtocolError for a level that the list lacks."""
    if not isinstance(level, int) or isinstance(level, bool) or not 0 <= level <= len(levels):
        raise LocalProtocolError(
            f"delay_level={level!r} is none of 0 to {len(levels)}",
            remedy="A level is a number in the brokers' list of delays, not a time: see `Producer.delayed`",
        )
