"""The command `rocketrio group mode`."""

import click

from rocketrio.admin.admin import open_admin
from rocketrio.admin.group_overview import Mode, set_mode
from rocketrio.cli.commands import Command
from rocketrio.cli.common import GROUP, TOPIC, changes, client_options, run
from rocketrio.cli.numbers import Whole
from rocketrio.cli.output import Column, Output
from rocketrio.connect import ClientOptions


@click.command(cls=Command)
@click.argument("name", type=GROUP, metavar="GROUP")
@click.argument("topic", type=TOPIC)
@click.argument("mode", type=click.Choice(["pull", "pop"]), metavar="pull|pop")
@click.option(
    "--share-queues",
    type=Whole(0),
    default=0,
    show_default=True,
    help="In pop mode: how many more members share the queues of one.",
)
@changes
@client_options
def mode(
    name: str,
    topic: str,
    mode: Mode,
    share_queues: int,
    dry_run: bool,
    output: Output,
    client: ClientOptions,
    verbose: int,
) -> None:
    """Have the members of GROUP ask for the messages of TOPIC by pull or by pop, at Apache's brokers of 5.0 and later.

    Java's members that leave the sharing of queues to brokers follow it within 20 seconds; others pull. Rocketrio
    brokers, and Apache's before 5.0, know pull only.

    \b
    Example:
      rocketrio group mode billing orders pop --dry-run
    """

    async def work() -> None:
        async with open_admin(**client) as admin:
            found = await set_mode(
                admin, name, topic, mode, share_queues=share_queues, dry_run=dry_run
            )
        output.show(
            [
                {"broker_name": one.broker_name, "before": one.before, "after": one.after}
                for one in found
            ],
            ("broker_name", Column("before", cell=lambda row: row["before"] or "pull"), "after"),
        )

    run(work, verbose=verbose)
