"""Check that the links of the documents lead somewhere, and that each decision has the template and is in the index."""

import re
from functools import cache
from pathlib import Path

from tests.support.markdown import anchors

ROOT = Path(__file__).parent.parent
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("0*.md"))
DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "examples/README.md", "tests/**/README.md")
    for path in ROOT.glob(pattern)
)
anchors_of = cache(anchors)
HEADINGS = ["Context", "Decision", "Consequences", "Revisit when"]


def test_links_of_documents_lead_to_files_and_headings() -> None:
    wrong = []
    for document in DOCUMENTS:
        prose = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
        for link in re.findall(r"\]\(([^)\s]+)\)", prose):
            if "://" in link:
                continue
            path, _, anchor = link.partition("#")
            target = (document.parent / path).resolve() if path else document
            if not target.exists() or (anchor and anchor not in anchors_of(target)):
                wrong.append(f"{document.relative_to(ROOT)}: {link}")
    assert not wrong, "\n".join(wrong)


def test_decisions_have_the_template_and_are_in_the_index() -> None:
    index = (ROOT / "docs" / "decisions" / "README.md").read_text()
    for decision in DECISIONS:
        text = decision.read_text()
        assert re.findall(r"^## (.*)$", text, re.MULTILINE) == HEADINGS, decision.name
        assert text.startswith(f"# {decision.name[:4]}: "), decision.name
        assert f"]({decision.name})" in index


def test_cell_of_the_fault_table_names_tests_that_exist() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    part = text.partition("## What a fault costs, by mode\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (?!fault \|)(.+) \|$", part, re.MULTILINE)
    cells = [cell for row in rows for cell in row.split(" | ")[1:]]
    used = {found[1] if (found := re.search(r"\(([a-z])\)$", cell)) else cell for cell in cells}
    tests_of: dict[str, set[str]] = {letter: set() for letter in used}
    for entry in re.split(r"\n- | · ", part):
        letters, _, tests = " ".join(entry.split()).partition(": ")
        if re.fullmatch(r"[a-z](, [a-z])*", letters):
            for letter in letters.split(", "):
                tests_of[letter] |= set(re.findall("`(test_[^`]+|tests/[^`]+|make [^`]+)`", tests))
    assert len(cells) == 70
    assert all(tests_of.values()), tests_of
    sources = list((ROOT / "tests").rglob("*.py"))
    known = {path.name for path in sources} | {str(path.relative_to(ROOT)) for path in sources}
    known |= {name for path in sources for name in re.findall(r"def (test_\w+)", path.read_text())}
    known |= {
        f"make {name}" for name in re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.M)
    }
    assert set().union(*tests_of.values()) <= known
