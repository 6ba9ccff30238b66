"""Prints text for people. What servers and messages say is shown, and steers no terminal.

    say(f"the master is {name} now")      one line: a line end in it is shown as \\n
    warn(reason)                          one line on standard error, whatever the reason has

All else that a command prints as text passes `Guarded` streams, which the top-level command puts in the place of
standard output and error: the texts of click, logs and tracebacks too. Bodies of messages and format strings are bytes,
and are printed as they are; rich draws past the guard, by `console` of output.py, which guards each piece of text.
"""

import codecs
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

import click

from rocketrio_protocol.log_lines import printable, visible


def say(text: str, *, err: bool = False) -> None:
    """Print one line, in which nothing steers the terminal."""
    click.echo(printable(text), err=err)


def warn(text: str) -> None:
    """Print a warning as one line to standard error."""
    say(f"warning: {one_line(text)}", err=True)


def one_line(text: str) -> str:
    """Return a text of several lines, as remarks of servers have them, as one."""
    return " ".join(text.split())


class Guarded:
    """A text stream that passes on what is visible."""

    def __init__(self, stream: TextIO) -> None:
        self.unguarded = stream

    def write(self, text: str) -> int:
        """Write what is visible of a text; return its length as other streams do."""
        self.unguarded.write(visible(text))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unguarded, name)


@contextmanager
def guarding() -> Iterator[None]:
    """Guard standard output and error while the block runs."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _guarded(sys.stdout), _guarded(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _guarded(stream: TextIO) -> TextIO:
    # Where Python would encode as ASCII, click makes itself a stream of UTF-8, which would have no guard.
    if isinstance(stream, io.TextIOWrapper) and codecs.lookup(stream.encoding).name == "ascii":
        stream.reconfigure(encoding="utf-8")
    return stream if stream is None else cast(TextIO, Guarded(stream))


def unguarded(stream: TextIO) -> TextIO:
    """Return the stream that a guard protects, for what is guarded already."""
    return cast(TextIO, getattr(stream, "unguarded", stream))
