"""What all commands share: the options for cluster and output, the handling of errors and Ctrl-C.

A command that reads:

    @topic.command()                                    # groups are made with @click.group(cls=Group)
    @click.argument("name", type=TOPIC, metavar="TOPIC")
    @reads                                              # the mark, and the options of output
    @client_options                                     # the options of the cluster
    def show(name: str, output: Output, client: ClientOptions, verbose: int) -> None:
        async def work() -> None:
            async with open_admin(**client) as admin:
                rows = [{"broker_name": one.name, "lag": one.lag} for one in await admin.…]
            output.show(rows, ("broker_name", Column("lag", "behind")))

        run(work, verbose=verbose)

One that changes topics, groups, offsets, rights or brokers has `@changes` in its place: it gets `dry_run: bool` and
`output` too, and is refused in a protected context unless the user confirms. One that stores messages or commits as
programs do has `@sends`: no --dry-run, and no options of output. Without a cluster it has `@reads` or `@local` alone.
`output.show` is in `output.py`; a stream has `@streams`, and prints each row by `output.line`. A command outside of a
group is `@click.command(cls=Command)`.

Invariant: an error is one line on standard error; the exit code is 2 for wrong usage, 3 if some brokers did not
answer, 4 if a plan does not hold any more, 130 after an interrupt, 1 for any other error.
"""

import base64
import functools
import logging
import os
import re
import signal
import ssl
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from math import inf
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import trio
from click.shell_completion import CompletionItem
from rich.text import Text

from rocketrio.admin.admin_values import QueueOffsets
from rocketrio.cli.commands import CallableT, Effect, Kind, Option, mark
from rocketrio.cli.contexts import (
    CONTEXT_VARIABLE,
    Choice,
    choose,
    contexts_path,
    read_contexts,
)
from rocketrio.cli.format_strings import RecordReader, message_printer
from rocketrio.cli.numbers import Duration, Whole
from rocketrio.cli.output import (
    FORMS,
    PIPED_WIDTH,
    UNKNOWN,
    Output,
    console,
    json_text,
    utc_text,
)
from rocketrio.cli.say import warn
from rocketrio.cli.shell import fail
from rocketrio.cluster.account import (
    SECRET_KEY_VARIABLE,
    SECURITY_TOKEN_VARIABLE,
    GivenCredentials,
    file_provider,
)
from rocketrio.cluster.name_servers import (
    DEFAULT_NAME_SERVER,
    NAME_SERVERS_VARIABLE,
    name_server_addresses,
)
from rocketrio.cluster.tls import TLS_CA_FILE_VARIABLE, TLS_VARIABLE, GivenTls
from rocketrio.connect import ClientOptions
from rocketrio.places import (
    AtTime,
    Place,
    PlaceRange,
    place_of,
    range_of,
    time_ms_of,
)
from rocketrio_protocol.credentials import Credentials
from rocketrio_protocol.errors import ConfigError, Error
from rocketrio_protocol.log_lines import LogFormat, log_to, printable
from rocketrio_protocol.message import MessageExt
from rocketrio_protocol.names import group_name_problem, topic_name_problem
from rocketrio_protocol.remoting.ports import SystemWallClock, split_addr
from rocketrio_protocol.remoting.tasks import background_nursery, ungrouped
from rocketrio_protocol.remoting.tls_files import TlsOptions
from rocketrio_protocol.times import nearest_time

__all__ = ["PIPED_WIDTH", "UNKNOWN", "utc_text"]  # for those who import them from here

