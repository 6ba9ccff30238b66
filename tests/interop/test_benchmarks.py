"""The comparison with the real peers runs, briefly, so that it stays true."""

import pytest

from tests.interop.jars import UnavailableError, apache_jars
from tests.support.benchmarks import figures

TIME_LIMIT = 600

pytestmark = [pytest.mark.interop, pytest.mark.slow]


def _figures(part: str) -> list[dict[str, object]]:
    try:
        apache_jars("5.3.3")
    except UnavailableError as error:
        pytest.skip(str(error))
    lines = figures("peers", part, "--small", time_limit=TIME_LIMIT)
    if "left_out" in lines[0]:
        pytest.skip(str(lines[0]["left_out"]))
    return lines


def _assert_compared(lines: list[dict[str, object]], names: set[str]) -> None:
    assert {str(line["name"]).removeprefix("peers.") for line in lines} == names
    for line in lines:
        ours, theirs = float(str(line["ours"])), float(str(line["theirs"]))
        assert ours > 0
        assert theirs > 0
        assert float(str(line["value"])) == pytest.approx(ours / theirs, rel=0.05)


def test_apache_and_we_do_the_same_work() -> None:
    sending = {
        "send_awaited",
        "send_in_flight_64",
        "send_batched_by_the_client",
        "send_batches_of_100",
    }
    consuming = {
        "consume_one_by_one",
        "consume_batches",
        "consume_columns",
        "consume_columns_of_spark",
        "consume_by_handlers",
    }
    work = sending | consuming
    work |= {f"{name}_on_apache" for name in work}
    work |= {f"{name}_java_on_ours" for name in (*sending, "consume_lite")}
    lines = _figures("rocketmq")
    _assert_compared(lines, work)
    sizes = [line["body"] for line in lines]
    assert sizes == sorted([128, 1024] * len(work))


def test_benchmark_compares_memory_and_start_of_both_products() -> None:
    names = {"resident_idle", "anonymous_idle", "resident_full", "start_to_serving"}
    _assert_compared(_figures("servers"), names)


def test_the_masters_are_compared_alone() -> None:
    _assert_compared(_figures("alone"), {"master_alone"})


def test_both_are_compared_with_the_same_protection() -> None:
    work = ("send_in_flight_64", "send_batches_of_100", "consume_one_by_one")
    protections = ("plain", "access", "tls", "access_and_tls")
    _assert_compared(
        _figures("protected"), {f"{kind}.{name}" for kind in protections for name in work}
    )


def test_synchronous_sends_are_compared() -> None:
    name = "send_synchronous_in_flight_64"
    _assert_compared(_figures("replicated"), {name, f"{name}_on_apache", f"{name}_java_on_ours"})


@pytest.mark.spark
def test_kafka_source_and_ours_read_the_same_rows() -> None:
    lines = _figures("spark")
    _assert_compared(lines, {"spark_aggregate_100", "spark_noop_100"})
    assert len(lines) == 2 * 3
