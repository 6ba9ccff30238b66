"""The benchmark of hand-overs stays true: processes change places under load, and clients go on within a second."""

from pathlib import Path

import pytest
from tests.support.benchmarks import figures


@pytest.mark.slow
@pytest.mark.real
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
        assert 0 < lines[f"hand_over.{what}"]["worst"] < 1
    assert lines["hand_over.quiet"]["messages"] > 500
    assert list(tmp_path.iterdir()) == []