DONE_IN_PART: Final = 3
"""The exit code if a broker did not answer; standard error says which."""
REFUSED: Final = 4
"""The exit code if what a plan was made for has changed, and nothing was done."""
INTERRUPTED: Final = 130
"""The exit code after Ctrl-C, as shells have it."""
ANSWER_SIZE_MAX: Final = 1024
"""Bytes of a line that a person types."""
_CHOICE: Final = "rocketrio.cluster"
_COMPLETED: Final = re.compile(r"[\w%|.:@\[\]-]+", re.ASCII)
"""A name of a topic, a group or a broker, or an address."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
TIME_EXAMPLE: Final = "2026-11-21T08:00+01:00"
TIME_HELP: Final = f"as {TIME_EXAMPLE} (without a zone, local time) or -1h30m for a time ago"
"""The help text for the format of times."""
PLACE_HELP: Final = f"first, last, N, +N after the first, -N before the end, or a time {TIME_HELP}"
"""The help text for places, as PLACE reads them."""
RANGE_HELP: Final = f"{PLACE_HELP}; A:B also says where to end"
"""The help text for ranges, as RANGE reads them."""

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


def _completions(ctx: click.Context, kind: Kind, incomplete: str) -> list[CompletionItem[str]]:
    from rocketrio.cli.known_names import known_names

    # A shell puts what it is given into the line: names of strangers may have anything in them.
    return [
        CompletionItem(name)
        for name in known_names(ctx, kind)
        if name.startswith(incomplete) and _COMPLETED.fullmatch(name)
    ]


class _Name(click.ParamType[str]):
    """A valid name of a topic or group."""

    def __init__(self, name: str, problem: Callable[[str], str | None], kind: Kind) -> None:
        self.name = name
        self._problem = problem
        self._kind: Kind = kind

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        return _completions(ctx, self._kind, incomplete)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        problem = self._problem(str(value))
        if problem is not None:
            self.fail(problem, param, ctx)
        return str(value)


class _Address(click.ParamType[str]):
    name = "HOST:PORT"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        return _completions(ctx, "addresses", incomplete)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            split_addr(str(value))
        except ConfigError as error:
            self.fail(f"{error}; `rocketrio cluster list` shows them", param, ctx)
        return str(value)


class _NameOrAddress(_Address):
    name = "ADDR|NAME"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        return _completions(ctx, "brokers", incomplete) + super().shell_complete(
            ctx, param, incomplete
        )

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert(value, param, ctx) if ":" in str(value) else str(value)


class _Queue(click.ParamType[tuple[str, int]]):
    name = "BROKER/QUEUE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        broker_name, _, queue_id = str(value).rpartition("/")
        if not broker_name or not queue_id.isdecimal():
            self.fail(f"{value!r} is not a queue like broker-a/3", param, ctx)
        return broker_name, int(queue_id)


class Time(click.ParamType[datetime]):
    """A time; without a zone it is local time."""

    name = "TIME"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        try:
            return typed_time(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class _PlaceType(click.ParamType[Place]):
    """A place in queues, or a time without its `@`."""

    name = "PLACE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Place:
        now_ms = SystemWallClock().now_ms()
        try:
            return place_of(str(value), now_ms)
        except ConfigError as error:
            with suppress(ConfigError):
                return AtTime(time_ms_of(str(value), now_ms))
            self.fail(str(error), param, ctx)


class _RangeType(click.ParamType[PlaceRange]):
    """A range of places, or the one from a place on."""

    name = "PLACE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> PlaceRange:
        if isinstance(value, PlaceRange):
            return value
        now_ms = SystemWallClock().now_ms()
        try:
            return range_of(str(value), now_ms)
        except ConfigError as error:
            with suppress(ConfigError):
                return PlaceRange(AtTime(time_ms_of(str(value), now_ms)))
            self.fail(str(error), param, ctx)


def range_to(since: PlaceRange, until: Place | None) -> PlaceRange:
    """Return the range with the end that `--to` gives. Raises UsageError for two ends, or one before the beginning."""
    if until is None:
        return since
    if since.end is not None:
        raise click.UsageError("give the end once: as --from A:B, or with --to")
    try:
        return PlaceRange(since.start, until)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error


def typed_time(text: str) -> datetime:
    """Return the time that a text names, local time if it has no zone. Raises ValueError for any other text."""
    try:
        return nearest_time(time_ms_of(text, SystemWallClock().now_ms())).astimezone()
    except ConfigError as error:
        raise ValueError(str(error)) from error


def local_text(time: datetime, *, timespec: str = "seconds") -> str:
    """Return a time as tables show it: in the local time zone, with its offset."""
    return time.astimezone().isoformat(timespec=timespec)


_FILE: Final = click.Path(exists=True, dir_okay=False)
ADDRESS: Final = _Address()
QUEUE: Final = _Queue()
PLACE: Final = _PlaceType()
RANGE: Final = _RangeType()
TOPIC: Final = _Name("TOPIC", topic_name_problem, "topics")
GROUP: Final = _Name("GROUP", group_name_problem, "groups")
BROKER: Final = _Name("NAME", lambda name: None, "brokers")
BROKER_OR_ADDRESS: Final = _NameOrAddress()


def _cluster_option(*names: str, **settings: Any) -> Callable[[CallableT], CallableT]:
    return click.option(*names, cls=Option, section="Cluster", **settings)


def client_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say which cluster to use, with which account, and how much to log.

    The function gets the first two as `client`, arguments for `open_admin` and the like.
    """

    @_cluster_option(
        "--namesrv",
        type=_NameServers(),
        help="Name servers, several separated by semicolons.  "
        f"[env var: {NAME_SERVERS_VARIABLE}; default: {DEFAULT_NAME_SERVER}]",
    )
    @_cluster_option(
        "--context",
        "context_name",
        metavar="NAME",
        help=f"A cluster of `rocketrio context list`.  [env var: {CONTEXT_VARIABLE}]",
    )
    @_cluster_option(
        "--credentials-file",
        type=click.Path(dir_okay=False),
        help="A file with the account: accessKey and secretKey, as in Apache's tools.yml.",
    )
    @_cluster_option(
        "--access-key",
        metavar="KEY",
        help=f"The account; its secret comes from {SECRET_KEY_VARIABLE}, or is asked for.",
    )
    @_cluster_option("--tls", is_flag=True, help=f"Connect with TLS, as with {TLS_VARIABLE}=true.")
    @_cluster_option(
        "--tls-ca",
        type=_FILE,
        help=f"The authority of the servers' certificates; without it {TLS_CA_FILE_VARIABLE}.",
    )
    @_cluster_option("--tls-cert", type=_FILE, help="The certificate for servers that ask for one.")
    @_cluster_option(
        "--tls-key", type=_FILE, help="The key of --tls-cert, if it is in another file."
    )
    @_cluster_option(
        "--tls-insecure",
        is_flag=True,
        help="TLS with any server, whatever its certificate: for a first look only.",
    )
    @_cluster_option(
        "--timeout",
        type=Duration(),
        help="How long the whole command may take, as 30s or 5m.",
    )
    @_cluster_option(
        "--per-broker",
        type=Duration(),
        help="How long a server may take to answer a question.  [default: 3s, or 5s]",
    )
    @_cluster_option("-v", "--verbose", count=True, help="Log to standard error; twice for more.")
    @functools.wraps(function)
    def command(
        *args: Any,
        namesrv: tuple[str, ...] | None,
        context_name: str | None,
        timeout: float | None,
        per_broker: float | None,
        credentials_file: str | None,
        access_key: str | None,
        tls: bool,
        tls_ca: str | None,
        tls_cert: str | None,
        tls_key: str | None,
        tls_insecure: bool,
        **options: Any,
    ) -> None:
        cluster = chosen_cluster()
        client = ClientOptions()
        if cluster.context is not None:
            client = cluster.context.client_options()
        client["name_servers"] = cluster.name_servers
        if per_broker is not None:
            client["request_timeout"] = per_broker
        given = _tls(tls, tls_ca, tls_cert, tls_key, is_insecure=tls_insecure)
        if given is not None:
            client["tls"] = given
        credentials = _credentials(credentials_file, access_key)
        if credentials is not None:
            client["credentials"] = credentials
        function(*args, client=client, **options)

    return command


