"""The command `rocketrio export`: topics, groups, settings and texts of a cluster as TOML files."""

from pathlib import Path

import click

from rocketrio.admin.admin import open_admin
from rocketrio.admin.apply import read_state
from rocketrio.admin.declared import KINDS, Field, Kind, Place, to_toml
from rocketrio.cli.commands import Command
from rocketrio.cli.common import client_options, reads, replace_file, run
from rocketrio.cli.output import Output
from rocketrio.cli.progress import showing_progress
from rocketrio.connect import ClientOptions


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
@client_options
def export(
    folder: Path | None,
    kinds: tuple[Kind, ...],
    namespaces: tuple[str, ...],
    output: Output,
    client: ClientOptions,
    verbose: int,
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
    chosen = kinds or KINDS
    state: dict[Place, dict[str, Field]] = {}

    async def work() -> None:
        async with open_admin(**client) as admin, showing_progress("reading the cluster"):
            state.update(await read_state(admin, chosen, namespaces=namespaces))

    run(work, verbose=verbose)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        for kind in chosen:
            replace_file(folder / f"{kind}.toml", to_toml(state, kind))
            count = len({place.name for place in state if place.kind == kind})
            click.echo(f"{folder / f'{kind}.toml'}: {count} {kind}", err=True)
    elif output.for_people:
        click.echo("\n".join(filter(None, (to_toml(state, kind) for kind in chosen))), nl=False)
    else:
        output.show(
            [
                {"kind": one.kind, "name": one.name, "at": one.at or None, "fields": fields}
                for one, fields in state.items()
            ]
        )
