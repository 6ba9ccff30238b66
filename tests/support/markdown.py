"""What readers see of a page in Markdown."""

import re
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
