"""The benchmark of writes runs, briefly and without Spark, so that it stays true."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "bench_spark_write.py"


@pytest.mark.slow
@pytest.mark.real
def test_write_benchmark_measures_the_encoder_and_one_task() -> None:
    command = [sys.executable, str(BENCHMARK), "encoder", "task", "--small"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    found = {(line["name"], line["unit"]) for line in lines}
    assert found == {
        ("spark write: encoding", "us CPU/row"),
        ("spark write: one task", "us CPU/row"),
        ("spark write: one task", "rows/s"),
    }
    assert len(lines) == 2 * 3 * 2 + 2 * 3 * 2
    assert all(line["value"] > 0 for line in lines)
