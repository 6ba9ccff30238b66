"""The command `rocketrio producers`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rocketrio.cli.call import Call, reads
from rocketrio.cli.clients import CLIENTS
from rocketrio.cli.columns import hidden
from rocketrio.cli.commands import Command
from rocketrio.cli.types import GROUP, TOPIC

if TYPE_CHECKING:
    pass


@click.command(cls=Command)
@click.argument("topic", type=TOPIC)
@click.option("--group", type=GROUP, help="Only producers of this group.")
@reads
async def producers(call: Call, topic: str, group: str | None) -> None:
    """List the producers that are connected to the brokers of TOPIC.

    Brokers do not know to which topics a producer sends: these may send to it.

    \b
    Examples:
      rocketrio producers orders
      rocketrio producers orders --group shop --json
    """

    async with call.asking("asking brokers"):
        found = await call.admin.producers_of(topic, group=group)
    call.output.show(found.clients, (*CLIENTS[:-2], "produces", hidden("consumes")))
    call.silent.update(found.silent)
