"""The pages of the repository as the site has them: in its folders, with links that lead to pages of the site.

A page keeps its text; only the targets of its links change. A file that a page links to becomes a page with its
source, a folder one with links to its files, and a picture is copied.
"""

import os
import re
import textwrap
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

import attrs
from markup import title

ROOT: Final = Path(__file__).parents[2]
SITE: Final = ROOT / "docs/site"
PAGES: Final = ("*.md", "docs/*.md", "docs/decisions/*.md", "docs/zh/*.md", "examples/README.md")
LEFT_OUT: Final = {"docs/index-page.md": "the page of a package index"}
"""Pages for readers elsewhere."""
TREES: Final = {"index.rst": "README.md", "decisions/index.rst": "docs/decisions/README.md"}
"""The pages that hold the tree, by their path in the site, with the page that each includes."""
MOVED: Final = {page: tree for tree, page in TREES.items()} | {"README.zh.md": "zh/README.md"}
PICTURES: Final = (".svg", ".png", ".jpg", ".webp")
LANGUAGES: Final = {
    ".json": "json",
    ".py": "python",
    ".service": "ini",
    ".sh": "sh",
    ".toml": "toml",
    ".yaml": "yaml",
    ".yml": "yaml",
}
_LINK: Final = re.compile(
    r"(?P<code>^ *(?P<fence>```+)[^`\n]*\n.*?^ *(?P=fence) *$|(?<!`)(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`))"
    r"|(?P<before>\]\()(?P<path>[^)#\s:]+)(?P<after>[^)\s:]*\))",
    re.DOTALL | re.MULTILINE,
)
"""Code, in which nothing is a link, or a link within the repository."""

Files = dict[str, bytes]
"""What Sphinx reads, by path."""


def source_pages() -> list[Path]:
    """Return the pages that have a place in the tree."""
    found = sorted(path for pattern in PAGES for path in ROOT.glob(pattern))
    return [path for path in found if _name(path) not in LEFT_OUT]


def files_of_pages() -> Files:
    """Return the tree, the pages, and what they link to."""
    files: Files = {}
    for place in TREES:
        files[place] = _tree(place).read_bytes()
    waiting, seen = source_pages(), set[Path]()
    while waiting:
        path = waiting.pop()
        if path not in seen:
            seen.add(path)
            copy = _copied(path)
            files[copy.place] = copy.content
            waiting += copy.links
    return files


def page_of(path: Path) -> str:
    """Return the page of the site that shows a file or a folder of the repository, or a picture's place."""
    name = _name(path)
    if name in MOVED:
        return MOVED[name]
    if path.is_dir():
        readme = path / "README.md"
        return page_of(readme) if readme.exists() else f"{name}/index.rst"
    name = name.removeprefix("docs/")
    return name if path.suffix in (".md", *PICTURES) else f"{name}.rst"


@attrs.frozen
class _Copy:
    """What the site has of a file or a folder."""

    place: str
    content: bytes
    links: list[Path] = attrs.Factory(list)


def _copied(path: Path) -> _Copy:
    if (path / "README.md").exists():
        path = path / "README.md"
    place = page_of(path)
    if path.is_dir():
        return _folder(path, place)
    if path.suffix in PICTURES:
        return _Copy(place, path.read_bytes())
    if path.suffix == ".md":
        return _page(path, place)
    return _Copy(place, _source_page(path).encode())


def _page(path: Path, place: str) -> _Copy:
    if place in TREES:  # which includes it
        place = os.path.join(os.path.dirname(place), path.name)
    links: list[Path] = []

    def moved(match: re.Match[str]) -> str:
        target = (path.parent / (match["path"] or "")).resolve()
        if match["code"] or not target.exists() or not target.is_relative_to(ROOT):
            return match[0]
        links.append(target)
        relative = os.path.relpath(page_of(target), os.path.dirname(place) or ".")
        return f"{match['before']}{relative}{match['after']}"

    return _Copy(place, _LINK.sub(moved, path.read_text()).encode(), links)


def _source_page(path: Path) -> str:
    language = LANGUAGES.get(path.suffix, "docker" if path.name == "Dockerfile" else "text")
    source = textwrap.indent(path.read_text(errors="replace"), "   ")
    return f":orphan:\n\n{title(_name(path))}.. code-block:: {language}\n\n{source}\n"


def _folder(path: Path, place: str) -> _Copy:
    files = [file for file in sorted(_files_in(path)) if file.suffix not in PICTURES]
    links = [f"- :doc:`{_name(file)} </{_without_suffix(page_of(file))}>`\n" for file in files]
    return _Copy(place, f":orphan:\n\n{title(_name(path))}{''.join(links)}".encode(), files)


def _files_in(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path


def write(files: Files, folder: Path) -> None:
    """Make the folder hold these files and no others; what is the same is not written, so that Sphinx builds less."""
    for path in _files_in(folder):
        if path.relative_to(folder).as_posix() not in files:
            path.unlink()
    for name, content in files.items():
        path = folder / name
        if not path.exists() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def pages_without_a_place() -> list[str]:
    """Return a sentence for each page that no list of the tree names, with what to add."""
    listed = [
        os.path.join(os.path.dirname(place), line.strip())
        for place in TREES
        for line in _tree(place).read_text().splitlines()
    ]
    listed += [_without_suffix(tree) for tree in TREES]
    missing = {}
    for path in source_pages():
        page = _without_suffix(page_of(path))
        if not any(fnmatch(page, entry) for entry in listed):
            missing[_name(path)] = page
    return [
        f"{name} has no place in the manual: add a line `{page}` to a list of docs/site/index.rst"
        for name, page in missing.items()
    ]


def _tree(place: str) -> Path:
    return SITE / place.replace("/index", "")


def _without_suffix(page: str) -> str:
    return os.path.splitext(page)[0]


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
