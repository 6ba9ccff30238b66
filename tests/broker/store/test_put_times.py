"""Times of puts in the form in which Apache's brokers report them."""

import re

import pytest
from tests.golden.reported_keys import RUNTIME

from rocketrio_broker.store.put_times import PutTimes

RANGES = [
    "<=0ms", "0~10ms", "10~50ms", "50~100ms", "100~200ms", "200~500ms", "500ms~1s", "1~2s", "2~3s", "3~4s", "4~5s",
    "5~10s", "10s~",
]  # fmt: skip


def distribution(times: PutTimes) -> dict[str, int]:
    text = times.runtime_info()["putMessageDistributeTime"]
    assert re.fullmatch(RUNTIME["putMessageDistributeTime"], text)
    return {name: int(count) for name, count in re.findall(r"\[(.+?)\]:(\d+) ", text)}


@pytest.mark.parametrize(
    ("seconds", "name"),
    [
        (-1.0, "<=0ms"), (0.0, "<=0ms"), (0.00099, "<=0ms"), (0.001, "0~10ms"), (0.0099, "0~10ms"),
        (0.0101, "10~50ms"), (0.0499, "10~50ms"), (0.0501, "50~100ms"), (0.1001, "100~200ms"),
        (0.201, "200~500ms"), (0.501, "500ms~1s"), (1.001, "1~2s"), (3.5, "3~4s"), (9.99, "5~10s"),
        (10.5, "10s~"), (3600.0, "10s~"),
    ],
)  # fmt: skip
def test_time_counts_in_its_range_once_the_minute_is_over(seconds: float, name: str) -> None:
    times = PutTimes()
    times.add(seconds)
    times.end_minute()
    assert distribution(times) == {**dict.fromkeys(RANGES, 0), name: 1}


def test_minute_that_is_not_over_is_not_reported() -> None:
    times = PutTimes()
    times.add(0.02)
    assert times.runtime_info()["putMessageDistributeTime"] == "null"
    times.end_minute()
    assert sum(distribution(times).values()) == 1
    times.end_minute()
    assert sum(distribution(times).values()) == 0


def test_longest_is_that_since_the_start_and_percentiles_those_of_the_minute() -> None:
    times = PutTimes()
    for _ in range(985):
        times.add(0.0001)
    for _ in range(15):
        times.add(0.0305)
    times.add(2.5)
    times.end_minute()
    info = times.runtime_info()
    assert info["putMessageEntireTimeMax"] == "2500"
    assert 30.0 <= float(info["putLatency99"]) <= 32.0
    assert 30.0 <= float(info["putLatency999"]) <= 32.0
    for _ in range(100):
        times.add(0.0305)
    times.end_minute()
    times.end_minute()
    info = times.runtime_info()
    assert (info["putMessageEntireTimeMax"], info["putLatency99"]) == ("2500", "-1.00")


def test_percentile_of_puts_without_a_wait_is_below_a_millisecond() -> None:
    times = PutTimes()
    for _ in range(10):
        times.add(0.00001)
    times.end_minute()
    assert 0 < float(times.runtime_info()["putLatency999"]) <= 1.0
