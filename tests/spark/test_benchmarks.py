"""The benchmarks of columns and of the reader run, briefly, so that they stay true."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"


def _figures(name: str, *arguments: str) -> list[dict[str, object]]:
    command = [sys.executable, str(BENCHMARKS / f"bench_{name}.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_columns_benchmark_measures_views_and_columns() -> None:
    lines = _figures("columns", "small")
    assert {"views", "columns", "encode", "check for recovery"} <= {
        str(line["name"]) for line in lines
    }
    assert all(float(str(line["value"])) > 0 and line["unit"] == "ns/message" for line in lines)


@pytest.mark.slow
@pytest.mark.real
def test_spark_benchmark_measures_the_reader_with_small_and_large_answers() -> None:
    lines = _figures("spark", "small", "reader")
    assert len(lines) == 2 * 2 * 3
    assert {line["name"] for line in lines} == {"reader"}
