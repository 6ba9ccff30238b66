"""The pictures of docs/pictures: drawn from the sources that are there, whole in themselves, and described in pages."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from docs.pictures.board import scale
from docs.pictures.diagrams import FOLDER, mark, sources
from hypothesis import given
from hypothesis import strategies as st

ROOT = FOLDER.parents[1]
DRAWN = sorted(FOLDER.glob("*.svg"))
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@pytest.mark.parametrize("source", sources(), ids=lambda path: path.name)
def test_diagram_was_drawn_from_its_source(source: Path) -> None:
    drawn = source.with_suffix(".svg").read_text()
    assert drawn.startswith(mark(source)), "`python -m docs.pictures.diagrams` draws it again"


def test_diagram_that_was_drawn_from_another_source_is_found(tmp_path: Path) -> None:
    changed = tmp_path / sources()[0].name
    changed.write_text(sources()[0].read_text() + " ")
    assert mark(changed) != mark(sources()[0])


@pytest.mark.parametrize("picture", DRAWN, ids=lambda path: path.name)
def test_picture_needs_nothing_of_other_hosts(picture: Path) -> None:
    ElementTree.fromstring(picture.read_text())
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", picture.read_text())
    assert not re.findall(r"url\([^#]|href=|<script", text)


def test_every_picture_is_shown_by_a_page_and_described() -> None:
    shown = {}
    for page in PAGES:
        prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        for alt, link in re.findall(r"!\[([^]]*)\]\(([^)]+)\)", prose):
            assert len(alt) > 40, f"{page.name} describes {link} by {alt!r}"
            shown[(page.parent / link).resolve()] = page
    pictures = {*DRAWN, *FOLDER.glob("*.png")}
    assert pictures <= set(shown), pictures - set(shown)


@given(st.floats(1e-6, 1e12))
def test_scale_of_a_board_holds_its_greatest_number(greatest: float) -> None:
    top, ticks = scale(greatest)
    assert greatest <= top * 1.000001
    assert 3 <= len(ticks) <= 6
    assert (ticks[0], ticks[-1]) == (0, top)


def test_scale_without_numbers_ends_with_one() -> None:
    assert scale(0) == (1, [0, 1])
