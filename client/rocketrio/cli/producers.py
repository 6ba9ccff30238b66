"""The command `rocketrio producers`."""

import click

from rocketrio.admin.clients import ConnectedClients, producers_of
from rocketrio.cli.asking import asking
from rocketrio.cli.clients import client_row
from rocketrio.cli.commands import Command
from rocketrio.cli.common import GROUP, TOPIC, client_options, end_in_part, reads, run
from rocketrio.cli.output import Output
from rocketrio.connect import ClientOptions


@click.command(cls=Command)
@click.argument("topic", type=TOPIC)
@click.option("--group", type=GROUP, help="Only producers of this group.")
@reads
@client_options
def producers(
    topic: str, group: str | None, output: Output, client: ClientOptions, verbose: int
) -> None:
    """List the producers that are connected to the brokers of TOPIC.

    Brokers do not know to which topics a producer sends: these may send to it.

    \b
    Examples:
      rocketrio producers orders
      rocketrio producers orders --group shop --json
    """
    found: list[ConnectedClients] = []

    async def work() -> None:
        async with asking("asking brokers", client) as admin:
            found.append(await producers_of(admin, topic, group=group))

    run(work, verbose=verbose)
    output.show(
        [client_row(one) for one in found[0].clients],
        ("client_id", "address", "language", "version", "produces"),
    )
    end_in_part(found[0].silent)