def chosen_cluster() -> Choice:
    """Return the cluster that the options of this command, the environment or the selected context name."""
    context = click.get_current_context()
    choice: Choice | None = context.meta.get(_CHOICE)
    if choice is None:
        try:
            choice = choose(
                read_contexts(contexts_path()),
                namesrv=context.params.get("namesrv"),
                context=context.params.get("context_name"),
                environ=os.environ,
            )
        except ConfigError as error:
            raise click.UsageError(str(error)) from error
        if choice.warning is not None:
            click.echo(f"rocketrio: {choice.warning}", err=True)
        context.meta[_CHOICE] = choice
    return choice


def _confirm(*, yes: bool) -> None:
    """Let a command that changes a protected cluster go on only if the user names that cluster."""
    choice = chosen_cluster()
    if choice.context is None or not choice.context.protected:
        return
    name = str(choice.name)
    if yes and click.get_current_context().params.get("context_name") == name:
        return
    if yes or not sys.stdin.isatty():
        fail(f"the context {name} is protected: give --yes --context {name}", code=REFUSED)
    name_of_it = Text(name, style=f"bold {choice.context.color or 'red'}")
    asked = Text.assemble(name_of_it, " is protected. Type its name to go on:")
    console(stderr=True).print(asked, end="")
    typed = click.prompt("", default="", show_default=False, prompt_suffix=" ", err=True)
    if typed != name:
        fail(f"nothing was done: {typed!r} is not {name}", code=REFUSED)


