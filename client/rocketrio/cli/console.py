"""The console for people: what rich draws, as wide as the terminal.

Invariant: no text is markup or steers the terminal, whatever is drawn.
"""

import sys
from collections.abc import Iterable
from typing import Final

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from rocketrio.cli.say import unguarded
from rocketrio_protocol.log_lines import visible

PIPED_WIDTH: Final = 1_000_000
"""The width of what goes to a file or another program: nothing folds there."""


class _GuardedConsole(Console):
    """A console on which no text is markup or steers the terminal, whatever is drawn."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Draw something; what is in it is drawn by this method too."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))


def console(*, stderr: bool = False) -> Console:
    """Return the console for people: as wide as the terminal, and so wide that nothing folds where there is none."""
    stream = sys.stderr if stderr else sys.stdout
    return _GuardedConsole(
        file=unguarded(stream),
        width=None if stderr or stream.isatty() else PIPED_WIDTH,
        highlight=False,
        markup=False,
        emoji=False,
    )
