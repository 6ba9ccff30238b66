"""The commands `rocketrio broker show|stats|clean`."""

from datetime import UTC, datetime

import click

from rocketrio.admin.admin import open_admin
from rocketrio.admin.broker_numbers import BrokerNumber, counts_of, state_of
from rocketrio.admin.broker_upkeep import Cleaning, expected
from rocketrio.admin.broker_upkeep import clean as clean_broker
from rocketrio.cli.commands import Command
from rocketrio.cli.common import ADDRESS, changes, client_options, reads, run
from rocketrio.cli.output import Column, Output
from rocketrio.connect import ClientOptions

_COLUMNS = ("key", "value", Column("unit", cell=lambda row: row["unit"] or ""))
_RAW = click.option("--raw", is_flag=True, help="All keys, as the broker reports them.")


@click.command(cls=Command)
@click.argument("address", type=ADDRESS, metavar="ADDR")
@_RAW
@reads
@client_options
def show(address: str, raw: bool, output: Output, client: ClientOptions, verbose: int) -> None:
    """Show which broker is at ADDR, how full its log and disk are, and what is not written yet.

    \b
    Examples:
      rocketrio broker show 10.0.0.1:10911
      rocketrio broker show 10.0.0.1:10911 --raw --json
    """

    async def work() -> None:
        async with open_admin(**client) as admin:
            runtime = await admin.calls.runtime_info(address)
            settings = {} if raw else await admin.calls.broker_config(address)
        _show(_as_they_are(runtime) if raw else state_of(runtime, settings), output)

    run(work, verbose=verbose)


@click.command(cls=Command)
@click.argument("address", type=ADDRESS, metavar="ADDR")
@_RAW
@reads
@client_options
def stats(address: str, raw: bool, output: Output, client: ClientOptions, verbose: int) -> None:
    """Show how many messages the broker at ADDR stores and delivers, and how long storing takes.

    Rates are of the last 10 seconds, minute and 10 minutes. What a broker has not measured yet is unknown.

    \b
    Example:
      rocketrio broker stats 10.0.0.1:10911
    """

    async def work() -> None:
        async with open_admin(**client) as admin:
            runtime = await admin.calls.runtime_info(address)
        _show(_as_they_are(runtime) if raw else counts_of(runtime), output)

    run(work, verbose=verbose)


def _as_they_are(table: dict[str, str]) -> list[BrokerNumber]:
    return [BrokerNumber(key, value) for key, value in sorted(table.items())]


def _show(numbers: list[BrokerNumber], output: Output) -> None:
    output.show(
        [{"key": one.key, "value": one.value, "unit": one.unit} for one in numbers], _COLUMNS
    )


@click.command(cls=Command)
@click.argument("address", type=ADDRESS, metavar="ADDR")
@click.argument("what", type=click.Choice([each.value for each in Cleaning]))
@changes
@client_options
def clean(
    address: str, what: str, dry_run: bool, output: Output, client: ClientOptions, verbose: int
) -> None:
    """Have the broker at ADDR delete files that it does not need any more, as it does once a day.

    `queues`: files of queues whose messages are no longer in the log. `topics`: queues of topics that it does not have
    any more. `log`: files of the log that are older than the retention (fileReservedTime). Apache's brokers delete
    those of the log within ten seconds after the command.

    \b
    Examples:
      rocketrio broker clean 10.0.0.1:10911 log --dry-run
      rocketrio broker clean 10.0.0.1:10911 queues
    """
    cleaning = Cleaning(what)

    async def work() -> None:
        async with open_admin(**client) as admin:
            kept = None
            if dry_run:
                settings = await admin.calls.broker_config(address)
                kept = settings.get("fileReservedTime", "")
            found = await clean_broker(admin, address, cleaning, dry_run=dry_run)
            now = datetime.fromtimestamp(admin.client.wall_clock.now_ms() / 1000, UTC)
        notes = []
        if kept is not None:
            [oldest] = [one.before for one in found if one.what == "oldest_message"]
            hours = int(kept) if kept.isdecimal() else None
            notes = [expected(cleaning, oldest, hours, now), "nothing was deleted"]
        columns: list[str | Column] = ["what", "before"]
        if not dry_run:
            columns.append("after")
        output.show(
            [
                {"what": one.what, "before": one.before, "after": one.after, "unit": one.unit}
                for one in found
            ],
            [*columns, Column("unit", cell=lambda row: row["unit"] or "")],
            notes=notes,
        )

    run(work, verbose=verbose)
