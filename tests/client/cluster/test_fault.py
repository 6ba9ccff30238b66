"""How long an address that failed is passed over."""

import attrs
import pytest

from rocketrio.cluster.fault import AddressFaults


@attrs.define
class Time:
    """Stands still until a test sets it."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def faults(time: Time) -> AddressFaults:
    return AddressFaults(time)


@pytest.mark.parametrize(
    ("spent", "avoided_for"), [(0.0, 1.0), (0.001, 1.0), (2.0, 20.0), (20.0, 30.0)]
)
def test_failed_address_is_avoided_for_ten_times_what_it_cost_a_second_at_least_and_30_at_most(
    faults: AddressFaults, time: Time, spent: float, avoided_for: float
) -> None:
    time.now = 100.0
    faults.mark("a", spent=spent)
    time.now = 100.0 + avoided_for - 0.1
    assert faults.is_avoided("a")
    time.now = 100.0 + avoided_for
    assert not faults.is_avoided("a")


def test_cheap_failure_does_not_shorten_a_longer_pause(faults: AddressFaults, time: Time) -> None:
    faults.mark("a", spent=3.0)
    time.now = 1.0
    faults.mark("a", spent=0.0)
    time.now = 29.0
    assert faults.is_avoided("a")


def test_answer_clears_the_address(faults: AddressFaults) -> None:
    faults.mark("a", spent=3.0)
    faults.clear("a")
    assert not faults.is_avoided("a")
    assert not faults.is_avoided("never seen")


def test_failed_address_stays_marked_until_it_answers(faults: AddressFaults, time: Time) -> None:
    assert not faults.is_marked("a")
    faults.mark("a", spent=0.0)
    time.now = 100.0
    assert not faults.is_avoided("a")
    assert faults.is_marked("a")
    faults.clear("a")
    assert not faults.is_marked("a")
