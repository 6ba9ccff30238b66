"""The benchmark of the client stays true: it runs, small, and prints figures a machine can read."""

import pytest
from tests.support.benchmarks import figures

SENDS = ["send_1", "send_16", "send_64", "send_batch", "pipeline"]
RECEIVES = ["consume", "consume_batches", "run", "read_arrow", "read_arrow"]


@pytest.mark.slow
@pytest.mark.real
def test_prints_all_figures_for_both_sizes_and_what_is_asked_of_the_small_one() -> None:
    lines = figures("client", "--count", 2000)
    assert [(line["name"], line["size"]) for line in lines] == [
        (f"client.{name}", size) for size in (128, 1024) for name in SENDS + RECEIVES
    ]
    assert all(line["value"] > 0 and line["cpu_us"] > 0 for line in lines)
    asked = {line["name"] for line in lines if "hold" in line}
    assert asked == {
        "client.send_64",
        "client.send_batch",
        "client.pipeline",
        "client.consume",
        "client.consume_batches",
        "client.read_arrow",
    }
    assert all(line["size"] == 128 for line in lines if "hold" in line)


@pytest.mark.slow
@pytest.mark.real
def test_benchmark_of_lag_measures_samples_reports_pages_and_memory() -> None:
    lines = figures("lag", "--topics", 5, "--groups", 20)
    assert [line["name"] for line in lines] == [
        "lag.sample", "lag.once", "lag.page", "lag.page", "lag.page", "lag.exporter", "lag.memory", "lag.judge"
    ]  # fmt: skip
    assert all(line["value"] > 0 for line in lines)
