"""The top-level command: it imports a command's file when that command is used, and reports errors of its output.

Invariant: when the command ends with 0, all its output has left the process.
"""

import io
import os
import re
import signal
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final, NoReturn

import click

from rocketrio.cli.commands import GIVEN_BEFORE, Group, with_our_word
from rocketrio.cli.say import guarding, one_line, say

DONE_IN_PART: Final = 3
"""The exit code if a broker did not answer; standard error says which."""
REFUSED: Final = 4
"""The exit code if what a plan was made for has changed, and nothing was done."""
INTERRUPTED: Final = 130
"""The exit code after Ctrl-C, as shells have it."""
VERSION_AS_JSON: Final = "rocketrio.version_as_json"
CLUSTER_OPTIONS: Final = {
    "--namesrv": True,
    "--context": True,
    "--credentials-file": True,
    "--access-key": True,
    "--tls": False,
    "--tls-ca": True,
    "--tls-cert": True,
    "--tls-key": True,
    "--tls-insecure": False,
    "--timeout": True,
    "--per-broker": True,
    "--verbose": False,
    "-v": False,
}
"""The options of `client_options`, which may stand before the command too, and whether a value follows."""


class Shell(Group):
    """A group whose commands are in files of their own, which only the command that is used imports."""

    def __init__(self, *args: Any, lines: Mapping[str, str], **options: Any) -> None:
        """Take the line of help of each command; the file has the command's name, with `_` in place of `-`."""
        super().__init__(*args, **options)
        self._lines = lines

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order of the help text."""
        return list(self._lines)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the file of a command, which takes half a second; Ctrl-C ends the process meanwhile."""
        if cmd_name not in self._lines:
            return None
        name = cmd_name.replace("-", "_")
        with _interrupts_end_the_process():
            command: click.Command = getattr(import_module(f"rocketrio.cli.{name}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the line of each command without importing it."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self._lines.items()))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Understand `--version --json`, in both orders, and keep options of the cluster for the command."""
        ctx.meta[VERSION_AS_JSON] = is_json = set(args) == {"--version", "--json"}
        ctx.meta[GIVEN_BEFORE], args = _cluster_options_first(args)
        try:
            return super().parse_args(ctx, ["--version"] if is_json else args)
        except click.NoSuchOption as error:
            raise with_our_word(error, CLUSTER_OPTIONS) from None

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the command line; end with one line and exit code 1 if standard output cannot be written."""
        if sys.stdout is None:
            fail("standard output is closed; send it to /dev/null if no program reads it")
        if isinstance(sys.stdout.buffer, io.RawIOBase):
            # PYTHONUNBUFFERED: a raw write may write only a part, and Python's text layer does not check how much.
            sys.stdout = open(  # noqa: SIM115
                sys.stdout.fileno(), "w", encoding=sys.stdout.encoding, closefd=False
            )
        try:
            with guarding():
                return super().main(*args, **extra)
        except OSError as error:
            # Network errors arrive as rocketrio's errors, errors of files name the file: this is the output.
            if error.filename is not None:
                fail(str(error))
            # Python flushes once more at exit, and would report the error again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if isinstance(error, BrokenPipeError):  # Its reader needs no more.
                sys.exit(1)
            fail(f"standard output takes no more: {error.strerror}")


def _cluster_options_first(args: list[str]) -> tuple[list[str], list[str]]:
    """Return the options of the cluster that stand before the command, and the rest of the command line."""
    end = 0
    while end < len(args):
        name, equals, _ = args[end].partition("=")
        if re.fullmatch("-v+", name):
            name = "-v"
        if name not in CLUSTER_OPTIONS:
            break
        end += 2 if CLUSTER_OPTIONS[name] and not equals else 1
    return args[:end], args[end:]


@contextmanager
def _interrupts_end_the_process() -> Generator[None]:
    """Have Ctrl-C end the process at once, without a traceback, unless the program handles it otherwise."""
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_default:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        if is_default:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def fail(text: str, *, code: int = 1) -> NoReturn:
    """Print one line to standard error and exit."""
    say(f"error: {one_line(text)}", err=True)
    sys.exit(code)
