"""Check the house rules that a reader relies on: which package may import which, and a file map without ghosts.

The table is that of docs/ARCHITECTURE.md; move a line of it by a decision record, not by an exception here.
"""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from tests.support.sources import ROOT, parsed, source_files, source_of


@attrs.frozen
class Room:
    """Files under `path` (but for `but`) may not import modules that start with one of `forbidden`."""

    path: str
    forbidden: tuple[str, ...]
    but: tuple[str, ...] = ()


BROKER, CLIENT, PROTOCOL = "rocketrio_broker", "rocketrio", "rocketrio_protocol"
CLOCKS_AND_SOCKETS = ("socket", "select", "ssl", "threading", "time", "asyncio")
ROOMS = (
    Room(
        f"protocol/{PROTOCOL}",
        ("trio", BROKER, CLIENT, "pyspark", *CLOCKS_AND_SOCKETS),
        but=(f"protocol/{PROTOCOL}/remoting",),
    ),
    Room(f"protocol/{PROTOCOL}/remoting", (BROKER, CLIENT, "pyspark")),
    Room(
        f"client/{CLIENT}",
        (BROKER, "pyspark"),
        but=(f"client/{CLIENT}/spark", f"client/{CLIENT}/testing"),
    ),
    Room(f"client/{CLIENT}", (f"{CLIENT}.testing",), but=(f"client/{CLIENT}/testing",)),
    Room(f"client/{CLIENT}/spark", (BROKER,)),
    Room(
        f"client/{CLIENT}/routing",
        (f"{CLIENT}.consuming", f"{CLIENT}.producing", f"{CLIENT}.admin"),
    ),
    Room(f"client/{CLIENT}/consuming", (f"{CLIENT}.admin",)),
    Room(f"client/{CLIENT}/producing", (f"{CLIENT}.admin", f"{CLIENT}.consuming")),
    Room(f"broker/{BROKER}", (CLIENT, "pyspark")),
    Room(
        f"broker/{BROKER}",
        (f"{BROKER}.testing",),
        but=(f"broker/{BROKER}/embedded.py", f"broker/{BROKER}/testing"),
    ),
    Room(
        f"broker/{BROKER}/access",
        (
            f"{BROKER}.state",
            f"{BROKER}.ha",
            f"{BROKER}.processors",
            f"{BROKER}.broker",
            f"{BROKER}.embedded",
        ),
    ),
    Room(
        f"broker/{BROKER}/store",
        (
            f"{BROKER}.state",
            f"{BROKER}.ha",
            f"{BROKER}.processors",
            f"{BROKER}.broker",
            f"{BROKER}.embedded",
        ),
    ),
    Room(
        f"broker/{BROKER}/ha",
        (f"{BROKER}.processors", f"{BROKER}.broker", f"{BROKER}.embedded"),
    ),
    Room(
        f"broker/{BROKER}/transaction",
        (
            f"{BROKER}.state",
            f"{BROKER}.ha",
            f"{BROKER}.processors",
            f"{BROKER}.broker",
            f"{BROKER}.embedded",
        ),
    ),
    Room(
        f"broker/{BROKER}/state.py",
        (f"{BROKER}.processors", f"{BROKER}.broker", f"{BROKER}.embedded", f"{BROKER}.cli"),
    ),
    Room(
        f"broker/{BROKER}/metrics",
        (f"{BROKER}.processors", f"{BROKER}.broker", f"{BROKER}.embedded", f"{BROKER}.cli"),
    ),
    Room(
        f"broker/{BROKER}/processors",
        (f"{BROKER}.broker", f"{BROKER}.embedded", f"{BROKER}.cli"),
    ),
)


def imported_modules(path: Path) -> Iterator[tuple[int, str]]:
    for line, module in source_of(path).imports:
        assert not module.startswith("."), f"{path}:{line}: import in full, not relatively"
        yield line, module


def starts_with(module: str, prefix: str) -> bool:
    return module == prefix or module.startswith(prefix + ".")


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: f"{room.path}-{room.forbidden[0]}")
def test_room_imports_only_what_it_may(room: Room) -> None:
    wrong = []
    for path in source_files(ROOT / room.path):
        if any(path.is_relative_to(ROOT / other) for other in room.but):
            continue
        wrong += [
            f"{path.relative_to(ROOT)}:{line} imports {module}"
            for line, module in imported_modules(path)
            if any(starts_with(module, prefix) for prefix in room.forbidden)
        ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("folder", ["protocol", "broker", "client"])
def test_every_module_has_a_docstring_with_its_purpose(folder: str) -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in source_files(ROOT / folder)
        if not source_of(path).docstring
    ]
    assert not silent, silent


def is_from_a_test_file(module: str) -> bool:
    """Say whether this is a test file, or a name of one that is not a test: those are played again elsewhere."""
    *parents, name = module.split(".")
    if any(part.startswith("test_") for part in parents):
        return not name.startswith("test_")
    return (
        name.startswith("test_") and (ROOT / module.replace(".", "/")).with_suffix(".py").exists()
    )


