"""The page that ticks what other peers rely on names tests that there are."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "protocol-checklist.md").read_text()
TEST_NAME = re.compile(r"def test_(\w+)")


def test_every_test_that_the_page_names_exists() -> None:
    there = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in TEST_NAME.findall(path.read_text())
    }
    named = set(re.findall(r"(?<![`/\w])[a-z0-9]+(?:_[a-z0-9]+){2,}…?", PAGE))
    assert len(named) > 25
    assert not [
        name for name in named if not any(test.startswith(name.rstrip("…")) for test in there)
    ]


def test_every_item_of_the_checklist_has_a_line() -> None:
    assert not [number for number in range(1, 15) if f"| {number} |" not in PAGE]
