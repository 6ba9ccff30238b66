"""The benchmarks of columns, of the reader and of streams run, briefly, so that they stay true."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"
TIME_LIMIT = 500
"""Seconds; three minutes were seen on two cores that many shared."""


def _figures(name: str, *arguments: str) -> list[dict[str, object]]:
    command = [sys.executable, str(BENCHMARKS / f"bench_{name}.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT, check=False)
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
    lines = _figures("spark", "reader", "--small")
    assert len(lines) == 2 * 2 * 3
    assert {line["name"] for line in lines} == {"reader"}


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.spark
def test_stream_benchmark_measures_small_and_large_batches() -> None:
    lines = _figures("spark_stream", "--small")
    found = [(line["name"], line["unit"]) for line in lines]
    floors = [("spark control floor", "ms"), ("spark stream floor", "ms")]
    assert found == floors + [("spark stream", "rows/s")] * 3
    assert all(float(str(line["value"])) > 0 for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["spark", "spark_stream", "spark_write"])
def test_help_says_which_parts_there_are_and_measures_nothing(name: str) -> None:
    command = [sys.executable, str(BENCHMARKS / f"bench_{name}.py")]
    told = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True).stdout
    assert "--small" in told
    refused = subprocess.run([*command, "small"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    parts = refused.stderr.partition("no part small; there are ")[2].strip().split(", ")
    assert parts
    assert all(f"\n    {part} " in told for part in parts)
