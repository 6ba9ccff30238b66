"""The benchmark of replication stays true: it runs, small, and prints figures a machine can read."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "bench_replication.py"


@pytest.mark.slow
@pytest.mark.real
def test_prints_replication_beside_a_plain_copy(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARK), "--size", "8", "--folder", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["name"] for line in lines] == ["loopback_copy", "replication"] * 2
    assert all(line["unit"] == "MB/s" and line["value"] > 0 for line in lines)
    assert list(tmp_path.iterdir()) == []
