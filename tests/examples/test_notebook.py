"""The notebook, run from its first cell to its last in a kernel, as its reader does."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import trio
from tests.examples.programs import EXAMPLES
from tests.support.quick_start import quick_home

NOTEBOOK = EXAMPLES / "flights_in_spark.ipynb"
FLIGHTS = 10_000
TIME_LIMIT = 500.0
CELL_LIMIT = 400
"""Seconds; the first one that wants rows waits for the start of Spark's workers."""


def told(cell: dict[str, Any]) -> str:
    """What a cell printed."""
    outputs = cell["outputs"]
    assert not [output for output in outputs if output["output_type"] == "error"], outputs
    return "".join("".join(output.get("text", ())) for output in outputs)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
async def test_notebook_runs_to_its_end(tmp_path: Path) -> None:
    executed = tmp_path / "executed.ipynb"
    quick_home(tmp_path / "spark")
    variables = {
        **os.environ,
        "IPYTHONDIR": str(tmp_path / "ipython"),
        "TMPDIR": str(tmp_path),
    }
    for name in ("NAMESRV_ADDR", "PYSPARK_PYTHON"):
        variables.pop(name, None)
    with trio.fail_after(TIME_LIMIT):
        done = await trio.run_process(
            [str(Path(sys.executable).with_name("jupyter-execute")), str(NOTEBOOK),
             f"--output={executed}", f"--timeout={CELL_LIMIT}"],
            env=variables,
            cwd=EXAMPLES,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    cells = {cell["id"]: cell for cell in json.loads(executed.read_text())["cells"]}
    said = {name: told(cell) for name, cell in cells.items() if cell["cell_type"] == "code"}
    counts = re.findall(r"\|\s+\d\|\s+(\d+)\|", said["read-code"])
    assert sum(map(int, counts)) == FLIGHTS, said["read-code"]
    by_airport = re.findall(r"\|\s+(EWR|JFK|LGA)\|\s+(\d+)\|", said["columns-code"])
    assert sum(int(flights) for _, flights in by_airport) == FLIGHTS
    assert len(re.findall(r"\|2013-01-0\d", said["stream-code"])) == 5, said["stream-code"]
    assert re.findall(r": (-?\d+)", said["lag-code"].partition("\n")[0]) == ["0"] * len(counts)


def test_notebook_is_kept_without_outputs() -> None:
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
