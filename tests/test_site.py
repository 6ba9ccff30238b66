"""The manual: each page of the repository has a place in it, it is built without a warning, and its links lead on."""

import json
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.test_docs import ROOT, anchors

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


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Page]:
    """The pages of the built site."""
    folder = tmp_path_factory.mktemp("site").resolve() / "manual"
    command = [sys.executable, str(SITE / "build.py"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {path: Page(path) for path in folder.rglob("*.html")}


def test_each_page_has_a_place_in_the_tree() -> None:
    missing = pages.pages_without_a_place()
    assert not missing, f"add {missing} to a list of docs/site/index.rst"


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
    assert pages.pages_without_a_place() == ["docs/new.md"]


@pytest.mark.slow
def test_site_is_built_without_a_warning_and_its_links_lead_somewhere(
    site: dict[Path, Page],
) -> None:
    wrong = [
        f"{path.name}: {link}" for path, page in site.items() for link in broken(path, page, site)
    ]
    assert not wrong, "\n".join(wrong)


def broken(path: Path, page: Page, site: dict[Path, Page]) -> Iterator[str]:
    for link in page.links:
        url = urlsplit(link)
        if url.scheme or url.netloc:
            continue
        target = (path.parent / unquote(url.path)).resolve() if url.path else path
        has_anchor = target not in site or unquote(url.fragment) in site[target].anchors
        if not target.exists() or not has_anchor:
            yield link


@pytest.mark.slow
def test_headings_have_the_anchors_of_github(site: dict[Path, Page]) -> None:
    folder = next(path.parent for path in site if path.name == "genindex.html")
    for source in pages.source_pages():
        page = site[folder / Path(pages.page_of(source)).with_suffix(".html")]
        assert not anchors(source) - page.anchors, source


@pytest.mark.slow
def test_search_knows_guides_settings_and_pairs_of_chinese_characters(
    site: dict[Path, Page],
) -> None:
    folder = next(path.parent for path in site if path.name == "genindex.html")
    index = (folder / "searchindex.js").read_text()
    found = json.loads(index.removeprefix("Search.setIndex(").removesuffix(")"))
    for word, name in (("outbox", "postgresql"), ("消费", "zh/README")):
        numbers = found["terms"][word]
        numbers = numbers if isinstance(numbers, list) else [numbers]
        assert name in [found["docnames"][number] for number in numbers]
    settings = [one[-1] for one in found["objects"][""]]
    assert {"store.flush_disk_type", "rocketmq_messages_in_total"} <= set(settings)
    assert "Producer" in [one[-1] for one in found["objects"]["rocketrio"]]
