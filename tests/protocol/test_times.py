"""Times of strangers: any number is a time, or none, and none makes reading or showing fail."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketrio_protocol.times import FIRST_TIME_MS, LAST_TIME_MS, age_ms, nearest_time, time_of

NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-(10**30), 10**30)
ZONES = [UTC, None, timezone(timedelta(hours=14)), timezone(timedelta(hours=-23, minutes=-59))]


@given(NUMBERS, st.sampled_from(ZONES))
def test_any_number_is_a_time_that_every_zone_can_show_or_none(
    number: int, zone: timezone | None
) -> None:
    time, nearest = time_of(number), nearest_time(number)
    assert nearest.astimezone(zone).isoformat(timespec="milliseconds")
    assert (time is None) == (number <= 0 or number > LAST_TIME_MS)
    assert time in (None, nearest)


def test_age_of_what_a_clock_that_is_ahead_stamped_is_0() -> None:
    assert (age_ms(1_000, 3_500), age_ms(3_500, 1_000), age_ms(0.5, 2.0)) == (2_500, 0, 1.5)


@pytest.mark.parametrize("number", [1, 1_700_000_000_123, LAST_TIME_MS])
def test_time_is_exact_to_the_millisecond(number: int) -> None:
    time = time_of(number)
    assert time is not None
    assert (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1) == number


def test_times_out_of_range_are_clamped_where_a_time_must_be() -> None:
    assert nearest_time(2**63 - 1) == nearest_time(LAST_TIME_MS)
    assert nearest_time(-(2**63)) == nearest_time(FIRST_TIME_MS)
    assert nearest_time(0) == datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("number", [0, -1, -(2**63), 1_700_000_000_000_000, 2**63 - 1, 10**20])
def test_what_means_never_or_is_no_time_is_none(number: int) -> None:
    assert time_of(number) is None
