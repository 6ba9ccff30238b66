"""Places and times as people write them."""

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketrio.admin.reset_plan import Target
from rocketrio.queue_positions import (
    FIRST,
    LAST,
    MILLISECONDS_MAX,
    MILLISECONDS_MIN,
    AtOffset,
    AtTime,
    FromFirst,
    FromLast,
    Place,
    PlaceRange,
    place_of,
    range_of,
    time_ms_of,
)
from rocketrio_protocol.errors import ConfigError

NOW = 1_795_392_000_000
HOUR = 3_600_000
EIGHT = int(datetime(2026, 11, 21, 8, tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("first", FIRST),
        ("earliest", FIRST),
        ("last", LAST),
        ("latest", LAST),
        ("0", AtOffset(0)),
        ("1204", AtOffset(1204)),
        ("+10", FromFirst(10)),
        ("-10", FromLast(10)),
        ("@0", AtTime(0)),
        (f"@{NOW}", AtTime(NOW)),
        ("@-1h", AtTime(NOW - HOUR)),
        ("@-1h30m", AtTime(NOW - HOUR * 3 // 2)),
        ("@-2d1h1m1s", AtTime(NOW - 49 * HOUR - 61_000)),
        ("@-99999d", AtTime(0)),
        ("@2026-11-21T08:00Z", AtTime(EIGHT)),
        ("@2026-11-21T08:00:00.250+00:00", AtTime(EIGHT + 250)),
        ("@2026-11-21T09:00+01:00", AtTime(EIGHT)),
    ],
)
def test_place(text: str, place: Place) -> None:
    assert place_of(text, NOW) == place
    assert range_of(text, NOW) == PlaceRange(place)


NO_PLACES = [
    *("", "@", "frist", "--1", "+-1", "1.5", "-1h", "1 ", "+", "-", "٣", "9" * 30),
    *("@yesterday", "@-1y", "@1h", "@2026-13-01", "@1", "@0001-01-01"),
]


@pytest.mark.parametrize("text", NO_PLACES)
def test_other_text_is_an_error_that_names_the_forms(text: str) -> None:
    with pytest.raises(ConfigError, match="first, last, N"):
        place_of(text, NOW)


@pytest.mark.parametrize("digits", ["123", "1700000000", "9" * 11, "1" + "0" * 14, "9" * 30])
def test_number_in_another_unit_is_not_a_time(digits: str) -> None:
    for text in (f"@{digits}", f"@{digits}:-1h", f"@-1h:{digits}", f"@{digits}:"):
        with pytest.raises(ConfigError, match=r"in milliseconds since 1970, 12 to 14 digits"):
            range_of(text, NOW)
    with pytest.raises(ConfigError, match=r"in milliseconds since 1970, 12 to 14 digits"):
        place_of(f"@{digits}", NOW)
    with pytest.raises(ConfigError, match=r"in milliseconds since 1970, 12 to 14 digits"):
        time_ms_of(digits, NOW)


def test_seconds_are_named_as_milliseconds() -> None:
    with pytest.raises(ConfigError, match="write these seconds as 1700000000000"):
        place_of("@1700000000", NOW)


@pytest.mark.parametrize("text", ["1970-01-01T00:00:07Z", "1999-12-31T00:00Z", "0"])
def test_written_time_may_be_before_any_cluster(text: str) -> None:
    assert time_ms_of(text, NOW) < MILLISECONDS_MAX


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("2:10", AtOffset(2), AtOffset(10)),
        ("-10:", FromLast(10), LAST),
        (":10", FIRST, AtOffset(10)),
        ("first:+10", FIRST, FromFirst(10)),
        ("-10:last", FromLast(10), LAST),
        ("@-2h:-1h", AtTime(NOW - 2 * HOUR), AtTime(NOW - HOUR)),
        ("@-2h:", AtTime(NOW - 2 * HOUR), LAST),
        ("@:-1h", FIRST, AtTime(NOW - HOUR)),
        (f"@{EIGHT}:{NOW}", AtTime(EIGHT), AtTime(NOW)),
        ("@2026-11-21T08:00Z:2026-11-21T09:00Z", AtTime(EIGHT), AtTime(EIGHT + HOUR)),
        ("@2026-11-21T08:00:00+00:00:-1s", AtTime(EIGHT), AtTime(NOW - 1000)),
        ("@-1h:2999-01-01T00:00Z", AtTime(NOW - HOUR), AtTime(32_472_144_000_000)),
    ],
)
def test_range(text: str, start: Place, end: Place) -> None:
    assert range_of(text, NOW) == PlaceRange(start, end)


