"""What `make` installs can be installed on every Python that the project names, its first patch release included."""

from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"
PYTHONS = ("3.11.0", "3.11.2", "3.12.0", "3.13.0", "3.14.0")
PINS = [
    Requirement(line)
    for line in CONSTRAINTS.read_text().splitlines()
    if line and not line.startswith("#")
]


def installed(pin: Requirement) -> str | None:
    """Return the Pythons that the package asks for; None if this environment lacks it, or has another version."""
    try:
        found = metadata(pin.name)
    except PackageNotFoundError:
        return None
    is_known = "Requires-Python" in found and pin.specifier.contains(found["Version"])
    return found["Requires-Python"] if is_known else None


@pytest.mark.parametrize("pin", [pin for pin in PINS if installed(pin)], ids=lambda pin: pin.name)
def test_pinned_version_allows_each_python(pin: Requirement) -> None:
    wanted = Requirement(f"python{installed(pin)}").specifier
    assert [python for python in PYTHONS if not wanted.contains(python)] == []
