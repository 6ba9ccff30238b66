"""The pages that tick what other peers rely on, and what strangers tried, name tests that there are."""

import re
from pathlib import Path

import pytest
from tests.fuzz.targets import TARGETS
from tests.hostile import crowd
from tests.hostile.attacks import ATTACKS

ROOT = Path(__file__).parents[2]
PAGES = {
    name: (ROOT / "docs" / f"{name}-checklist.md").read_text() for name in ("protocol", "hostile")
}
CROWDS = {*crowd.PLAIN, *crowd.OVER_TLS}
TEST_NAME = re.compile(r"def test_(\w+)")


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_the_page_names_exists(page: str) -> None:
    there = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in TEST_NAME.findall(path.read_text())
    }
    there |= CROWDS
    named = set(re.findall(r"(?<![`/\w])[a-z0-9]+(?:_[a-z0-9]+){2,}…?", PAGES[page]))
    assert len(named) > 25
    assert not [
        name for name in named if not any(test.startswith(name.rstrip("…")) for test in there)
    ]


def test_every_item_of_the_checklist_has_a_line() -> None:
    assert not [number for number in range(1, 15) if f"| {number} |" not in PAGES["protocol"]]


def test_every_attack_and_every_fuzz_target_has_its_line() -> None:
    page = PAGES["hostile"]
    assert not [name for name in (*ATTACKS, *CROWDS) if f"*{name}*" not in page]
    assert not [target.name for target in TARGETS if f"`{target.name}`" not in page]
