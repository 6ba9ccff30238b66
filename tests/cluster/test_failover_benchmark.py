"""The benchmark of lost brokers stays true: it runs, small, and prints figures a machine can read."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "bench_failover.py"


@pytest.mark.slow
@pytest.mark.real
def test_prints_how_long_it_takes_when_a_broker_is_lost(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARK), "--rounds", "1", "--size", "8"]
    done = subprocess.run(
        [*command, "--folder", str(tmp_path)],
        capture_output=True, text=True, timeout=180, check=True,
    )  # fmt: skip
    lines = {line["name"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert list(lines) == [
        "load_average",
        "failover.stop",
        "failover.kill",
        "promotion",
        "rebuild.loopback_copy",
        "rebuild.file_copy",
        "rebuild",
    ]
    assert all(line["value"] > 0 for line in lines.values() if line["unit"] == "s")
    assert lines["failover.stop"]["value"] < 4
    assert lines["rebuild"]["bytes"] >= 8 << 20
    assert list(tmp_path.iterdir()) == []
