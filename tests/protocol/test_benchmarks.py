"""The benchmarks of this room run, briefly, so that they stay true."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"


def figures(name: str, size: str) -> list[dict[str, object]]:
    done = subprocess.run(
        [sys.executable, BENCHMARKS / f"bench_{name}.py", size],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_codec_benchmark_measures_every_header_in_every_encoding() -> None:
    measured = {
        (line["header"], line["encoding"])
        for line in figures("codec", "5")
        if line["name"] == "codec.frame_decode"
    }
    assert len(measured) == 4 * 3


@pytest.mark.slow
@pytest.mark.real
def test_remoting_benchmark_measures_both_sides() -> None:
    lines = figures("remoting", "0.05")
    assert {str(line["name"]).rpartition(".")[2] for line in lines} == {
        "rate",
        "client_cpu",
        "server_cpu",
    }
    assert all(float(str(line["value"])) > 0 for line in lines if "rate" in str(line["name"]))
