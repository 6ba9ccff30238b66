"""Quantiles, rates and counts of a measurement."""

from hypothesis import given
from hypothesis import strategies as st

from rocketrio.bench.figures import Recorder, due, status_of
from rocketrio_protocol.errors import NotReachableError, SystemBusyError

LATENCIES = st.lists(st.floats(0, 1e6), min_size=1, max_size=300)


@given(LATENCIES)
def test_quantiles_are_in_order(values: list[float]) -> None:
    recorder = Recorder("x")
    recorder.begin(0.0)
    for value in values:
        recorder.add(1.0, value, 1)
    found = recorder.figures()
    assert found.p50 is not None
    assert found.p99 is not None
    assert found.p999 is not None
    assert found.max == max(values)
    assert found.p50 <= found.p99 <= found.p999 <= found.max


def test_nothing_measured_is_unknown_and_not_zero() -> None:
    found = Recorder("x").figures()
    assert (found.p50, found.p99, found.p999, found.max) == (None, None, None, None)
    assert (found.rate, found.bytes_per_second, found.is_whole) == (None, None, False)


def test_messages_that_failed_have_no_latency_and_no_rate_but_are_counted() -> None:
    recorder = Recorder("x")
    recorder.begin(10.0)
    recorder.begin(11.0)
    recorder.add(12.0, 0.5, 300, count=3)
    recorder.fail(14.0, SystemBusyError("busy", code=2), count=2)
    recorder.fail(15.0, NotReachableError("away"))
    found = recorder.figures()
    assert (found.messages, found.bytes, found.errors, found.seconds) == (3, 300, 3, 5.0)
    assert (found.rate, found.bytes_per_second, found.p50) == (0.6, 60.0, 0.5)
    assert found.statuses == {"SEND_OK": 3, "SystemBusyError 2": 2, "NotReachableError": 1}


def test_status_of_an_error_of_no_broker_is_its_class() -> None:
    assert status_of(NotReachableError("away")) == "NotReachableError"


def test_messages_are_due_at_fixed_times() -> None:
    assert [due(5.0, 2.0, number) for number in range(3)] == [5.0, 5.5, 6.0]
    assert due(5.0, None, 3) is None
