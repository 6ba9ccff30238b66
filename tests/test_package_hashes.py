"""The file of hashes has the pinned version of each package that rocketrio needs (`package_hashes.py`)."""

import re

import pytest

from tests.package_hashes import CONSTRAINTS, FILE, HEAD, requirements

ENTRY = re.compile(
    r"^(?P<name>[\w.-]+)==(?P<version>\S+) \\\n(?P<hashes>(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)",
    re.M,
)


def normal(name: str) -> str:
    """Return a package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_each_version_is_the_pinned_one() -> None:
    pinned = {
        normal(name): version
        for name, version in re.findall(r"^([\w.-]+)==(\S+)$", CONSTRAINTS.read_text(), re.M)
    }
    listed = {normal(entry["name"]): entry["version"] for entry in ENTRY.finditer(FILE.read_text())}
    assert listed
    wrong = {name: version for name, version in listed.items() if pinned.get(name) != version}
    assert not wrong, "run `python -m tests.package_hashes`"


@pytest.mark.parametrize("requirement", requirements())
def test_each_package_that_rocketrio_needs_has_hashes(requirement: str) -> None:
    match = re.match(r"[\w.-]+", requirement)
    assert match is not None
    listed = {normal(entry["name"]) for entry in ENTRY.finditer(FILE.read_text())}
    assert normal(match.group()) in listed


def test_file_has_nothing_but_entries() -> None:
    text = FILE.read_text()
    assert text.startswith(HEAD)
    assert not ENTRY.sub("", text.removeprefix(HEAD))
