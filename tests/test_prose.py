"""Check that docstrings, comments, texts and names of tests avoid idioms which have to be read twice.

CONTRIBUTING.md has the rules of our prose; this list holds only what is never meant otherwise. ruff checks the form of
docstrings (D rules in pyproject.toml).
"""

import ast
import re
from pathlib import Path

import pytest

from tests.support.prose import prose_of

ROOT = Path(__file__).parent.parent
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
PATTERN = re.compile("|".join(rf"\b(?:{idiom})" for idiom in IDIOMS), re.IGNORECASE)


def test_names_of_tests_use_no_listed_idiom() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {node.name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if node.name.startswith("test_") and PATTERN.search(node.name.replace("_", " "))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "folder", ["protocol", "broker", "client", "tests", "benchmarks", "examples"]
)
def test_docstrings_comments_and_texts_use_no_listed_idiom(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number} says {match.group()!r}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path != Path(__file__)
        for number, line in prose_of(path.read_text())
        if (match := PATTERN.search(re.sub("`[^`]*`", "", line)))
    ]
    assert not found, "\n".join(found)


def test_idiom_is_found_in_a_docstring_a_text_and_a_comment_but_not_in_a_value() -> None:
    source = (
        'def f():\n    """Do it anew."""\n    g("asks nobody")\n    return "nobody"  # of ours\n'
    )
    assert [number for number, line in prose_of(source) if PATTERN.search(line)] == [2, 3, 4]
