"""Check that docstrings, comments, texts and names of tests avoid idioms which have to be read twice.

CONTRIBUTING.md has the rules of our prose; this list holds only what is never meant otherwise. ruff checks the form of
docstrings (D rules in pyproject.toml).
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.sources import ROOT, Source, parsed, source_files, source_of

IDIOMS = {
    r"anew": "again",
    r"whoever|somebody|nobody": "the caller, the slave, no client: name the part",
    r"of ours": "a rocketrio broker, client, slave",
    r"so many": "`count`, or the number",
    r"leaves? away": "omit",
    r"in vain": "without an answer, without success",
    r"of its own accord": "automatically",
    r"(?:is|are|be|was|were|been) told": "report, notify, log",
    r"tells? of|hears? of": "report, learn",
}
PATTERN = re.compile(rf"\b(?:{'|'.join(IDIOMS)})")
BETWEEN_TEXTS = re.compile(r"""["']\s*[bfru]{0,2}["']""")
"""The end of one text and the beginning of the next, where Python joins the two."""
TEST_NAME = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)


def idioms_in(source: Source) -> Iterator[tuple[int, str]]:
    """Yield each idiom in the prose of a file, with its line; all lines are searched at once, which is faster."""
    text = re.sub("`[^`\n]*`", "", "\n".join(line for _, line in source.prose)).lower()
    for match in PATTERN.finditer(text):
        yield source.prose[text.count("\n", 0, match.start())][0], match.group()


def may_have_idioms(text: str) -> bool:
    """Return whether a file has any at all, in prose or not: most have none, and need not be parsed."""
    return PATTERN.search(BETWEEN_TEXTS.sub("", text.lower())) is not None


def test_names_of_tests_use_no_listed_idiom() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in source_files(ROOT / "tests")
        if path.name.startswith("test_")
        for name in TEST_NAME.findall(path.read_text())
        if PATTERN.search(name.lower().replace("_", " "))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "folder", ["protocol", "broker", "client", "tests", "benchmarks", "examples"]
)
def test_docstrings_comments_and_texts_use_no_listed_idiom(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number} says {idiom!r}"
        for path in source_files(ROOT / folder)
        if path != Path(__file__) and may_have_idioms(path.read_text())
        for number, idiom in idioms_in(source_of(path))
    ]
    assert not found, "\n".join(found)


def test_idiom_is_found_in_a_docstring_a_text_and_a_comment_but_not_in_a_value() -> None:
    source = (
        'def f():\n    """Do it anew."""\n    g("asks nobody")\n    return "nobody"  # of ours\n'
    )
    assert [number for number, _ in idioms_in(parsed(source))] == [2, 3, 4]


def test_idiom_in_two_texts_that_are_one_is_found() -> None:
    source = 'f("there are so "\n   f"many", "in " "vain")\n'
    assert may_have_idioms(source)
    assert {idiom for _, idiom in idioms_in(parsed(source))} == {"so many", "in vain"}
