"""The commands `rocketrio broker show|stats|clean`."""

from collections.abc import Awaitable, Callable

import click

from rocketrio.admin.admin import Admin, open_admin
from rocketrio.admin.broker_numbers import BrokerNumber, counts_of, state_of
from rocketrio.admin.broker_upkeep import Cleaning, expected
from rocketrio.admin.broker_upkeep import clean as clean_broker
from rocketrio.admin.cluster_questions import ask_each
from rocketrio.cli.asking import address_of, addresses_of, asking
from rocketrio.cli.commands import Command
from rocketrio.cli.common import (
    BROKER_OR_ADDRESS,
    changes,
    client_options,
    may_be_lost,
    reads,
    run,
    run_in_part,
)
from rocketrio.cli.output import Column, Output
from rocketrio.connect import ClientOptions
from rocketrio_protocol.times import nearest_time

_COLUMNS = ("key", "value", Column("unit", cell=lambda row: row["unit"] or ""))
_RAW = click.option("--raw", is_flag=True, help="All keys, as the broker reports them.")


@click.command(cls=Command)
@click.argument("broker", type=BROKER_OR_ADDRESS, metavar="ADDR|NAME")
@_RAW
@reads
@client_options
def show(broker: str, raw: bool, output: Output, client: ClientOptions, verbose: int) -> None:
    """Show how full the log and disk of the broker at ADDR, or of all brokers of a NAME, are, and what is not written.

    \b
    Examples:
      rocketrio broker show broker-a
      rocketrio broker show 10.0.0.1:10911
      rocketrio broker show 10.0.0.1:10911 --raw --json
    """

    async def numbers(admin: Admin, address: str) -> list[BrokerNumber]:
        runtime = await admin.calls.runtime_info(address)
        if raw:
            return _as_they_are(runtime)
        return state_of(runtime, await admin.calls.broker_config(address))

    _show(broker, numbers, output, client, verbose)


@click.command(cls=Command)
@click.argument("broker", type=BROKER_OR_ADDRESS, metavar="ADDR|NAME")
@_RAW
@reads
@client_options
def stats(broker: str, raw: bool, output: Output, client: ClientOptions, verbose: int) -> None:
    """Show how many messages the broker at ADDR, or each of a NAME, stores and delivers, and how long storing takes.

    Rates are of the last 10 seconds, minute and 10 minutes. What a broker has not measured yet is unknown.

    \b
    Examples:
      rocketrio broker stats broker-a
      rocketrio broker stats 10.0.0.1:10911
    """

    async def numbers(admin: Admin, address: str) -> list[BrokerNumber]:
        runtime = await admin.calls.runtime_info(address)
        return _as_they_are(runtime) if raw else counts_of(runtime)

    _show(broker, numbers, output, client, verbose)


def _as_they_are(table: dict[str, str]) -> list[BrokerNumber]:
    return [BrokerNumber(key, value) for key, value in sorted(table.items())]


def _show(
    broker: str,
    numbers: Callable[[Admin, str], Awaitable[list[BrokerNumber]]],
    output: Output,
    client: ClientOptions,
    verbose: int,
) -> None:
    """Print the numbers of a broker, or of all of a name, each row with its address; name those that are silent."""

    async def work(silent: dict[str, str]) -> None:
        async with asking(f"asking {broker}", client) as admin:
            addresses = await addresses_of(admin, broker)
            found, failed = await ask_each(
                {addr: addr for addr in addresses}, lambda addr: numbers(admin, addr)
            )
        if not found:
            raise next(iter(failed.values()))
        silent.update((addr, error.what) for addr, error in failed.items())
        rows = [
            {"key": one.key, "value": one.value, "unit": one.unit, "address": addr}
            for addr, each in found.items()
            for one in each
        ]
        output.show(rows, _COLUMNS if len(addresses) == 1 else ("address", *_COLUMNS))

    run_in_part(work, verbose=verbose)


@click.command(cls=Command)
@click.argument("broker", type=BROKER_OR_ADDRESS, metavar="ADDR|NAME")
@click.argument("what", type=click.Choice([each.value for each in Cleaning]))
@changes
@client_options
def clean(
    broker: str, what: str, dry_run: bool, output: Output, client: ClientOptions, verbose: int
) -> None:
    """Have the broker at ADDR, or the only one of a NAME, delete files that it does not need, as it does once a day.

    `queues`: files of queues whose messages are no longer in the log. `topics`: queues of topics that it does not have
    any more. `log`: files of the log that are older than the retention (fileReservedTime). Apache's brokers delete
    those of the log within ten seconds after the command. In a terminal it asks first.

    \b
    Examples:
      rocketrio broker clean 10.0.0.1:10911 log --dry-run
      rocketrio broker clean broker-a queues
    """
    cleaning = Cleaning(what)

    async def work() -> None:
        async with open_admin(**client) as admin:
            address = await address_of(admin, broker)
            kept = None
            if dry_run:
                settings = await admin.calls.broker_config(address)
                kept = settings.get("fileReservedTime", "")
            else:
                await may_be_lost(
                    f"{address} deletes files for good; --dry-run shows what they are"
                )
            found = await clean_broker(admin, address, cleaning, dry_run=dry_run)
            now = nearest_time(admin.client.wall_clock.now_ms())
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