async def may_be_lost(what: str) -> None:
    """Ask a person at a terminal whether something may be lost for good; end the command unless the answer is yes.

    Programs, which have no terminal, are not asked, nor with --yes, nor where a protected context has asked already.
    """
    context = chosen_cluster().context
    is_asked = context is not None and context.protected
    if is_asked or click.get_current_context().params.get("yes") or not _is_terminal():
        return
    click.echo(f"{printable(what)}. Go on? [y/N] ", nl=False, err=True)
    # In a thread: Ctrl-C must end it. Not by Python's buffer, whose lock an abandoned thread would hold.
    answer = await trio.to_thread.run_sync(
        os.read, sys.stdin.fileno(), ANSWER_SIZE_MAX, abandon_on_cancel=True
    )
    if answer.strip().lower() not in (b"y", b"yes"):
        fail("nothing was done", code=REFUSED)


def _is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def _tls(
    wanted: bool,
    authority: str | None,
    certificate: str | None,
    key: str | None,
    *,
    is_insecure: bool,
) -> GivenTls:
    """Return how a command uses TLS; None for what the environment says. Each option means that it does."""
    if not (authority or certificate or key or is_insecure):
        return True if wanted else None
    authority = authority or os.environ.get(TLS_CA_FILE_VARIABLE) or None
    try:
        options = TlsOptions(authority, certificate, key)
        if not is_insecure:
            return options
        context = options.context()
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    click.echo(
        "rocketrio: --tls-insecure checks no certificate: any host between can read and change everything",
        err=True,
    )
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _credentials(path: str | None, access_key: str | None) -> GivenCredentials:
    """Return the account of a command; None for that of the environment, if there is one.

    A secret is never an argument of a command: other users of the machine can read those.
    """
    if path is not None and access_key is not None:
        raise click.UsageError("give --credentials-file or --access-key, not both")
    if path is not None:
        return file_provider(path)  # Read again while a command runs for long.
    if access_key is None:
        return None
    secret_key = os.environ.get(SECRET_KEY_VARIABLE)
    if not secret_key:
        if not sys.stdin.isatty():
            raise click.UsageError(
                f"--access-key needs its secret in {SECRET_KEY_VARIABLE}, or a terminal to ask for it"
            )
        secret_key = click.prompt(f"Secret key of {access_key}", hide_input=True, err=True)
    try:
        return Credentials(access_key, secret_key, os.environ.get(SECURITY_TOKEN_VARIABLE) or None)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error


def reads(function: Callable[..., None]) -> Callable[..., None]:
    """Mark a command that only reads, and add the options of output: the function gets an `Output` as `output`."""
    return mark(_with_output(function), Effect.READS)


def streams(function: Callable[..., None]) -> Callable[..., None]:
    """Mark a command that reads and prints each row when it comes, by `Output.line`: without --sort and --limit."""
    return mark(_with_output(function, is_stream=True), Effect.READS)


