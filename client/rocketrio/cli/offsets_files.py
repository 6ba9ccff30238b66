"""The commands `rocketrio offsets export|delete`."""

import attrs
import click

from rocketrio.admin.admin import open_admin
from rocketrio.admin.offset_files import CommittedOffset, committed_offsets, delete_offsets
from rocketrio.cli.asking import asking
from rocketrio.cli.commands import Command
from rocketrio.cli.common import GROUP, changes, client_options, may_be_lost, reads, run
from rocketrio.cli.output import Output
from rocketrio.connect import ClientOptions
from rocketrio.counts import counted

_COLUMNS = ("topic", "broker_name", "queue_id", "offset")


@click.command(cls=Command)
@click.argument("group", type=GROUP)
@reads
@client_options
def export(group: str, output: Output, client: ClientOptions, verbose: int) -> None:
    """Print all committed offsets of GROUP as CSV, or with --json: what `offsets reset --from-file` takes.

    Its retry topic is included. It is an error if a master does not answer: a part would reset a part.

    \b
    Examples:
      rocketrio offsets export billing > billing.csv
      rocketrio offsets reset billing --from-file billing.csv --dry-run
    """
    found: list[CommittedOffset] = []

    async def work() -> None:
        async with asking(f"asking about {group}", client) as admin:
            found.extend(await committed_offsets(admin, group))

    run(work, verbose=verbose)
    if output.for_people:  # A table could not be read back.
        output = attrs.evolve(output, form="csv")
    output.show([attrs.asdict(one) for one in found], _COLUMNS)


@click.command(cls=Command)
@click.argument("group", type=GROUP)
@changes
@client_options
def delete(group: str, dry_run: bool, output: Output, client: ClientOptions, verbose: int) -> None:
    """Delete all committed offsets of GROUP, and keep the group; it must have no members.

    Members that start later begin where new groups do. Keep what is deleted: `offsets export` writes it to a file.

    \b
    Examples:
      rocketrio offsets delete billing --dry-run
      rocketrio offsets delete billing
    """
    found: list[CommittedOffset] = []

    async def work() -> None:
        async with open_admin(**client) as admin:
            if not dry_run:
                lost = counted(len(await committed_offsets(admin, group)), "committed offset")
                await may_be_lost(f"{group} loses {lost}; `rocketrio offsets export` keeps them")
            found.extend(await delete_offsets(admin, group, dry_run=dry_run))

    run(work, verbose=verbose)
    output.show(
        [attrs.asdict(one) for one in found],
        _COLUMNS,
        people=None if found else f"{group} has committed nothing",
        notes=["nothing was deleted" if dry_run else f"deleted {counted(len(found), 'offset')}"],
    )
