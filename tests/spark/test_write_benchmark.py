"""The benchmark of writes runs, briefly and without Spark, so that it stays true."""

import pytest
from tests.support.benchmarks import figures


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.long
def test_write_benchmark_measures_the_encoder_and_one_task() -> None:
    lines = figures("spark_write", "encoder", "task", "--small")
    found = {(line["name"], line["unit"]) for line in lines}
    assert found == {
        ("spark write: encoding", "us CPU/row"),
        ("spark write: one task", "us CPU/row"),
        ("spark write: one task", "rows/s"),
    }
    assert len(lines) == 2 * 3 * 2 + 2 * 3 * 2
    assert all(line["value"] > 0 for line in lines)
