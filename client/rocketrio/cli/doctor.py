"""The command `rocketrio doctor`: numbered findings about a whole cluster, and a bundle for someone who helps.

Exit codes: 0 nothing is wrong, 1 warnings, 2 errors, 3 nothing was found but something could not be asked, or needs
more samples. Wrong usage has 3 too, because 2 would be read as errors.
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from rocketrio.cli.call import Call, reads
from rocketrio.cli.commands import Command
from rocketrio.cli.numbers import Whole
from rocketrio.cli.output import Output
from rocketrio.cli.refining import refined, seconds_of, window_options
from rocketrio.cli.shell import DONE_IN_PART, fail
from rocketrio.cli.types import GROUP, TOPIC
from rocketrio.counts import plural
from rocketrio.thresholds import Severity
from rocketrio_protocol.errors import ConfigError, Error
from rocketrio_protocol.log_lines import LineFormatter, printable

if TYPE_CHECKING:
    from rich.console import Group, RenderableType

    from rocketrio.admin.diagnosis import Diagnosis
    from rocketrio.admin.diagnosis.rule import Finding
    from rocketrio.admin.diagnosis.snapshot import Snapshot
    from rocketrio.admin.events import BrokerEvent
    from rocketrio.admin.lag import LagWindow

_EXIT: Final = {None: 0, Severity.WARNING: 1, Severity.ERROR: 2}
_COLORS: Final = {Severity.WARNING: "yellow", Severity.ERROR: "red"}
_LOG_LIMIT: Final = 4 << 20
"""Characters of our own log in a bundle."""


class _Doctor(Command):
    """The command; after wrong usage nothing is known, exit code 3, because 2 says that errors were found."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        try:
            return super().make_context(*args, **extra)
        except click.UsageError as error:
            error.show()
            sys.exit(DONE_IN_PART)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            error.show()
            sys.exit(DONE_IN_PART)


@click.command(cls=_Doctor)
@click.option(
    "--group",
    "groups",
    type=GROUP,
    multiple=True,
    help="Of groups only this one; several are possible.",
)
@click.option(
    "--slaves",
    type=Whole(0),
    metavar="N",
    help="How many slaves each master should have: one that was stopped is not registered any more.",
)
@click.option(
    "--send",
    "probe",
    type=TOPIC,
    metavar="TOPIC",
    help="Compare clocks by a message to each master of this topic: Apache's brokers report none.",
)
@window_options
@click.option(
    "--ignore",
    "ignored",
    metavar="CODE",
    multiple=True,
    help="Omit findings with this code; several are possible.",
)
@click.option("--list", "as_list", is_flag=True, help="List all codes, and ask nothing.")
@click.option(
    "--bundle",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write what was asked to this archive (tar.gz), without secrets and messages.",
)
@reads
async def doctor(
    call: Call,
    groups: tuple[str, ...],
    slaves: int | None,
    probe: str | None,
    window: float | None,
    once: bool,
    ignored: tuple[str, ...],
    as_list: bool,
    bundle: Path | None,
) -> None:
    """Find what is wrong with a cluster: name servers, brokers, replication, storage, groups, settings.

    Everything is asked once, only by requests that read, unless --send stores messages, and the answer comes at once.
    In a terminal groups are then watched for up to a minute, unless all keep up before; elsewhere only --window
    watches. The exit code is 0 if nothing is wrong, 1 after warnings, 2 after errors, and 3 if nothing was found and
    something could not be asked or needs a window, also after wrong usage. docs/doctor.md explains each code.

    \b
    Examples:
      rocketrio doctor
      rocketrio doctor --once --slaves 1 --ignore C02
      rocketrio doctor --window 60s > findings.txt
      rocketrio doctor --group billing --json
      rocketrio doctor --bundle case.tar.gz
    """
    import trio

    from rocketrio.admin.diagnosis import CODES, diagnosis_of
    from rocketrio.admin.diagnosis.bundle import bundle_of, write_bundle
    from rocketrio.admin.diagnosis.rule import link_of

    if as_list:
        rows = [
            {"code": code, "meaning": what, "link": link_of(code)} for code, what in CODES.items()
        ]
        call.output.show(rows)
        return
    for code in ignored:
        if code not in CODES:
            raise click.UsageError(f"there is no code {code!r}; --list shows them")
    if bundle is not None:
        _must_be_new(bundle)
    length = seconds_of(window, once=once, output=call.output)

    async def watched(samples: LagWindow, seen: Snapshot) -> Snapshot:
        async def answer() -> Snapshot:
            return seen.with_lag(await samples.report())

        try:
            return await refined(
                samples, answer, lambda so_far: _people(_without(diagnosis_of(so_far), ignored))
            )
        except Error as error:  # What was found before stays found.
            return seen.without_later_lag(error)

    async def ask() -> Diagnosis:
        events: Sequence[BrokerEvent] = ()
        more: dict[str, Any] = {}
        with _kept_log(wanted=bundle is not None) as log:
            seen = await call.admin.whole_snapshot(*groups, seconds=0, slaves=slaves)
            if probe is not None:
                seen = seen.with_clocks(await call.admin.compare_clocks(probe))
            if length and seen.lag is not None:
                seen = await watched(call.admin.lag_window(*groups, seconds=length), seen)
            if bundle is not None:
                events = await call.admin.events().poll()
                more.update(await call.admin.bundle_files(seen))
            found = _without(diagnosis_of(seen), ignored)
        if bundle is not None:
            files = bundle_of(seen, found, events=events, log=log.getvalue(), more=more)
            await trio.to_thread.run_sync(write_bundle, bundle, files)
        return found

    try:
        found = await ask()
    except ConfigError:
        raise
    except Error as error:
        fail(str(error), code=DONE_IN_PART)
    _show(found, call.output)
    if bundle is not None:
        click.echo(
            f"{bundle} holds names of topics, groups and hosts: look through it first", err=True
        )
    exit_code = _EXIT[found.worst]
    sys.exit(DONE_IN_PART if exit_code == 0 and found.unknown else exit_code)


