"""The command `rocketrio export`: topics, groups, settings and texts of a cluster as TOML files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from rocketrio.cli.call import Call, reads
from rocketrio.cli.commands import Command
from rocketrio.cli.replaced_file import replace_file

if TYPE_CHECKING:
    from rocketrio.admin.declared import DeclaredPlace, Field, Kind

KINDS: Final[tuple[Kind, ...]] = ("topics", "groups", "settings", "kv")
"""As `rocketrio.admin.declared`, which is imported only to export."""


@click.command(cls=Command)
@click.argument("folder", required=False, type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--kind",
    "kinds",
    type=click.Choice(KINDS),
    multiple=True,
    help="Only this kind; several are possible.  [default: all]",
)
@click.option(
    "--namespace",
    "namespaces",
    multiple=True,
    help="A further namespace of kv: name servers do not list them.  [default: ORDER_TOPIC_CONFIG]",
)
@reads
async def export(
    call: Call, folder: Path | None, kinds: tuple[Kind, ...], namespaces: tuple[str, ...]
) -> None:
    """Write topics, groups, settings and the texts of name servers as TOML, for `rocketrio apply`.

    They go to topics.toml, groups.toml, settings.toml and kv.toml in FOLDER, or together to standard output. What
    belongs to RocketMQ itself, secrets, and settings of one broker alone (names, addresses, paths) are left out. If a
    broker does not answer, nothing is written: a part would look like the whole.

    \b
    Examples:
      rocketrio export cluster/
      rocketrio export --kind topics > topics.toml
      rocketrio export --kind groups --json
    """
    from rocketrio.admin.declared import to_toml

    chosen = kinds or KINDS
    async with call.asking("reading the cluster"):
        state = await call.admin.read_state(chosen, namespaces=namespaces)
    if folder is not None:
        _write(state, folder, chosen)
    elif call.output.for_people:
        click.echo("\n".join(filter(None, (to_toml(state, kind) for kind in chosen))), nl=False)
    else:
        call.output.show(
            [
                {"kind": one.kind, "name": one.name, "at": one.at or None, "fields": fields}
                for one, fields in state.items()
            ]
        )


def _write(
    state: Mapping[DeclaredPlace, Mapping[str, Field]], folder: Path, kinds: tuple[Kind, ...]
) -> None:
    from rocketrio.admin.declared import to_toml

    folder.mkdir(parents=True, exist_ok=True)
    for kind in kinds:
        replace_file(folder / f"{kind}.toml", to_toml(state, kind))
        count = len({place.name for place in state if place.kind == kind})
        click.echo(f"{folder / f'{kind}.toml'}: {count} {kind}", err=True)
