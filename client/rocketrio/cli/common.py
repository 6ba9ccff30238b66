"""What all commands share: the name server option, the handling of errors and Ctrl-C, tables and JSON.

Invariant: an error is one line on standard error; the exit code is 2 for wrong usage, 1 for any other error.
"""

import io
import json
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NoReturn, TypeVar

import click
import trio
from rich.console import Console
from rich.table import Table

from rocketrio.cluster.name_servers import (
    DEFAULT_NAME_SERVER,
    NAME_SERVERS_VARIABLE,
    name_server_addresses,
)
from rocketrio_protocol.errors import ConfigError, Error
from rocketrio_protocol.log_lines import log_to
from rocketrio_protocol.names import group_name_problem, topic_name_problem
from rocketrio_protocol.remoting.ports import split_addr
from rocketrio_protocol.remoting.tasks import background_nursery, ungrouped

UNKNOWN: Final = "unknown"
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
TIME_EXAMPLE: Final = "2026-11-21T08:00+01:00"
TIME_HELP: Final = f"as {TIME_EXAMPLE}; without a zone, local time"
"""The help text for the format of times."""
PIPED_WIDTH: Final = 240
"""The width of a table that goes to a file or another program: wide enough not to fold."""

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class _NameServers(click.ParamType[tuple[str, ...]]):
    name = "HOST:PORT"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        try:
            return name_server_addresses(str(value))
        except ConfigError as error:
            self.fail(str(error), param, ctx)


class _Name(click.ParamType[str]):
    """A valid name of a topic or group."""

    def __init__(self, name: str, problem: Callable[[str], str | None]) -> None:
        self.name = name
        self._problem = problem

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        problem = self._problem(str(value))
        if problem is not None:
            self.fail(problem, param, ctx)
        return str(value)


class _Address(click.ParamType[str]):
    name = "HOST:PORT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            split_addr(str(value))
        except ConfigError as error:
            self.fail(str(error), param, ctx)
        return str(value)


class Time(click.ParamType[datetime]):
    """A time; without a zone it is local time."""

    name = "TIME"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        try:
            return time_of(str(value))
        except ValueError:
            self.fail(f"{value!r} is not a time like {TIME_EXAMPLE}", param, ctx)


def time_of(text: str) -> datetime:
    """Return the time that a text names, local time if it has no zone. Raises ValueError for any other text."""
    try:
        time = datetime.fromisoformat(text)
        return time if time.tzinfo else time.astimezone()
    except OverflowError as error:  # Its local time is outside the years that datetime supports.
        raise ValueError(str(error)) from error


def local_text(time: datetime, *, timespec: str = "seconds") -> str:
    """Return a time as tables show it: in the local time zone, with its offset."""
    return time.astimezone().isoformat(timespec=timespec)


def utc_text(time: datetime) -> str:
    """Return a time as in JSON output; `time_of` can parse it."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds")


ADDRESS: Final = _Address()
TOPIC: Final = _Name("TOPIC", topic_name_problem)
GROUP: Final = _Name("GROUP", group_name_problem)


class Shell(click.Group):
    """The top-level command, which handles errors of standard output.

    Invariant: when the command ends with 0, all its output has left the process.
    """

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


def namesrv_option(function: FunctionT) -> FunctionT:
    """Add the option `--namesrv`, and the option for how much to log."""
    function = click.option(
        "-v", "--verbose", count=True, help="Log to standard error; twice for more."
    )(function)
    return click.option(
        "--namesrv",
        type=_NameServers(),
        envvar=NAME_SERVERS_VARIABLE,
        default=DEFAULT_NAME_SERVER,
        show_default=True,
        show_envvar=True,
        help="Name servers, several separated by semicolons.",
    )(function)


def json_option(function: FunctionT) -> FunctionT:
    """Add the option `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")(
        function
    )


def run(
    work: Callable[[], Awaitable[None]], *, verbose: int, interrupted_is_done: bool = False
) -> None:
    """Run a command's work to its end; SIGINT and SIGTERM cancel it, so that it cleans up.

    With `interrupted_is_done` an interrupt is the normal end of the command and not an error.
    """
    level = (logging.CRITICAL, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    log_to(sys.stderr, level=level, form="%(levelname)s %(name)s %(message)s")
    interrupted = False

    async def main() -> None:
        nonlocal interrupted
        with trio.open_signal_receiver(*_SIGNALS) as signals:
            async with background_nursery() as nursery:

                async def wait_signal() -> None:
                    nonlocal interrupted
                    await anext(signals)
                    interrupted = True
                    for number in _SIGNALS:  # A second signal ends the process at once.
                        signal.signal(number, signal.SIG_DFL)
                    nursery.cancel_scope.cancel()

                nursery.start_soon(wait_signal)
                with ungrouped():
                    await work()

    try:
        trio.run(main)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    except Error as error:
        fail(str(error))
    if interrupted and not interrupted_is_done:
        fail("interrupted")


def fail(text: str) -> NoReturn:
    """Print one line to standard error and exit with code 1."""
    click.echo(f"error: {' '.join(text.split())}", err=True)
    sys.exit(1)


def print_json(value: Any) -> None:
    """Print one JSON value."""
    click.echo(json.dumps(value, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table for people; None is shown as unknown. Numbers are aligned, and never fold."""
    console = Console(width=None if sys.stdout.isatty() else PIPED_WIDTH, highlight=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    rows = list(rows)
    for index, column in enumerate(columns):
        is_number = any(isinstance(row[index], int) for row in rows)
        table.add_column(
            column,
            overflow="fold",
            justify="right" if is_number else "left",
            no_wrap=is_number,
        )
    for row in rows:
        table.add_row(*[UNKNOWN if value is None else str(value) for value in row])
    console.print(table)