MAY_IMPORT_A_TEST_FILE = re.compile(r"^\s*(?:from|import) (?:.*\btest_|tests\b.*\($)", re.MULTILINE)
"""Few files match; to parse the others would take seconds."""


@pytest.mark.parametrize("folder", ["tests", "benchmarks", "examples"])
def test_no_file_imports_from_a_test_file_but_tests_to_play_again(folder: str) -> None:
    """What test files share lies in a file of their folder that says what it holds, or in tests/support."""
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path in source_files(ROOT / folder)
        if MAY_IMPORT_A_TEST_FILE.search(path.read_text())
        for line, module in imported_modules(path)
        if is_from_a_test_file(module)
    ]
    assert not wrong, "\n".join(wrong)


FOLDERS = ("protocol", "broker", "client", "tests", "benchmarks", "examples", "docs", "monitoring")
NAME_OF_A_FILE = re.compile(r"(?:(?<=…/)|(?<![\w/.*<{}…-]))(?:\.\./)*([\w/]+\.py)\b(?![\w(])")
OF_OTHERS = {"app.py", "billing.py", "nats.py"}
"""Programs of users in guides, and a project."""


def texts() -> Iterator[tuple[Path, str]]:
    """Yield the texts that may name a file, by lines: those of Python files, and all but the history of our pages."""
    for folder in FOLDERS:
        for path in source_files(ROOT / folder):
            if ".py" in path.read_text():
                yield from ((path, line) for _, line in source_of(path).prose)
    for path in (
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "tests").rglob("*.md"),
    ):
        if path.name != "CHANGELOG.md":
            yield from ((path, line) for line in path.read_text().splitlines())


def test_no_text_names_a_file_that_is_gone() -> None:
    there = set(OF_OTHERS)
    for folder in FOLDERS:
        for path in source_files(ROOT / folder):
            parts = path.relative_to(ROOT).parts
            there |= {"/".join(parts[first:]) for first in range(len(parts))}
    named = [
        (path, name)
        for path, line in texts()
        if ".py" in line
        for name in NAME_OF_A_FILE.findall(line)
    ]
    assert len(named) > len(there) / 10
    gone = sorted(
        {f"{path.relative_to(ROOT)}: {name}" for path, name in named if name not in there}
    )
    assert not gone, "\n".join(gone)


def test_name_of_a_class_occurs_once_in_the_product() -> None:
    places: dict[str, list[str]] = {}
    for folder in ("protocol", "broker", "client"):
        for path in source_files(ROOT / folder):
            for name in source_of(path).classes:
                if not name.startswith("_"):
                    places.setdefault(name, []).append(str(path.relative_to(ROOT)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_file_has_a_vague_name() -> None:
    vague = {"places", "beyond", "absence", "parts", "common", "misc", "utils", "helpers"}
    named = [
        str(path.relative_to(ROOT))
        for folder in ("protocol", "broker", "client", "tests")
        for path in source_files(ROOT / folder)
        if path.stem in vague
    ]
    assert named == []


PUBLIC = (
    "rocketrio",
    "rocketrio.admin",
    "rocketrio.aio",
    "rocketrio.metrics",
    "rocketrio.otel",
    "rocketrio.spark",
    "rocketrio.strategies",
    "rocketrio.testing",
)
SHOWN_BY_THE_DEMO = {"rocketrio.cli.cluster_table", "rocketrio_protocol.remoting.tasks"}
"""The demonstration prints what the commands print, and ends all of it on a signal."""


def documented_programs() -> Iterator[tuple[str, str]]:
    """Yield the name and the source of each example, and of each Python block of README and guides."""
    for path in source_files(ROOT / "examples"):
        yield str(path.relative_to(ROOT)), path.read_text()
    for path in (*ROOT.glob("README*.md"), *(ROOT / "docs").glob("*.md")):
        for block in re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL):
            yield path.name, block


def test_examples_and_guides_import_public_names_alone() -> None:
    public = {module: set(importlib.import_module(module).__all__) for module in PUBLIC}
    seen = set()
    wrong = []
    for name, source in documented_programs():
        for _, imported in parsed(source).imports:
            if not imported.startswith("rocketrio"):
                continue
            module, _, public_name = imported.rpartition(".")
            if name.startswith("examples/demo") and module in SHOWN_BY_THE_DEMO:
                continue
            seen.add(module)
            if public_name not in public.get(module, ()):
                wrong.append(f"{name} imports {public_name} from {module}")
    assert not wrong, wrong
    assert seen == set(PUBLIC)


def test_public_names_exist_and_are_few() -> None:
    for name in PUBLIC:
        module = importlib.import_module(name)
        assert [each for each in module.__all__ if not hasattr(module, each)] == [], name
    assert len(importlib.import_module("rocketrio").__all__) <= 38
