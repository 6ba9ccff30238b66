"""The manual: each page of the repository has a place in it, it is built without a warning, and its links lead on."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from tests.support.markdown import anchors

ROOT = Path(__file__).parent.parent
SITE = ROOT / "docs/site"
sys.path.append(str(SITE))

import pages  # noqa: E402


class Page(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors = {""}
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self.anchors.add(given.get("id") or "")
        for name in ("href", "src"):
            if value := given.get(name):
                self.links.append(value)


def test_each_page_has_a_place_in_the_tree() -> None:
    missing = pages.pages_without_a_place()
    assert not missing, "\n".join(missing)


def test_page_that_no_list_names_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("README.md", "docs/client.md", "docs/new.md", "docs/decisions/README.md",
                 "docs/decisions/0001-first.md", "docs/zh/new.md", "docs/site/index.rst",
                 "docs/site/decisions.rst"):  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        source = ROOT / name
        path.write_bytes(source.read_bytes() if path.suffix == ".rst" else b"# Page\n")
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    (sentence,) = pages.pages_without_a_place()
    assert sentence.startswith("docs/new.md ")
    assert "`new`" in sentence


@pytest.mark.slow
@pytest.mark.long
def test_site_is_built_without_a_warning_and_leads_where_its_sources_do(tmp_path: Path) -> None:
    """All in one test, because a build takes as long as a hundred others."""
    folder = tmp_path.resolve() / "manual"
    command = [sys.executable, str(SITE / "build.py"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

    site = {path: Page(path) for path in folder.rglob("*.html")}
    broken = [
        f"{path.relative_to(folder)}: {link}"
        for path, page in site.items()
        for link in broken_links(path, page, site)
    ]
    assert not broken, "\n".join(broken)
    without = {
        f"{source.relative_to(ROOT)}#{anchor}"
        for source in pages.source_pages()
        for anchor in anchors(source) - site[folder / html(source)].anchors
    }
    assert not without, "headings lack the anchors that they have on GitHub"
    assert {"postgresql", "examples/transactional_outbox.py"} <= found(folder, "outbox")
    assert "zh/README" in found(folder, "消费")
    names = {"store.flush_disk_type", "rocketmq_messages_in_total", "rocketrio.Producer"}
    assert names <= objects(folder)


def html(source: Path) -> str:
    return os.path.splitext(pages.page_of(source))[0] + ".html"


def broken_links(path: Path, page: Page, site: dict[Path, Page]) -> Iterator[str]:
    for link in page.links:
        url = urlsplit(link)
        if url.scheme or url.netloc:
            continue
        target = (path.parent / unquote(url.path)).resolve() if url.path else path
        has_anchor = target not in site or unquote(url.fragment) in site[target].anchors
        if not target.exists() or not has_anchor:
            yield link


def search_index(folder: Path) -> dict[str, Any]:
    text = (folder / "searchindex.js").read_text()
    index: dict[str, Any] = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    return index


def found(folder: Path, word: str) -> set[str]:
    """Return the pages that the search finds by a word of their texts or their headings."""
    index = search_index(folder)
    numbers = []
    for terms in (index["terms"], index["titleterms"]):
        of_word = terms.get(word, [])
        numbers += of_word if isinstance(of_word, list) else [of_word]
    return {index["docnames"][number] for number in numbers}


def objects(folder: Path) -> set[str]:
    """Return the names that the search has a place for: classes, settings, metrics."""
    return {
        f"{before}.{one[-1]}".removeprefix(".")
        for before, many in search_index(folder)["objects"].items()
        for one in many
    }
