"""What rich draws, as text."""

import io

from rich.console import Console, RenderableType


def drawn(shown: RenderableType, width: int = 240) -> list[str]:
    """Draw it on a console of this width; return the lines without the blanks at their ends."""
    console = Console(width=width, highlight=False, file=io.StringIO(), record=True)
    console.print(shown)
    return [line.rstrip() for line in console.export_text().splitlines()]
