"""The benchmark of lost brokers stays true: it runs, small, and prints figures a machine can read."""

from pathlib import Path

import pytest
from tests.support.benchmarks import figures


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.long
def test_prints_how_long_it_takes_when_a_broker_is_lost(tmp_path: Path) -> None:
    told = figures("failover", "--rounds", 1, "--size", 8, "--folder", tmp_path)
    lines = {line["name"]: line for line in told}
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
    assert lines["rebuild"]["bytes"] >= 8 << 20
    assert list(tmp_path.iterdir()) == []
