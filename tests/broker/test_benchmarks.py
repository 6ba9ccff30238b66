"""The benchmarks of the broker and of its store run, briefly, so that they stay true."""

import shutil

import pytest
from tests.support.benchmarks import figures


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.skipif(shutil.which("cc") is None, reason="the load generator is compiled")
def test_broker_benchmark_measures_sends_batches_and_pulls() -> None:
    lines = figures("broker", environment={"BENCH_SCALE": "0.005"})
    measured = {str(line["name"]).split("_")[0] for line in lines}
    assert measured == {"broker.send", "broker.batch", "broker.pull", "broker.resident"}
    assert all(line["value"] > 0 and line.get("failed", 0) == 0 for line in lines)


@pytest.mark.slow
@pytest.mark.real
def test_store_benchmark_measures_appends_reads_and_recovery() -> None:
    lines = figures("store", "--small")
    measured = {str(line["name"]).partition(".")[0] for line in lines}
    assert measured == {"append", "get", "index", "dispatch", "flush", "recover"}
    assert all(line["value"] > 0 for line in lines)


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.long
def test_benchmark_of_many_queues_measures_sends_starts_and_creations() -> None:
    lines = figures("many", "--topics", 110, "--connections", 10)
    measured = {str(line["name"]).split(".")[1] for line in lines}
    assert measured == {"send", "resident", "stop", "start", "topic", "group"}
    assert all(line.get("failed", 0) == 0 for line in lines)


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.long
@pytest.mark.skipif(shutil.which("cc") is None, reason="the load generator is compiled")
def test_benchmark_of_metrics_measures_sends_counting_and_a_page() -> None:
    lines = figures("metrics", "--topics", 20, "--rounds", 1, "--count", 4000)
    measured = {str(line["name"]).split("_")[0] for line in lines}
    assert measured == {"metrics.send", "metrics.count", "metrics.page"}
