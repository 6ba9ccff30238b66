"""The commands `rocketrio broker show|stats|clean`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import click

from rocketrio.cli.addresses import address_of, addresses_of
from rocketrio.cli.call import Call, changes, reads
from rocketrio.cli.cluster_options import may_be_lost
from rocketrio.cli.columns import Column
from rocketrio.cli.commands import Command
from rocketrio.cli.types import BROKER_OR_ADDRESS
from rocketrio_protocol.times import nearest_time

if TYPE_CHECKING:
    from rocketrio.admin.broker_numbers import BrokerNumber

CLEANINGS: Final = ("queues", "topics", "log")
"""As `Cleaning` of `rocketrio.admin.broker_upkeep`, which is imported only to clean."""
_UNIT: Final = Column("unit", cell=lambda row: row["unit"] or "")
_COLUMNS: Final = ("key", "value", _UNIT)
_RAW = click.option("--raw", is_flag=True, help="All keys, as the broker reports them.")


@click.command(cls=Command)
@click.argument("broker", type=BROKER_OR_ADDRESS, metavar="ADDR|NAME")
@_RAW
@reads
async def show(call: Call, broker: str, raw: bool) -> None:
    """Show how full the log and disk of the broker at ADDR, or of all brokers of a NAME, are, and what is not written.

    \b
    Examples:
      rocketrio broker show broker-a
      rocketrio broker show 10.0.0.1:10911
      rocketrio broker show 10.0.0.1:10911 --raw --json
    """
    from rocketrio.admin.broker_numbers import state_of

    async def numbers(address: str) -> list[BrokerNumber]:
        runtime = await call.admin.calls.runtime_info(address)
        if raw:
            return _as_they_are(runtime)
        return state_of(runtime, await call.admin.calls.broker_config(address))

    await _show(call, broker, numbers)


@click.command(cls=Command)
@click.argument("broker", type=BROKER_OR_ADDRESS, metavar="ADDR|NAME")
@_RAW
@reads
async def stats(call: Call, broker: str, raw: bool) -> None:
    """Show how many messages the broker at ADDR, or each of a NAME, stores and delivers, and how long storing takes.

    Rates are of the last 10 seconds, minute and 10 minutes. What a broker has not measured yet is unknown.

    \b
    Examples:
      rocketrio broker stats broker-a
      rocketrio broker stats 10.0.0.1:10911
    """
    from rocketrio.admin.broker_numbers import counts_of

    async def numbers(address: str) -> list[BrokerNumber]:
        runtime = await call.admin.calls.runtime_info(address)
        return _as_they_are(runtime) if raw else counts_of(runtime)

    await _show(call, broker, numbers)


def _as_they_are(table: dict[str, str]) -> list[BrokerNumber]:
    from rocketrio.admin.broker_numbers import BrokerNumber

    return [BrokerNumber(key, value) for key, value in sorted(table.items())]


async def _show(
    call: Call, broker: str, numbers: Callable[[str], Awaitable[list[BrokerNumber]]]
) -> None:
    """Print the numbers of a broker, or of all of a name, each row with its address; name those that are silent."""
    from rocketrio.admin.cluster_questions import ask_each

    async with call.asking(f"asking {broker}"):
        addresses = await addresses_of(call.admin, broker)
        found, failed = await ask_each({addr: addr for addr in addresses}, numbers)
    if not found:
        raise next(iter(failed.values()))
    call.silent.update((addr, error.what) for addr, error in failed.items())
    rows = [
        {"key": one.key, "value": one.value, "unit": one.unit, "address": addr}
        for addr, each in found.items()
        for one in each
    ]
    call.output.show(rows, _COLUMNS if len(addresses) == 1 else ("address", *_COLUMNS))


@click.command(cls=Command)
@click.argument("broker", type=BROKER_OR_ADDRESS, metavar="ADDR|NAME")
@click.argument("what", type=click.Choice(CLEANINGS))
@changes
async def clean(call: Call, broker: str, what: str) -> None:
    """Have the broker at ADDR, or the only one of a NAME, delete files that it does not need, as it does once a day.

    `queues`: files of queues whose messages are no longer in the log. `topics`: queues of topics that it does not have
    any more. `log`: files of the log that are older than the retention (fileReservedTime). Apache's brokers delete
    those of the log within ten seconds after the command. In a terminal it asks first.

    \b
    Examples:
      rocketrio broker clean 10.0.0.1:10911 log --dry-run
      rocketrio broker clean broker-a queues
    """
    from rocketrio.admin.broker_upkeep import Cleaning, expected
    from rocketrio.admin.broker_upkeep import clean as clean_broker

    cleaning = Cleaning(what)

    address = await address_of(call.admin, broker)
    kept = None
    if call.dry_run:
        settings = await call.admin.calls.broker_config(address)
        kept = settings.get("fileReservedTime", "")
    else:
        await may_be_lost(f"{address} deletes files for good; --dry-run shows what they are")
    found = await clean_broker(call.admin, address, cleaning, dry_run=call.dry_run)
    now = nearest_time(call.admin.client.wall_clock.now_ms())
    notes = []
    if kept is not None:
        [oldest] = [one.before for one in found if one.what == "oldest_message"]
        hours = int(kept) if kept.isdecimal() else None
        notes = [expected(cleaning, oldest, hours, now), "nothing was deleted"]
    columns = ("what", "before", Column("after", in_table=not call.dry_run), _UNIT)
    call.output.show(found, columns, notes=notes)