def _must_be_new(path: Path) -> None:
    if path.exists():
        raise click.UsageError(f"{path} exists; name another file")


@contextmanager
def _kept_log(*, wanted: bool) -> Generator[io.StringIO]:
    """Keep what this process logs meanwhile."""
    kept = io.StringIO()
    if not wanted:
        yield kept
        return
    handler = logging.StreamHandler(kept)
    handler.setFormatter(LineFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    handler.addFilter(lambda _: kept.tell() < _LOG_LIMIT)
    loggers = [logging.getLogger(name) for name in ("rocketrio", "rocketrio_protocol")]
    levels = [one.level for one in loggers]
    for one in loggers:
        one.addHandler(handler)
        one.setLevel(logging.DEBUG)
    try:
        yield kept
    finally:
        for one, level in zip(loggers, levels, strict=True):
            one.removeHandler(handler)
            one.setLevel(level)


def _without(found: Diagnosis, ignored: Sequence[str]) -> Diagnosis:
    kept = [one for one in found.findings if one.code not in ignored]
    return attrs.evolve(found, findings=kept)


def _show(found: Diagnosis, output: Output) -> None:
    from rich.console import Group

    def document(rows: list[Any]) -> Any:
        return {
            "findings": rows,
            "unknown": dict(found.unknown),
            "not_judged": dict(found.not_judged),
            "brokers": found.brokers,
            "groups": found.groups,
        }

    rows = [{name: getattr(one, name) for name in _ROW} for one in found.findings]
    people = Group(*_lines(found.findings))
    output.show(rows, _COLUMNS, document=document, people=people, notes=_notes(found))


def _people(found: Diagnosis) -> Group:
    from rich.console import Group
    from rich.text import Text

    return Group(*_lines(found.findings), *map(Text, _notes(found)))


def _notes(found: Diagnosis) -> list[str]:
    return [
        *(f"not known: {printable(what)}: {printable(why)}" for what, why in found.unknown.items()),
        *(
            f"not judged: {printable(what)}: {printable(why)}"
            for what, why in found.not_judged.items()
        ),
        _summary(found),
    ]


_ROW: Final = ("severity", "code", "where", "what", "advice", "seconds", "link")
_COLUMNS: Final = tuple(name for name in _ROW if name != "seconds")


def _lines(findings: Sequence[Finding]) -> Iterator[RenderableType]:
    from rich.padding import Padding
    from rich.text import Text

    for one in findings:
        yield Text.assemble(
            (f"{one.severity.value:<8}", _COLORS[one.severity]),
            (f"{one.code}  ", "bold"),
            (f"{printable(one.where)} ", "bold"),
            printable(one.what),
        )
        advice = Text(f"{printable(one.advice)}. See {one.link}", "dim")
        yield Padding(advice, (0, 0, 0, 13), expand=False)


def _summary(found: Diagnosis) -> str:
    asked = f"{_count(found.brokers, 'broker')} and {_count(found.groups, 'group')}"
    if found.findings:
        errors = sum(one.severity is Severity.ERROR for one in found.findings)
        warnings = len(found.findings) - errors
        return f"{_count(errors, 'error')} and {_count(warnings, 'warning')} about {asked}"
    if found.unknown:
        return f"nothing was found about {asked}, but not everything is known"
    return f"nothing is wrong with {asked}"


def _count(number: int, what: str) -> str:
    return f"{number} {plural(number, what)}"
