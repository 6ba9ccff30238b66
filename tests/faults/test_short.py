"""One round of the campaign each, with a fixed seed and without networks of its own: its long form is `make faults`."""

from pathlib import Path

import pytest
from tests.faults.campaign import play
from tests.faults.faults import Mode

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.mark.parametrize(
    ("story", "mode"),
    [
        ("return as master", "money"),
        pytest.param("torn end", "sync-mem", marks=pytest.mark.long),
        pytest.param("set back", "sync-mem", marks=pytest.mark.long),
    ],
)
def test_short_round_of_campaign_breaks_nothing(tmp_path: Path, story: str, mode: Mode) -> None:
    played = play(tmp_path, mode, story, 1, None)
    assert played.problems == [], str(played)
