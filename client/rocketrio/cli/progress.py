"""Shows how far a long command is, on standard error in a terminal; anywhere else it prints nothing.

The commands count for themselves, and this asks for their count a few times a second: their loops do not change, and a
command that ends within a second shows nothing.
"""

import os
import stat
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final

import click

from rocketrio.cli.numbers import rate_text
from rocketrio.counts import counted

FIRST_AFTER: Final = 1.0
"""Seconds before the first line is drawn."""
DRAW_EVERY: Final = 0.25
"""Seconds between two drawings."""


@asynccontextmanager
async def showing_progress(
    what: str,
    done: Callable[[], int] | None = None,
    *,
    noun: str = "message",
    total: int | None = None,
    share: Callable[[], float | None] = lambda: None,
    when: bool = True,
) -> AsyncGenerator[None]:
    """Draw one line while the body runs: what it does, its count, the rate, and the time that is left, as far as known.

    `done` counts what is done; `total` is the count at the end, or `share` says which part is done, from 0 to 1. The
    line is removed at the end. With `when` false, in a pipe, and with the log of -v on standard error there is none.
    """
    from rocketrio_protocol.remoting.tasks import background_nursery

    # -v logs to standard error, and would write into the line.
    context = click.get_current_context(silent=True)
    if (
        not when
        or sys.stderr is None
        or not sys.stderr.isatty()
        or (context and context.params.get("verbose"))
    ):
        yield
        return
    async with background_nursery() as nursery:
        nursery.start_soon(_draw, what, done, noun, total, share)
        yield


async def _draw(
    what: str,
    done: Callable[[], int] | None,
    noun: str,
    total: int | None,
    share: Callable[[], float | None],
) -> None:
    import trio
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from rocketrio.cli.console import console

    began = trio.current_time()
    await trio.sleep(FIRST_AFTER)
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=16),
        TextColumn("{task.fields[text]}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
        TimeRemainingColumn(compact=True),
        console=console(stderr=True),
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,  # Rich would write it to standard error, though it may go to a file.
    ) as screen:
        task = screen.add_task(what, total=None, text="", left="")
        while True:
            part, text = share(), ""
            if done is not None:
                count = done()
                text = counted(count, noun) if not total else f"{count:,} of {counted(total, noun)}"
                text += f", {rate_text(count / (trio.current_time() - began))}/s"
                part = count / total if total else part
            screen.update(
                task,
                total=None if part is None else 1.0,
                completed=0.0 if part is None else min(1.0, part),
                text=text,
                left="" if part is None else "left",
            )
            screen.refresh()
            await trio.sleep(DRAW_EVERY)


def writes_to_file() -> bool:
    """Return whether standard output goes to a file, where neither a person nor another program counts what comes."""
    try:
        mode = os.fstat(sys.stdout.fileno()).st_mode
    except (OSError, ValueError):  # Not a real file, as in a test.
        return False
    return not (sys.stdout.isatty() or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))
