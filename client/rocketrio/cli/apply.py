"""The command `rocketrio apply`: make a cluster have what files say, by a plan that can be shown first."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from rocketrio.cli.call import Call, changes
from rocketrio.cli.cluster_options import may_be_lost
from rocketrio.cli.columns import Column
from rocketrio.cli.commands import Command
from rocketrio.cli.output import Output
from rocketrio.cli.say import warn
from rocketrio.cli.shell import DONE_IN_PART, REFUSED, fail
from rocketrio.counts import counted
from rocketrio_protocol.errors import ConfigError

if TYPE_CHECKING:
    from rocketrio.admin.declared import ApplyPlan, Change, Field


@click.command(cls=Command)
@click.argument(
    "files",
    nargs=-1,
    required=True,
    metavar="FILE...",
    type=click.Path(exists=True, path_type=Path, allow_dash=True),
)
@click.option(
    "--prune",
    is_flag=True,
    help="Remove topics, groups and texts that no file has, of kinds of which a file has any.",
)
@click.option(
    "--plan",
    "digest",
    metavar="ID",
    help="The plan that --dry-run showed: with any other nothing is changed, exit code 4.",
)
@changes
def apply(call: Call, files: tuple[Path, ...], prune: bool, digest: str | None) -> None:
    """Make the cluster have what FILEs say, as `rocketrio export` writes them, and show each change.

    FILE may be a folder, with all its .toml files, or - for standard input. A field that the files omit stays as it is,
    and so does what they do not name, unless --prune removes it. A topic or group without `brokers` is for every
    master. Applying what was exported changes nothing.

    The exit code is 1 if a change was not done, 3 if files name brokers that are not registered, and 4 if what
    --dry-run showed does not hold any more, in which case nothing was changed.

    \b
    Examples:
      rocketrio apply topics.toml --dry-run
      rocketrio apply topics.toml --plan 3f0c2a71b9d4
      rocketrio apply cluster/ --prune --dry-run
    """
    from rocketrio.admin.declared import EXISTS, from_toml
    from rocketrio.admin.reset_plan import PlanChangedError

    wanted: dict[Any, dict[str, Field]] = {}
    for path in _all(files):
        name = "standard input" if str(path) == "-" else str(path)
        text = sys.stdin.read() if str(path) == "-" else path.read_text()
        try:
            found = from_toml(text, name)
        except ConfigError as error:
            raise click.UsageError(str(error)) from error
        for place, fields in found.items():
            if wanted.get(place, fields) != fields:
                raise click.UsageError(f"{name}: another file says something else of {place.name}")
            wanted[place] = fields

    async def work() -> None:
        failed: dict[Change, str] = {}
        refused: str | None = None
        async with call.asking("comparing and changing the cluster"):
            plan = await call.admin.plan_state(wanted, prune=prune)
            if digest is not None and plan.digest != digest:
                refused = f"the plan is {plan.digest} now, not {digest}: nothing was changed"
            elif not call.dry_run:
                removed = [
                    f"{one.place.kind} {one.place.name}"
                    for one in plan.changes
                    if one.field == EXISTS and not one.is_new
                ]
                if removed:
                    await may_be_lost(f"{', '.join(dict.fromkeys(removed))}: these are removed")
                try:
                    failed = await call.admin.apply_state(plan)
                except PlanChangedError as error:
                    refused = str(error)
        _show(plan, failed, call.output, dry_run=call.dry_run, is_refused=refused is not None)
        for name in plan.unknown_brokers:
            warn(f"{name} is not registered: nothing is changed there")
        if refused is not None:
            fail(refused, code=REFUSED)
        if failed:
            fail(f"{len(failed)} of {counted(len(plan.changes), 'change')} were not done")
        if plan.unknown_brokers:
            sys.exit(DONE_IN_PART)

    call.run(work)


def _all(files: tuple[Path, ...]) -> list[Path]:
    found: list[Path] = []
    for path in files:
        if path.is_dir():
            inside = sorted(path.glob("*.toml"))
            if not inside:
                raise click.UsageError(f"{path} has no .toml files")
            found += inside
        else:
            found.append(path)
    return found


_COLUMNS: Final = (
    "kind",
    "name",
    Column("at", cell=lambda row: row["at"] or "-"),
    "change",
    Column("before", cell=lambda row: "-" if row["before"] is None else _text(row["before"])),
    Column("after", cell=lambda row: "-" if row["after"] is None else _text(row["after"])),
)


def _show(
    plan: ApplyPlan, failed: dict[Change, str], output: Output, *, dry_run: bool, is_refused: bool
) -> None:
    def document(rows: list[Any]) -> Any:
        return {
            "plan": plan.digest,
            "is_dry_run": dry_run,
            "changes": rows,
            "unknown_brokers": list(plan.unknown_brokers),
        }

    is_done = not dry_run and not is_refused
    rows = [
        {
            "kind": one.place.kind,
            "name": one.place.name,
            "at": one.place.at or None,
            "change": _change(one),
            "before": one.before,
            "after": one.after,
            "is_done": is_done and one not in failed,
            "problem": failed.get(one),
        }
        for one in plan.changes
    ]
    if not plan.changes:
        note = "nothing differs"
    elif dry_run:
        note = f"{counted(len(rows), 'change')}; nothing was changed. With --plan {plan.digest} exactly these are made"
    elif is_refused:
        note = f"{counted(len(rows), 'change')}; nothing was changed"
    else:
        note = f"{len(rows) - len(failed)} of {counted(len(rows), 'change')} {'is' if len(rows) == 1 else 'are'} done"
    problems = [
        f"not done: {one.place.name} {one.place.at} {_change(one)}: {why}"
        for one, why in failed.items()
    ]
    people = None if rows else ""
    output.show(rows, _COLUMNS, document=document, people=people, notes=[*problems, note])


def _change(one: Change) -> str:
    from rocketrio.admin.declared import EXISTS

    if one.field == EXISTS:
        return "create" if one.is_new else "remove"
    return f"create: {one.field}" if one.is_new else one.field


def _text(value: Field) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
