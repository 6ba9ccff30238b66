"""The benchmarks of columns, of the reader and of streams run, briefly, so that they stay true."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.spark.limits import needs_limits
from tests.support.benchmarks import BENCHMARKS, figures
from tests.support.further import first_of
from tests.support.quick_start import quick_home

TIME_LIMIT = 500
"""Seconds; three minutes were seen on two cores that many shared."""


@pytest.mark.slow
def test_columns_benchmark_measures_views_and_columns() -> None:
    lines = figures("columns", "small")
    assert {"views", "columns", "encode", "check for recovery"} <= {
        str(line["name"]) for line in lines
    }
    assert all(float(str(line["value"])) > 0 and line["unit"] == "ns/message" for line in lines)


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.long
def test_spark_benchmark_measures_the_reader_with_small_and_large_answers() -> None:
    lines = figures("spark", "reader", "--small", time_limit=TIME_LIMIT)
    assert len(lines) == 2 * 2 * 3
    assert {line["name"] for line in lines} == {"reader"}


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.spark
@pytest.mark.long
@needs_limits
def test_stream_benchmark_measures_small_and_large_batches(tmp_path: Path) -> None:
    quick_home(tmp_path)
    lines = figures("spark_stream", "--small", time_limit=TIME_LIMIT)
    found = [(line["name"], line["unit"]) for line in lines]
    floors = [("spark control floor", "ms"), ("spark stream floor", "ms")]
    assert found == floors + [("spark stream", "rows/s")] * 3
    assert all(float(str(line["value"])) > 0 for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("name", first_of(1, ["spark", "spark_stream", "spark_write"]))
def test_help_lists_the_parts_and_measures_nothing(name: str) -> None:
    command = [sys.executable, str(BENCHMARKS / f"bench_{name}.py")]
    told = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True).stdout
    assert "--small" in told
    refused = subprocess.run([*command, "small"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    parts = refused.stderr.partition("no part small; there are ")[2].strip().split(", ")
    assert parts
    assert all(f"\n    {part} " in told for part in parts)
