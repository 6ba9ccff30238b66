"""The benchmark of hand-overs stays true: it runs, small, and prints figures a machine can read."""

from pathlib import Path

import pytest
from tests.support.benchmarks import figures


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.long
def test_prints_how_long_clients_pause(tmp_path: Path) -> None:
    told = figures("hand_over", "--rounds", 1, "--folder", tmp_path)
    lines = {line["name"]: line for line in told}
    assert list(lines) == [
        "load_average",
        "hand_over.writes",
        "hand_over.producer",
        "hand_over.consumer",
        "hand_over.quiet",
    ]
    for what in ("writes", "producer", "consumer"):
        assert lines[f"hand_over.{what}"]["worst"] >= 0
    assert lines["hand_over.quiet"]["messages"] > 0
    assert list(tmp_path.iterdir()) == []
