"""How people write where in a queue something is, for commands and for options of Spark; as in `rpk topic consume`.

    first, last           the first message that is stored, the end        (also earliest, latest)
    +10, -10              10 messages after the first, before the end
    1204                  this offset
    @TIME                 the first message that was stored then or later
    2:10, @T1:T2, -10:    a range, without its end; a side that is missing is the first or the end of now

TIME is ISO 8601 (`2026-11-21T08:00+01:00`; local time without a zone), milliseconds since 1970, or a time back from now
(`-1h30m`; units d, h, m, s).

Invariant: seconds or microseconds are never taken for milliseconds: that would be January 1970, or the far future.
"""

import re
from datetime import datetime
from typing import Final, TypeAlias

import attrs

from rocketrio_protocol.errors import ConfigError

MILLISECONDS_MIN: Final = 10**11
MILLISECONDS_MAX: Final = 10**14 - 1
"""Other numbers, except for 0, are not times: these reach from 1973, before any cluster, to the year 5138."""
TIME_FORMS: Final = "ISO 8601, milliseconds since 1970 (12 to 14 digits), or a time back as -1h30m"
PLACE_FORMS: Final = (
    "first, last, N, +N after the first, -N before the end, @2026-11-21T08:00+01:00 or @-1h30m"
)
_BACK: Final = re.compile(r"-((?:\d{1,9}[dhms])+)", re.ASCII)
_PART: Final = re.compile(r"(\d+)([dhms])", re.ASCII)
_UNIT_MS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000}
_NUMBER: Final = re.compile(r"\d{1,19}", re.ASCII)
_DIGITS: Final = re.compile(r"\d{3,}", re.ASCII)
"""A number that is not a part of an ISO time after a colon."""
_OFFSET_MAX: Final = (1 << 63) - 1


@attrs.frozen
class FromFirst:
    """A number of messages after the first of a queue."""

    messages: int


@attrs.frozen
class FromLast:
    """A number of messages before the end of a queue."""

    messages: int


@attrs.frozen
class AtOffset:
    """An offset, the same in each queue."""

    offset: int


@attrs.frozen
class AtTime:
    """The first message that was stored then or later."""

    time_ms: int

    def __attrs_post_init__(self) -> None:
        """Raise ConfigError for a number of seconds."""
        check_time_ms("time_ms", self.time_ms)


Place: TypeAlias = FromFirst | FromLast | AtOffset | AtTime
FIRST: Final = FromFirst(0)
LAST: Final = FromLast(0)


@attrs.frozen
class PlaceRange:
    """From one place up to another one, which is not part of it; without one it goes on."""

    start: Place = FIRST
    end: Place | None = None

    def __attrs_post_init__(self) -> None:
        """Raise ConfigError for a range that ends before it begins, whatever a queue holds."""
        match self.start, self.end:
            case (FromFirst(a), FromFirst(b)) | (AtOffset(a), AtOffset(b)) | (AtTime(a), AtTime(b)):
                is_backwards = a > b
            case FromLast(a), FromLast(b):
                is_backwards = a < b
            case _:
                return
        if is_backwards:
            raise ConfigError("the range ends before it begins")


def check_time_ms(argument: str, time_ms: int) -> None:
    """Check a time that a program gives. Raises ConfigError for one before any cluster: it is meant in seconds."""
    if 0 < time_ms < MILLISECONDS_MIN:
        raise ConfigError(
            f"{argument}={time_ms} is not a time: {_wrong_unit(str(time_ms)) or TIME_FORMS}"
        )


def place_of(text: str, now_ms: int) -> Place:
    """Return the place that a text means. Raises ConfigError for any other text."""
    place = _place(text, now_ms)
    if place is None:
        raise ConfigError(f"{text!r} is not a place: {_problem(text)}")
    return place


def range_of(text: str, now_ms: int) -> PlaceRange:
    """Return the range that a text means; one place is the range from there on. Raises ConfigError."""
    whole = _place(text, now_ms)
    if whole is not None:
        return PlaceRange(whole)
    # A time has colons too: the one that leaves two times is the separator.
    for index in [index for index, character in enumerate(text) if character == ":"]:
        left, right = text[:index], text[index + 1 :]
        if left.startswith("@") and right:
            right = f"@{right}"
        start = FIRST if not left.strip("@") else _place(left, now_ms)
        end = LAST if not right else _place(right, now_ms)
        if start is not None and end is not None:
            return PlaceRange(start, end)
    raise ConfigError(f"{text!r} is neither a place nor a range A:B of two: {_problem(text)}")


def time_ms_of(text: str, now_ms: int) -> int:
    """Return the time that a text means, in milliseconds since 1970. Raises ConfigError for any other text."""
    time = _time_ms(text, now_ms)
    if time is None:
        raise ConfigError(f"{text!r} is not a time: {_wrong_unit(text) or TIME_FORMS}")
    return time


def _problem(place: str) -> str:
    return (place.startswith("@") and _wrong_unit(place[1:])) or PLACE_FORMS


def _wrong_unit(times: str) -> str | None:
    """Return what is wrong with a number that is given as a time, or as one of two; None if there is none."""
    for time in times.split(":"):
        if _DIGITS.fullmatch(time):
            is_seconds = len(time) < 12 and int(time) * 1000 >= MILLISECONDS_MIN
            instead = f"; write these seconds as {int(time) * 1000}" if is_seconds else ""
            return f"a time in digits is in milliseconds since 1970, 12 to 14 digits{instead}"
    return None


def _place(text: str, now_ms: int) -> Place | None:
    if text in ("first", "earliest"):
        return FIRST
    if text in ("last", "latest"):
        return LAST
    if text.startswith("@"):
        time = _time_ms(text[1:], now_ms)
        return None if time is None else AtTime(time)
    sign = text[:1] if text[:1] in "+-" else ""
    number = text.removeprefix(sign)
    if not _NUMBER.fullmatch(number) or int(number) > _OFFSET_MAX:
        return None
    if not sign:
        return AtOffset(int(number))
    return FromFirst(int(number)) if sign == "+" else FromLast(int(number))


def _time_ms(text: str, now_ms: int) -> int | None:
    if _NUMBER.fullmatch(text):
        time_ms = int(text)
        return time_ms if time_ms == 0 or MILLISECONDS_MIN <= time_ms <= MILLISECONDS_MAX else None
    back = _BACK.fullmatch(text)
    if back is not None:
        ago = sum(int(number) * _UNIT_MS[unit] for number, unit in _PART.findall(back[1]))
        return _after_all(now_ms - ago)
    try:
        time = datetime.fromisoformat(text)
        time = time if time.tzinfo else time.astimezone()
        return _after_all(int(time.timestamp() * 1000))
    except (ValueError, OverflowError):
        return None


def _after_all(time_ms: int) -> int:
    """Return a time, or 0 for one before any cluster, which is the same place and cannot be taken for seconds."""
    return time_ms if time_ms >= MILLISECONDS_MIN else 0
