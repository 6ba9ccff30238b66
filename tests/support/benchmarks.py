"""Runs one of the benchmarks, small, so that it stays true; what it printed of failing is the test's failure."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TIME_LIMIT = 180
"""Seconds."""


def figures(
    name: str,
    *arguments: object,
    environment: Mapping[str, str] | None = None,
    time_limit: float = TIME_LIMIT,
) -> list[dict[str, Any]]:
    """The lines of `bench_<name>.py`."""
    done = subprocess.run(
        [sys.executable, BENCHMARKS / f"bench_{name}.py", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=time_limit,
        check=False,
        env={**os.environ, **(environment or {})},
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
