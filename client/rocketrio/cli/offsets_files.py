"""The commands `rocketrio offsets export|delete`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import click

from rocketrio.cli.call import Call, changes, reads
from rocketrio.cli.cluster_options import may_be_lost
from rocketrio.cli.commands import Command
from rocketrio.cli.types import GROUP
from rocketrio.counts import counted

if TYPE_CHECKING:
    pass

_COLUMNS = ("topic", "broker_name", "queue_id", "offset")


@click.command(cls=Command)
@click.argument("group", type=GROUP)
@reads
async def export(call: Call, group: str) -> None:
    """Print all committed offsets of GROUP as CSV, or with --json: what `offsets reset --from-file` takes.

    Its retry topic is included. It is an error if a master does not answer: a part would reset a part.

    \b
    Examples:
      rocketrio offsets export billing > billing.csv
      rocketrio offsets reset billing --from-file billing.csv --dry-run
    """
    from rocketrio.admin.offset_files import committed_offsets

    async with call.asking(f"asking about {group}"):
        found = await committed_offsets(call.admin, group)
    if call.output.for_people:  # A table could not be read back.
        call.output = attrs.evolve(call.output, form="csv")
    call.output.show(found, _COLUMNS)


@click.command(cls=Command)
@click.argument("group", type=GROUP)
@changes
async def delete(call: Call, group: str) -> None:
    """Delete all committed offsets of GROUP, and keep the group; it must have no members.

    Members that start later begin where new groups do. Keep what is deleted: `offsets export` writes it to a file.

    \b
    Examples:
      rocketrio offsets delete billing --dry-run
      rocketrio offsets delete billing
    """
    from rocketrio.admin.offset_files import committed_offsets, delete_offsets

    if not call.dry_run:
        lost = counted(len(await committed_offsets(call.admin, group)), "committed offset")
        await may_be_lost(f"{group} loses {lost}; `rocketrio offsets export` keeps them")
    found = await delete_offsets(call.admin, group, dry_run=call.dry_run)
    call.output.show(
        found,
        _COLUMNS,
        people=None if found else f"{group} has committed nothing",
        notes=[
            "nothing was deleted" if call.dry_run else f"deleted {counted(len(found), 'offset')}"
        ],
    )