def changes(function: Callable[..., None]) -> Callable[..., None]:
    """Mark a command that changes the cluster, and add --dry-run, as `dry_run`, and the options of output."""
    return _changing(function, lambda options: True)


def changes_with(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Mark a command that changes the cluster only if the parameter `name` is given, and else reads."""
    return lambda function: _changing(function, lambda options: bool(options[name]))


def _changing(
    function: Callable[..., None], does: Callable[[Mapping[str, Any]], bool]
) -> Callable[..., None]:
    @click.option("--dry-run", is_flag=True, help="Show what would change; change nothing.")
    @click.option(
        "--yes",
        is_flag=True,
        help="Do not ask; in a protected context with --context NAME.",
    )
    @functools.wraps(function)
    def command(*args: Any, dry_run: bool, yes: bool, **options: Any) -> None:
        if does(options) and not dry_run:
            _confirm(yes=yes)
        function(*args, dry_run=dry_run, **options)

    return mark(_with_output(command), Effect.CHANGES)


def sends(function: Callable[..., None]) -> Callable[..., None]:
    """Mark a command that stores messages or commits offsets, as programs do."""

    @_yes_option
    @functools.wraps(function)
    def command(*args: Any, yes: bool, **options: Any) -> None:
        _confirm(yes=yes)
        function(*args, **options)

    return mark(command, Effect.SENDS)


def _yes_option(function: CallableT) -> CallableT:
    return click.option(
        "--yes", is_flag=True, help="Do not ask in a protected context that --context names."
    )(function)


def local(function: CallableT) -> CallableT:
    """Mark a command that changes only files of the user."""
    return mark(function, Effect.LOCAL)


class _Names(click.ParamType[tuple[str, ...]]):
    name = "a,b"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        return tuple(name for each in str(value).split(",") if (name := each.strip()))


class _Form(click.Choice[str]):
    """One of the forms of output, or a format string, which has a `%`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(value) if "%" in str(value) else super().convert(value, param, ctx)


class Template(click.ParamType[str]):
    """A format string, see format_strings.py; `is_read` if it is for reading records."""

    name = "FORMAT"

    def __init__(self, *, is_read: bool = False) -> None:
        self._is_read = is_read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            if self._is_read:
                RecordReader(str(value))
            else:
                message_printer(str(value), dict)
        except ConfigError as error:
            self.fail(str(error), param, ctx)
        return str(value)


def _with_output(function: Callable[..., None], *, is_stream: bool = False) -> Callable[..., None]:
    def option(*names: str, **settings: Any) -> Callable[[CallableT], CallableT]:
        return click.option(*names, cls=Option, section="Output", **settings)

    @option(
        "-f",
        "--format",
        "form",
        type=_Form(FORMS),
        metavar="FORM",
        default="table",
        help="table, json, ndjson (an object per line), csv, or a format string as '%f{topic}\\n'.",
    )
    @option("--columns", type=_Names(), default=(), help="Only these columns: keys of the JSON.")
    @option("--no-headers", is_flag=True, help="No line of headings.")
    @option("--utc", is_flag=True, help="Times in UTC, not in local time.")
    @option("--json", "as_json", is_flag=True, help="Print JSON, as --format json.")
    @functools.wraps(function)
    def command(
        *args: Any,
        form: str,
        columns: tuple[str, ...],
        no_headers: bool,
        utc: bool,
        as_json: bool,
        sort: str = "",
        limit: int | None = None,
        **options: Any,
    ) -> None:
        if as_json and form not in ("table", "json"):
            raise click.UsageError(f"give --json or --format {form}, not both")
        output = Output(
            form="json" if as_json else form,
            columns=columns,
            sort=sort,
            limit=limit,
            headers=not no_headers,
            utc=utc,
        )
        function(*args, output=output, **options)

    if is_stream:
        return command
    order = option(
        "--sort", metavar="COLUMN", default="", help="Sort by a column; -COLUMN from the end."
    )
    cut = option("--limit", type=Whole(0), metavar="N", help="Only the first N rows.")
    return order(cut(command))


def json_option(function: FunctionT) -> FunctionT:
    """Add the option `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")(
        function
    )


def whole_timeout() -> float:
    """Return the seconds that the user gives the whole command; infinity without --timeout."""
    given: float | None = click.get_current_context().params.get("timeout")
    return inf if given is None else given


def run(
    work: Callable[[], Awaitable[None]],
    *,
    verbose: int,
    interrupted_is_done: bool = False,
    is_timed: bool = True,
    service_log: LogFormat | None = None,
) -> None:
    """Run a command's work to its end; SIGINT and SIGTERM cancel it, so that it cleans up. So does --timeout.

    With `interrupted_is_done` an interrupt is the normal end of the command and not an error. A command that says more
    than that its time is over asks `whole_timeout` for it, and has `is_timed=False`. With `service_log` the command is
    a service, which logs warnings with their time without `-v` as well.
    """
    timeout = whole_timeout() if is_timed else inf
    level = (logging.CRITICAL, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    form = "%(levelname)s %(name)s %(message)s"
    if service_log is not None:
        level, form = min(level, logging.WARNING), f"%(asctime)s {form}"
    log_to(sys.stderr, level=level, form=form, log_format=service_log or "text")
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
                with ungrouped(), trio.move_on_after(timeout) as limit:
                    await work()
                if limit.cancelled_caught:
                    raise Error(f"not done within {timeout:g} s; --timeout gives it longer")

    try:
        try:
            trio.run(main)
        except ExceptionGroup as group:
            raise _first_of(group) from None
    except ConfigError as error:
        raise click.UsageError(printable(str(error))) from error
    except Error as error:
        fail(str(error))
    if interrupted and not interrupted_is_done:
        fail("interrupted", code=INTERRUPTED)


def _first_of(group: ExceptionGroup[Exception]) -> Exception:
    """Return the first of several errors that came at once, or the group if there are other exceptions in it."""
    errors, others = group.split(Error)
    if others is not None:
        return group
    first: Exception | None = errors
    while isinstance(first, ExceptionGroup):
        first = first.exceptions[0]
    assert first is not None
    return first


def end_in_part(silent: Mapping[str, str]) -> None:
    """Name the brokers that did not answer, if there are any, and exit with code 3."""
    for name, reason in silent.items():
        warn(f"{name} did not answer: {reason}")
    if silent:
        sys.exit(DONE_IN_PART)


def run_in_part(
    work: Callable[[dict[str, str]], Awaitable[None]],
    *,
    verbose: int,
    interrupted_is_done: bool = False,
    is_timed: bool = True,
) -> None:
    """Run as `run`; then name the brokers that the work has noted as silent, with the reason, and exit with code 3."""
    silent: dict[str, str] = {}
    run(
        lambda: work(silent),
        verbose=verbose,
        interrupted_is_done=interrupted_is_done,
        is_timed=is_timed,
    )
    end_in_part(silent)


def without_bounds(queues: Iterable[QueueOffsets]) -> dict[str, str]:
    """Return the brokers that did not tell the bounds of their queues, as `end_in_part` takes them."""
    return {
        one.queue.broker_name: "the bounds of its queues are unknown"
        for one in queues
        if one.min_offset is None or one.max_offset is None
    }


def replace_file(path: Path, text: str) -> None:
    """Write a file whole, beside its place, and move it there."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        new.write_text(text)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def print_json(value: Any) -> None:
    """Print one JSON value. New commands use `Output.show`."""
    click.echo(json_text(value))


def body_fields(message: MessageExt) -> dict[str, object]:
    """Return `body` for JSON as text, or as base64 with `encoding` if it is not UTF-8.

    It is null, with the reason in `body_error`, if it cannot be read: that hides no other message.
    """
    problem = message.body_error
    if problem is not None:
        return {"body": None, "body_error": str(problem)}
    try:
        return {"body": message.body.decode()}
    except UnicodeDecodeError:
        return {"body": base64.b64encode(message.body).decode(), "encoding": "base64"}


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table for people; None is shown as unknown. New commands use `Output.show`."""
    Output().show((dict(zip(columns, row, strict=True)) for row in rows), columns)
