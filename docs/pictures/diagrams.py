"""Draws the diagrams of this folder: each `*.dot` as an SVG beside it, by Graphviz (`apt-get install graphviz`).

Graphviz, because it is in every distribution, its files are text that a reader understands without it, and it makes SVG
without a browser, which Mermaid needs. Boxes have a ground of their own, and lines a grey that can be read on white and
on black: a site lets its reader switch colours, which an SVG that asks for the system's (prefers-color-scheme) misses.

Invariant: an SVG names the hash of its source, so that a test without Graphviz finds one that was not drawn again.
"""

import hashlib
import re
import subprocess
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent


def sources() -> list[Path]:
    """Return the diagrams' sources."""
    return sorted(FOLDER.glob("*.dot"))


def mark(source: Path) -> str:
    """Return the comment by which an SVG names what it was drawn from."""
    return f"<!-- {source.name} sha256:{hashlib.sha256(source.read_bytes()).hexdigest()} -->"


def draw(source: Path) -> None:
    """Draw one diagram."""
    drawn = subprocess.run(
        ["dot", "-Tsvg", source], check=True, capture_output=True, text=True
    ).stdout
    svg = drawn[drawn.index("<svg") :]
    svg = re.sub(r"<title>.*?</title>\n", "", svg)  # Readers would see them as tooltips.
    source.with_suffix(".svg").write_text(f"{mark(source)}\n{svg}")


def draw_all() -> None:
    """Draw all diagrams."""
    for source in sources():
        draw(source)


if __name__ == "__main__":
    draw_all()
