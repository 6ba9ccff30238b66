"""What `make` installs can be installed on every Python that the project names, its first patch release included."""

from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

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


def test_pinned_versions_allow_each_python() -> None:
    known = {pin.name: found for pin in PINS if (found := installed(pin))}
    assert known
    refused = [
        f"{name} is not for Python {python}"
        for name, found in known.items()
        for python in PYTHONS
        if not Requirement(f"python{found}").specifier.contains(python)
    ]
    assert not refused, refused