@pytest.mark.parametrize("text", ["10:2", "+10:+2", "-2:-10", "@-1h:-2h"])
def test_range_that_ends_before_it_begins_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match="ends before it begins"):
        range_of(text, NOW)


@pytest.mark.parametrize("text", ["a:b", "1:2:3", "@x:y", "@-1h:first", "::"])
def test_other_range_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match="neither a place nor a range"):
        range_of(text, NOW)


PLACES = st.one_of(
    *(st.builds(kind, st.integers(0, (1 << 63) - 1)) for kind in (FromFirst, FromLast, AtOffset)),
    st.builds(AtTime, st.integers(MILLISECONDS_MIN, MILLISECONDS_MAX)),
)


def written(place: Place) -> str:
    match place:
        case FromFirst(messages):
            return f"+{messages}"
        case FromLast(messages):
            return f"-{messages}"
        case AtOffset(offset):
            return str(offset)
        case AtTime(time_ms):
            return f"@{time_ms}"


@given(PLACES)
def test_every_place_can_be_written(place: Place) -> None:
    assert place_of(written(place), NOW) == place


@given(PLACES, PLACES)
def test_every_range_of_one_kind_can_be_written(start: Place, end: Place) -> None:
    is_time = isinstance(start, AtTime)
    if is_time != isinstance(end, AtTime):
        return
    text = f"{written(start)}:{written(end).removeprefix('@')}"
    with suppress(ConfigError):  # It ends before it begins.
        assert range_of(text, NOW) == PlaceRange(start, end)


@given(
    st.datetimes(datetime(1974, 1, 1), datetime(2200, 1, 1)),
    st.integers(-14 * 60, 14 * 60),
    st.sampled_from(["milliseconds", "seconds", "minutes"]),
)
def test_iso_times_with_any_zone(time: datetime, minutes: int, timespec: str) -> None:
    zoned = time.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    text = zoned.isoformat(timespec=timespec)
    expected = int(datetime.fromisoformat(text).timestamp() * 1000)
    assert time_ms_of(text, NOW) == expected
    assert range_of(f"@{text}:{text}", NOW) == PlaceRange(AtTime(expected), AtTime(expected))


@given(st.text(alphabet="0123456789@:+-hmsdTZfirstla .", max_size=20))
def test_any_text_is_a_range_or_a_config_error(text: str) -> None:
    try:
        found = range_of(text, NOW)
    except ConfigError:
        return
    assert isinstance(found, PlaceRange)


@pytest.mark.parametrize("seconds", [1, 1_700_000_000, 10**11 - 1])
@pytest.mark.parametrize("kind", [AtTime, lambda time_ms: Target(time_ms=time_ms)])
def test_programs_give_no_seconds_either(kind: Callable[[int], object], seconds: int) -> None:
    with pytest.raises(ConfigError, match="is not a time: "):
        kind(seconds)
    kind(0)
    kind(10**11)


@pytest.mark.parametrize("text", ["1970-01-01T00:00:01Z", "1972-06-30T00:00Z", "1960-01-01T00:00Z"])
def test_iso_time_before_any_cluster_is_the_first_message(text: str) -> None:
    assert place_of(f"@{text}", NOW) == AtTime(0)
    assert time_ms_of(text, NOW) == 0
