from math import inf

import pytest

from rocketrio.routing.replica_views import SmoothedRoundTrips


def test_round_trip_first_measurement_counts_fully_and_later_ones_a_quarter() -> None:
    made = SmoothedRoundTrips()
    assert made.seconds("a") is None
    assert made.age("a", 5.0) == inf
    made.note("a", 0.1, 5.0)
    assert made.seconds("a") == pytest.approx(0.1)
    made.note("a", 0.5, 6.0)
    assert made.seconds("a") == pytest.approx(0.2)
    assert made.age("a", 8.0) == 2.0


def test_round_trip_of_a_forgotten_address_is_measured_again() -> None:
    made = SmoothedRoundTrips()
    made.note("a", 0.1, 5.0)
    made.forget("a")
    made.note("a", 0.5, 6.0)
    assert made.seconds("a") == pytest.approx(0.5)
