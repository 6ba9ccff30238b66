"""Makes reStructuredText of docstrings and help texts.

Their form is light: paragraphs, lists, `code` in single backticks, and blocks that are indented by four spaces.
"""

import re
import textwrap
from collections.abc import Iterable, Iterator
from typing import Final

_CODE: Final = re.compile(r"`([^`]+)`")
_NAME: Final = re.compile(r"[A-Za-z_][\w.]*")
_CLASS: Final = re.compile(r"[A-Z]+[a-z]\w*")
_BARE: Final = re.compile(r"docs/([\w-]+)\.md|\b([A-Z][a-z]+\w*Error)\b|(?<!\S)--[a-z][\w-]*\b")
"""A page, a class or an option in a text, without backticks."""
_SPECIAL: Final = re.compile(r"([\\*_|<>])")


def title(text: str, line: str = "=") -> str:
    """Return a heading."""
    text = _escaped(text)
    return f"{text}\n{line * len(text)}\n\n"


def tree(pages: Iterable[str]) -> str:
    """Return the entry of these pages in the sidebar."""
    return "\n.. toctree::\n   :hidden:\n\n" + "".join(f"   {page}\n" for page in pages)


def block(text: str, language: str = "default") -> str:
    """Return a block of code."""
    return f".. code-block:: {language}\n\n{indented(text)}\n"


def indented(text: str) -> str:
    """Return a text as what a directive holds."""
    return textwrap.indent(text.rstrip("\n") + "\n", "   ")


def inline(text: str) -> str:
    """Return a text in which `code` is code, and what the manual explains is a link."""
    return "".join(
        _code(part) if number % 2 else _prose(part) for number, part in enumerate(_CODE.split(text))
    )


def body(text: str) -> str:
    """Return a docstring."""
    return "".join(
        block(textwrap.dedent(part))
        if part.startswith("    ")
        else "\n".join(_lines(part)) + "\n\n"
        for part in re.split(r"\n\s*\n", text.strip("\n"))
    )


def _lines(paragraph: str) -> Iterator[str]:
    """Yield the lines; a list within a paragraph begins after an empty line."""
    before = ""
    for line in inline(paragraph).splitlines():
        if line.startswith("- ") and before and not before.startswith(("- ", "  ")):
            yield ""
        yield line
        before = line


def _code(text: str) -> str:
    text = " ".join(text.split())
    if _CLASS.fullmatch(text):
        return f"`.{text}`"  # of any module
    return f"`{text}`" if _NAME.fullmatch(text) else f"``{text}``"


def _prose(text: str) -> str:
    parts = []
    end = 0
    for match in _BARE.finditer(text):
        page, error = match.groups()
        parts.append(_escaped(text[end : match.start()]))
        if page:
            parts.append(f":doc:`{match[0]} </{page}>`")
        else:
            parts.append(f"`.{error}`" if error else f"``{match[0]}``")
        end = match.end()
    return "".join([*parts, _escaped(text[end:])])


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)
