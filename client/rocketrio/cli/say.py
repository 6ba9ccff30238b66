"""Prints lines for people. What servers and messages say is shown, and steers no terminal."""

import click

from rocketrio_protocol.log_lines import printable


def say(text: str, *, err: bool = False) -> None:
    """Print one line, in which nothing steers the terminal."""
    click.echo(printable(text), err=err)


def warn(text: str) -> None:
    """Print a warning as one line to standard error."""
    say(f"warning: {one_line(text)}", err=True)


def one_line(text: str) -> str:
    """Return a text of several lines, as remarks of servers have them, as one."""
    return " ".join(text.split())
