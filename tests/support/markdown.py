"""What readers see of a page in Markdown."""

import re
from pathlib import Path
from typing import Final

BLOCK: Final = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
HIDDEN: Final = re.compile(r"^<!-- (?:code|skip): .*?-->\n", re.DOTALL | re.MULTILINE)
"""What tests/examples/documents.py reads, and readers do not see."""
SPAN: Final = re.compile(r"`([^`]+)`")
LINK: Final = re.compile(r"!?\[[^]]*\]\(([^)\s]+)\)")
"""A link or a picture."""


def slug(heading: str) -> str:
    """Return the anchor that hosts of Markdown make of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def anchors(document: Path) -> set[str]:
    """Return the anchors that hosts of Markdown make of headings."""
    prose = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
    return {slug(heading) for heading in re.findall(r"^#+ (.*)$", prose, re.MULTILINE)}
