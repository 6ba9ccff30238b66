"""The benchmark of replication stays true: it runs, small, and prints figures a machine can read."""

import shutil
from pathlib import Path

import pytest
from tests.support.benchmarks import figures


@pytest.mark.slow
@pytest.mark.real
def test_prints_replication_beside_a_plain_copy(tmp_path: Path) -> None:
    lines = figures("replication", "--size", 8, "--folder", tmp_path)
    assert [line["name"] for line in lines] == ["loopback_copy", "replication"] * 2
    assert all(line["unit"] == "MB/s" and line["value"] > 0 for line in lines)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.skipif(shutil.which("cc") is None, reason="the load generator is compiled")
@pytest.mark.long
@pytest.mark.parametrize("by", ["load", "client"])
def test_holds_synchronous_sends_against_asynchronous_ones(by: str) -> None:
    *kinds, ratio = figures(
        "synchronous", "--rounds", 1, "--only", f"{by}.single_16",
        environment={"BENCH_SCALE": "0.05"},
    )  # fmt: skip
    assert [kind["name"] for kind in kinds] == [
        f"{by}.async-master.single_16",
        f"{by}.sync-master.single_16",
    ]
    assert all(kind["failed"] == 0 and kind["value"] > 0 for kind in kinds)
    assert ratio["name"] == f"{by}.sync_of_async.single_16"
