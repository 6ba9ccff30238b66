"""One call of a command: the decorators of commands, what the user gave, and how the work runs and ends.

A command is an async function of a `Call`:

    @topic.command()                                    # groups are made with @click.group(cls=Group)
    @click.argument("name", type=TOPIC, metavar="TOPIC")
    @reads                                              # the mark, the options of output and those of the cluster
    async def show(call: Call, name: str) -> None:
        async with call.asking(f"asking about {name}"):
            found = await call.admin.offsets(name)
        call.output.show(found, ("broker_name", Column("lag", heading="behind")))

One that changes topics, groups, offsets, rights or brokers has `@changes` in its place: `call.dry_run` says whether it
only shows what it would do, and it is refused in a protected context unless the user confirms. One that stores messages
or commits as programs do has `@sends`: no --dry-run, no options of output, and no admin. A stream has `@streams`, and
prints each row by `call.output.line`. A command outside of a group is `@click.command(cls=Command)`. One that must ask
at the terminal first is a plain function, and runs the rest by `call.run`.

A command file is imported for a help text too: what only the work needs is imported by the work.

Invariant: an error is one line on standard error; the exit code is 2 for wrong usage, 3 if some brokers did not
answer, 4 if a plan does not hold any more, 130 after an interrupt, 1 for any other error.
"""

from __future__ import annotations

import functools
import inspect
import logging
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs
import click

from rocketrio.cli.cluster_options import client_options, confirm
from rocketrio.cli.commands import CallableT, Effect, SectionOption, mark
from rocketrio.cli.numbers import Whole
from rocketrio.cli.output import FORMS, Output
from rocketrio.cli.progress import showing_progress
from rocketrio.cli.say import warn
from rocketrio.cli.shell import DONE_IN_PART, INTERRUPTED, fail
from rocketrio_protocol.errors import ConfigError, Error
from rocketrio_protocol.log_lines import LogFormat, log_to, printable

if TYPE_CHECKING:
    import trio

    from rocketrio.admin.admin import Admin
    from rocketrio.admin.offsets import QueueOffsets
    from rocketrio.connect import ClientOptions

