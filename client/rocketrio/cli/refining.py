"""Answers at once, and refines the answer while samples of lag come: for `lag`, `doctor` and `check lag`.

    in a terminal    the answer so far and a countdown stand on standard error, and go when the result is printed
    elsewhere        one sample is the answer; with --window a few lines on standard error count down

Invariant: standard output gets the result alone, once.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

import click

from rocketrio.cli.commands import CallableT
from rocketrio.cli.numbers import Duration
from rocketrio.cli.output import Output
from rocketrio_protocol.lag import SAMPLE_EVERY, WINDOW

if TYPE_CHECKING:
    from rich.console import Group, RenderableType

    from rocketrio.admin.lag import LagWindow

_SHORTEST_WINDOW: Final = 2 * SAMPLE_EVERY
"""Seconds: three samples."""
_LINES_OF_PROGRESS: Final = 4
"""The lines that a whole window prints where no line can be replaced."""

T = TypeVar("T")


def window_options(function: CallableT) -> CallableT:
    """Add `--window` and `--once`; the function gets `window: float | None` and `once: bool`."""
    function = click.option(
        "--once", is_flag=True, help="Answer by one sample, and by what brokers counted lately."
    )(function)
    return click.option(
        "--window",
        type=Duration(_SHORTEST_WINDOW),
        help=f"Watch groups for so long before the answer, as {WINDOW:g}s or 5m, unless all keep up.",
    )(function)


def seconds_of(window: float | None, *, once: bool, output: Output | None = None) -> float:
    """Return how long to watch: what the user says, else a minute where people see the answer refined, else 0."""
    if once and window is not None:
        raise click.UsageError("--once is one sample without a window: omit --window")
    if window is not None:
        return window
    is_seen = output is not None and output.for_people and sys.stdout.isatty() and _is_screen()
    return WINDOW if is_seen and not once else 0.0


async def refined(
    window: LagWindow,
    answer: Callable[[], Awaitable[T]],
    draw: Callable[[T], RenderableType] | None = None,
) -> T:
    """Fill a window, and return the answer that was asked for last; draw each one where people see it.

    The answer so far stays on the screen if this is cancelled, or if a sample fails.
    """
    import trio
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from rocketrio.cli.console import console
    from rocketrio.cli.tables import Cropped

    await window.sample()
    found = await answer()
    if window.is_full:
        return found
    if not _is_screen():
        return await _with_lines(window, answer)
    screen = console(stderr=True)
    is_drawn = draw is not None and sys.stdout.isatty()

    def shown(*more: RenderableType) -> Group:
        table = [draw(found)] if draw is not None and is_drawn else []
        return Group(*(Cropped(each, screen.height - 2) for each in table), *more)

    # No refresh thread: the screen is drawn when something has changed.
    with Live(console=screen, auto_refresh=False, transient=True, redirect_stdout=False) as live:
        try:
            while not window.is_full:
                while (left := window.next_at - trio.current_time()) > 0:
                    countdown = Text(f"{_countdown(window)}; --once answers at once", "dim")
                    live.update(shown(countdown), refresh=True)
                    await trio.sleep(min(left, 1.0))
                await window.sample()
                found = await answer()
        except BaseException:
            live.transient = False
            live.update(shown(), refresh=True)
            raise
    return found


async def _with_lines(window: LagWindow, answer: Callable[[], Awaitable[T]]) -> T:
    import trio

    due = trio.current_time()
    while not window.is_full:
        if trio.current_time() >= due:
            click.echo(_countdown(window), err=True)
            due += window.length / _LINES_OF_PROGRESS
        await trio.sleep_until(window.next_at)
        await window.sample()
    return await answer()


def _countdown(window: LagWindow) -> str:
    import trio

    left = math.ceil(window.times[0] + window.length - trio.current_time())
    return f"watching groups: {max(0, left)} s left"


def _is_screen() -> bool:
    """Return whether standard error is a terminal on which lines can be replaced."""
    from rocketrio.cli.console import console

    return sys.stderr.isatty() and console(stderr=True).is_interactive
