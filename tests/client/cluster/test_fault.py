"""How long an address that failed is passed over."""

from rocketrio.cluster.fault import AddressFaults


def test_refused_address_is_tried_again_after_a_second() -> None:
    faults = AddressFaults()
    faults.mark("a", now=100.0, spent=0.001)
    assert faults.is_avoided("a", now=100.9)
    assert not faults.is_avoided("a", now=101.0)


def test_silent_address_is_left_alone_for_ten_times_what_it_cost() -> None:
    faults = AddressFaults()
    faults.mark("a", now=100.0, spent=2.0)
    assert faults.is_avoided("a", now=119.9)
    assert not faults.is_avoided("a", now=120.0)


def test_no_failure_counts_for_more_than_half_a_minute() -> None:
    faults = AddressFaults()
    faults.mark("a", now=0.0, spent=20.0)
    assert not faults.is_avoided("a", now=30.0)


def test_cheap_failure_does_not_shorten_a_longer_pause() -> None:
    faults = AddressFaults()
    faults.mark("a", now=0.0, spent=3.0)
    faults.mark("a", now=1.0, spent=0.0)
    assert faults.is_avoided("a", now=29.0)


def test_answer_clears_the_address() -> None:
    faults = AddressFaults()
    faults.mark("a", now=0.0, spent=3.0)
    faults.clear("a")
    assert not faults.is_avoided("a", now=0.0)
    assert not faults.is_avoided("never seen", now=0.0)


def test_failed_address_stays_marked_until_it_answers() -> None:
    faults = AddressFaults()
    assert not faults.is_marked("a")
    faults.mark("a", now=0.0, spent=0.0)
    assert not faults.is_avoided("a", now=100.0)
    assert faults.is_marked("a")
    faults.clear("a")
    assert not faults.is_marked("a")