Work: TypeAlias = Callable[..., Any]
"""A command's function, async or not: it gets the `Call`, and its own arguments and options."""
Callback: TypeAlias = Callable[..., None]
"""What click calls."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@attrs.define
class Call:
    """What a command was given, and what becomes of it."""

    output: Output
    client: ClientOptions
    """The cluster and the account, as arguments for `open_admin` and the like."""
    verbose: int = 0
    dry_run: bool = False
    is_endless: bool = False
    """Whether Ctrl-C is the normal end of the command, and not an error."""
    limit: trio.CancelScope = attrs.field(init=False)
    """Cancels the work when --timeout is over; a command that says more than that moves the deadline to infinity."""
    silent: dict[str, str] = attrs.field(factory=dict)
    """The servers that did not answer, with the reason: they are named at the end, and the exit code is 3."""
    _admin: Admin | None = None

    @property
    def admin(self) -> Admin:
        """The administration of the cluster."""
        assert self._admin is not None, "the command has no admin: it is not async, or it sends"
        return self._admin

    @asynccontextmanager
    async def asking(self, what: str, *, when: bool = True) -> AsyncGenerator[None]:
        """Show `what` for as long as the body asks the cluster; with `when` false show nothing.

        The body prints nothing: the command does that afterwards, when the line is gone.
        """
        async with showing_progress(what, when=when):
            yield

    def run(
        self,
        work: Callable[[], Awaitable[None]],
        *,
        with_admin: bool = True,
        service_log: LogFormat | None = None,
    ) -> None:
        """Run the command's work to its end, with `admin` open, and name the servers that did not answer.

        SIGINT and SIGTERM cancel it, so that it cleans up. So does --timeout. With `service_log` the command is a
        service, which logs warnings with their time without `-v` as well.
        """
        import trio

        from rocketrio_protocol.remoting.tasks import background_nursery, ungrouped

        timeout = whole_timeout()
        level = (logging.CRITICAL, logging.INFO, logging.DEBUG)[min(self.verbose, 2)]
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
                    with ungrouped(), trio.move_on_after(timeout) as self.limit:
                        await (self._with_admin(work) if with_admin else work())
                    if self.limit.cancelled_caught:
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
        if interrupted and not self.is_endless:
            fail("interrupted", code=INTERRUPTED)
        end_in_part(self.silent)

    async def _with_admin(self, work: Callable[[], Awaitable[None]]) -> None:
        from rocketrio.admin.admin import open_admin

        async with open_admin(**self.client) as self._admin:
            await work()


# ---------------------------------------------------------------------------------------- decorators


def reads(function: Work) -> Callback:
    """Make a command that only reads, with the options of output and of the cluster."""
    return mark(_with_output(_called(function)), Effect.READS)


def reads_files(function: Work) -> Callback:
    """Make a command that only reads files of the user, with the options of output, and without a cluster."""
    return mark(_with_output(_called(function, with_cluster=False)), Effect.READS)


def reads_alone(function: Work) -> Callback:
    """Make a command that only reads, and prints in a way of its own: without the options of output."""
    return mark(_called(function), Effect.READS)


def streams(function: Work) -> Callback:
    """Make a command that reads and prints each row when it comes, by `Output.line`: without --sort and --limit."""
    return mark(_with_output(_called(function), is_stream=True), Effect.READS)


def changes(function: Work) -> Callback:
    """Make a command that changes the cluster, with --dry-run, and the options of output and of the cluster."""
    return _changing(function, lambda options: True)


def changes_with(name: str) -> Callable[[Work], Callback]:
    """Make a command that changes the cluster only if the parameter `name` is given, and else reads."""
    return lambda function: _changing(function, lambda options: bool(options[name]))


def _changing(function: Work, does: Callable[[Mapping[str, Any]], bool]) -> Callback:
    inner = _called(function)

    @click.option("--dry-run", is_flag=True, help="Show what would change; change nothing.")
    @click.option(
        "--yes",
        is_flag=True,
        help="Do not ask; in a protected context with --context NAME.",
    )
    @functools.wraps(inner)
    def command(*, dry_run: bool, yes: bool, **options: Any) -> None:
        if does(options) and not dry_run:
            confirm(yes=yes)
        inner(dry_run=dry_run, **options)

    return mark(_with_output(command), Effect.CHANGES)


def sends(function: Work) -> Callback:
    """Make a command that stores messages or commits offsets, as programs do; it opens what it needs itself."""
    inner = _called(function, with_admin=False)

    @click.option(
        "--yes", is_flag=True, help="Do not ask in a protected context that --context names."
    )
    @functools.wraps(inner)
    def command(*, yes: bool, **options: Any) -> None:
        confirm(yes=yes)
        inner(**options)

    return mark(command, Effect.SENDS)


def local(function: CallableT) -> CallableT:
    """Mark a command that changes only files of the user; its function gets no `Call`."""
    return mark(function, Effect.LOCAL)


def saves(function: Work) -> Callback:
    """Make a command that reads the cluster, and changes only files of the user."""
    return mark(_called(function), Effect.LOCAL)


def _called(function: Work, *, with_cluster: bool = True, with_admin: bool = True) -> Callback:
    """Return the callback of a command, which gives the function its `Call`."""

    @functools.wraps(function)
    def command(
        *,
        client: ClientOptions | None = None,
        output: Output | None = None,
        verbose: int = 0,
        dry_run: bool = False,
        **options: Any,
    ) -> None:
        call = Call(output or Output(), client or {}, verbose, dry_run)
        work = functools.partial(function, call, **options)
        if inspect.iscoroutinefunction(function):
            call.run(work, with_admin=with_cluster and with_admin)
        else:
            work()

    return client_options(command) if with_cluster else command


# --------------------------------------------------------------------------------- options of output


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


def _with_output(function: Callback, *, is_stream: bool = False) -> Callback:
    def option(*names: str, **settings: Any) -> Callable[[CallableT], CallableT]:
        return click.option(*names, cls=SectionOption, section="Output", **settings)

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
        *,
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
        function(output=output, **options)

    if is_stream:
        return command
    order = option(
        "--sort", metavar="COLUMN", default="", help="Sort by a column; -COLUMN from the end."
    )
    cut = option("--limit", type=Whole(0), metavar="N", help="Only the first N rows.")
    return order(cut(command))


# ------------------------------------------------------------------------------------------- its end


def whole_timeout() -> float:
    """Return the seconds that the user gives the whole command; infinity without --timeout."""
    given: float | None = click.get_current_context().params.get("timeout")
    return inf if given is None else given


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


def without_bounds(queues: Iterable[QueueOffsets]) -> dict[str, str]:
    """Return the brokers that did not tell the bounds of their queues, for `Call.silent`."""
    return {
        one.queue.broker_name: "the bounds of its queues are unknown"
        for one in queues
        if one.min_offset is None or one.max_offset is None
    }
